"""A stranger's results folder scripts nothing, reads nothing, and takes nothing else of the book with it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import NamedTuple

import pytest

import chromium
import hostile_folder
import sample_book
from overhead.book import build as book
from overhead.book import check_host, clean, folder
from overhead.book.folder import FolderError
from sample_book import CPU_HOST, SWEEP

SECRET = "kept-by-the-builder-7391"


class Built(NamedTuple):
    html: Path
    said: list[str]
    results: Path
    secret: Path


@pytest.fixture(scope="module")
def built() -> Built:
    """One book of a good host among hostile ones."""
    there = sample_book.until_exit("overhead-hostile-")
    secret = there / "secret.txt"
    secret.write_text(SECRET)
    results = there / "results"
    sample_book.write_host(results, CPU_HOST, sample_book.sweep())
    hostile_folder.scripted(results, secret)
    hostile_folder.refused(results, secret)
    said: list[str] = []
    return Built(book.build(results, there / "out", said.append).parent, said, results, secret)


@pytest.mark.slow
@pytest.mark.parametrize("host", hostile_folder.REASONS)
def test_a_folder_that_cannot_be_used_is_left_out_with_its_reason(built: Built, host: str) -> None:
    lines = [line for line in built.said if re.match(rf"results/{host}[/:]", line)]

    assert len(lines) == 1
    assert re.search(hostile_folder.REASONS[host], lines[0])
    assert "\n" not in lines[0]
    assert not (built.html / "results" / host).exists()


@pytest.mark.slow
def test_the_rest_of_the_book_builds_and_says_what_is_left_out(built: Built) -> None:
    intro = (built.html / "book" / "intro.html").read_text()

    assert (built.html / "results" / CPU_HOST / f"{SWEEP}.html").exists()
    assert (built.html / "results" / "scripted" / f"{SWEEP}.html").exists()
    assert "results/empty-facts: left out: host.json: lacks cpu_model" in intro


@pytest.mark.slow
def test_no_file_of_the_builder_is_published_and_no_code_of_a_folder_runs(built: Built) -> None:
    for path in built.html.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
    assert not (built.secret.parent / "ran").exists()


@pytest.mark.slow
def test_every_page_has_a_policy_without_foreign_addresses_or_free_scripts(built: Built) -> None:
    for path in built.html.rglob("*.html"):
        if "_static" in path.parts:
            continue
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', path.read_text())
        assert policy, path
        scripts = re.search(r"script-src ([^;]*)", policy[1])
        assert scripts
        assert all(re.fullmatch(r"'self'|'unsafe-hashes'|'sha256-[\w+/=]+'", word) for word in scripts[1].split())
        assert "default-src 'none'" in policy[1]
        assert "http:" not in policy[1]


LOOK = """({
  taken: window.taken || null,
  title: document.title,
  handlers: [...document.querySelectorAll('article *')].flatMap(e => e.getAttributeNames())
    .filter(name => name.startsWith('on')),
  active: document.querySelectorAll('article script, article iframe, article svg[onload], article base').length,
  links: [...document.querySelectorAll('article a')].map(a => a.protocol).filter(p => p === 'javascript:'),
})"""


@pytest.mark.slow
@pytest.mark.skipif(chromium.BINARY is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("page", [f"results/scripted/{SWEEP}", "book/intro", f"results/{CPU_HOST}/{SWEEP}"])
def test_no_script_of_a_folder_runs(built: Built, browser: chromium.Chromium, page: str) -> None:
    seen = browser.open(built.html / f"{page}.html", LOOK)

    assert seen.answer["taken"] is None
    assert "TAKEN" not in seen.answer["title"]
    assert (seen.answer["handlers"], seen.answer["active"], seen.answer["links"]) == ([], 0, [])
    assert [address for address in seen.requests if not address.startswith(("file:", "data:"))] == []
    assert seen.errors == []  # the theme's own scripts pass the policy


@pytest.mark.slow
@pytest.mark.skipif(chromium.BINARY is None, reason="no Chromium on this machine")
def test_the_policy_alone_stops_a_script(built: Built, browser: chromium.Chromium) -> None:
    page = built.html / "results" / CPU_HOST / f"{SWEEP}.html"
    copy = page.with_name("copy.html")
    copy.write_text(page.read_text().replace("</article>", hostile_folder.MARKUP + "</article>"))

    assert browser.open(copy, LOOK).answer["taken"] is None
    copy.unlink()


@pytest.mark.slow
def test_check_host_tells_what_is_wrong_in_words(built: Built) -> None:
    told = "\n".join(check_host.findings(built.results / "scripted"))

    assert re.search(r"scripted/05-batch-sweep\.ipynb: line \d+ holds a script", told)
    assert "holds a directive that reads files" in told
    assert "metadata" in told
    assert "mystnb" in told
    assert check_host.findings(built.results / CPU_HOST) == []


# --- the cleaning itself ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["*" * 20_000, "[" * 20_000, "_*" * 10_000, "> " * 10_000, "[a](" * 5_000])
def test_rendering_at_the_limit_ends_soon(text: str) -> None:
    began = time.monotonic()
    clean.markdown(text)

    assert time.monotonic() - began < 30


def test_a_figure_keeps_its_pixels_and_loses_what_it_says_of_its_maker() -> None:
    shown = sample_book.code("", _figure()).outputs[0]["data"]["text/html"]
    cleaned = clean.html(shown)

    assert cleaned.count("data:image/png;base64,") == 2
    assert clean.html(cleaned) == cleaned
    with pytest.raises(FolderError, match="a figure is no PNG"):
        clean.html('<img src="data:image/png;base64,AAAA">')


def _figure() -> object:
    from overhead.chapters.batch_sweep.chapter import BatchSweep

    return BatchSweep.checked(host=CPU_HOST).figure(sample_book.sweep())


PRIVATE = {
    "an absolute path": "see /home/someone/run",
    "an address": "at 10.1.2.3",
    "a network card's number": "00:1b:44:11:3a:b7",
    "a device's or machine's number": "GPU-5a1d2c3b-0000-1111-2222-333344445555",
    "an e-mail address": "someone@example.org",
    "a token": "ghp_" + "a" * 36,
}


@pytest.mark.parametrize("what", PRIVATE)
def test_check_host_finds_what_is_private(tmp_path: Path, what: str) -> None:
    found = sample_book.sweep()
    found[-1] = found[-1].model_copy(update={"reason": PRIVATE[what]})
    sample_book.write_host(tmp_path, CPU_HOST, found)

    told = check_host.findings(tmp_path / CPU_HOST)

    assert any(f"{SWEEP}.jsonl: line {len(found)} holds {what}" in line for line in told), told


def test_a_number_that_is_not_finite_is_named_by_its_line() -> None:
    with pytest.raises(FolderError, match=r"^x\.jsonl: line 3: 1e999 is no finite number$"):
        folder.parse('{"seconds": [1e999]}', "x.jsonl: line 3")


def test_too_many_hosts_are_refused(tmp_path: Path) -> None:
    for number in range(folder.MAX_HOSTS + 1):
        (tmp_path / f"box-{number}").mkdir()

    with pytest.raises(FolderError, match=f"must hold at most {folder.MAX_HOSTS} hosts, got {folder.MAX_HOSTS + 1}"):
        folder.hosts(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": 0}, "steps of a sample must be at least 1"),
        ({"seconds": None}, "has neither seconds nor ns"),
        ({"seconds": [0.0] * 11}, "must be above 0, got 0.0"),
        ({"seconds": [-1.0] * 11}, "must be above 0, got -1.0"),
    ],
)
def test_samples_that_cannot_be_are_named_by_line(tmp_path: Path, change: dict[str, object], says: str) -> None:
    host = sample_book.write_host(tmp_path, CPU_HOST, sample_book.sweep())
    lines = (host / f"{SWEEP}.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    first["timing"]["samples"][0] |= change
    (host / f"{SWEEP}.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")

    with pytest.raises(FolderError, match=rf"{SWEEP}\.jsonl.*line 1.*{says}" if "neither" not in says else says):
        folder.read_records(host, SWEEP)
