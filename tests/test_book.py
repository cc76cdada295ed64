"""The book: what it refuses, what is generated, and that every page, link, figure and download is there."""

from __future__ import annotations

import getpass
import re
import shutil
import socket
import string
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import nbformat
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import sample_book
from overhead.book import build as book
from overhead.book import exhibits, folder, fragments, parts
from overhead.book import pages as made_pages
from overhead.book.build import BookError
from overhead.chapters import CHAPTERS
from overhead.chapters.provenance import checkout
from sample_book import CPU_HOST, GPU_HOST, SWEEP

ROOT = checkout()
assert ROOT is not None


class Page(HTMLParser):
    """Identifiers, links, loaded resources and images of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {value for value in (given.get("id"), given.get("name")) if value}
        if tag == "a" and (href := given.get("href")):
            self.links.append(href)
        elif address := given.get("src") or (given.get("href") if tag == "link" else None):
            self.loaded.append(address)
        if tag == "img":
            self.images.append(given)


@pytest.fixture(scope="module")
def pages(html: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in html.rglob("*.html") if "_static" not in path.parts}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """One host's results that a test may spoil."""
    shutil.copytree(sample_book.results() / CPU_HOST, tmp_path / "results" / CPU_HOST)
    return tmp_path / "results"


# --- the whole book ---------------------------------------------------------------------------------------------------


def test_every_page_of_the_table_of_contents_exists_with_its_figures(html: Path) -> None:
    hosts = {CPU_HOST: [SWEEP], GPU_HOST: [SWEEP]}
    listed = [page["file"] for part in book.contents(hosts)["parts"] for page in part["chapters"]]

    assert {f"results/{host}/{SWEEP}" for host in hosts} < set(listed)
    for page in [book.contents(hosts)["root"], *listed]:
        assert (html / f"{page}.html").stat().st_size > 1000, page
    for host in hosts:
        text = (html / "results" / host / f"{SWEEP}.html").read_text()
        for kind, marker in made_pages.OUTPUTS.items():
            assert text.count(marker) == 1, (host, kind)


def test_every_link_inside_the_book_leads_somewhere(html: Path, pages: dict[Path, Page]) -> None:
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlparse(link)
            if parts.scheme or link == "#":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages.get(target)
            if not target.exists() or (parts.fragment and known and unquote(parts.fragment) not in known.ids):
                dead.append(f"{path.relative_to(html)}: {link}")

    assert not dead


def test_pages_load_nothing_from_elsewhere(html: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for address in page.loaded:
            assert address.startswith("data:") or not (urlparse(address).scheme or urlparse(address).netloc), path
            assert address.startswith("data:") or (path.parent / urlparse(address).path).exists(), (path, address)
        text = path.read_text(encoding="utf-8")
        for absent in ("mathjax", "require.js", "unpkg.com", "jsdelivr", "cdnjs", "googleapis"):
            assert absent not in text.lower(), (path, absent)


def test_downloads_are_the_records_themselves(html: Path) -> None:
    page = html / "results" / GPU_HOST / f"{SWEEP}.html"
    links = [link for link in Page(page).links if "_downloads" in link]

    for name in (f"{SWEEP}.jsonl", "host.json"):
        link = next(link for link in links if link.endswith(name))
        assert (page.parent / link).read_bytes() == (sample_book.results() / GPU_HOST / name).read_bytes()


def test_the_exhibits_show_every_loop_under_its_label_and_every_line_of_its_file(html: Path) -> None:
    texts = dict(exhibits.pages(ROOT))

    for name, info in exhibits.SHOWN.items():
        where = exhibits.group_of(name)
        assert f"loop-{name}" in Page(html / "book" / "loops" / f"{where}.html").ids
        shown = texts[f"loops/{where}"].partition(f"(loop-{name})=")[2]
        first = re.search(r"^class (\w+)", shown, re.M)
        assert first is not None
        assert first[1] == info.cls
        source = (ROOT / "src" / "overhead" / "loops" / f"{info.module}.py").read_text().splitlines()
        assert {line for line in source if line.strip()} <= set(texts[f"loops/{where}"].splitlines())


def test_no_file_that_was_timed_is_left_out_of_the_exhibits() -> None:
    package = ROOT / "src" / "overhead"
    timed = [*(package / "loops").glob("*.py"), *(package / "measure" / "probes").glob("*.py")]
    tables = {"loops/__init__", "loops/frameworks"}  # which list them
    listed = [file for group in exhibits.GROUPS.values() for file in group.files]

    assert {str(path.relative_to(package).with_suffix("")) for path in timed} - tables <= set(listed)
    assert len(listed) == len(set(listed))
    every = "\n".join(text for _, text in exhibits.pages(ROOT))
    for path in (package / "loops" / "c").iterdir():
        assert f"src/overhead/loops/c/{path.name}`:" in every


def test_line_numbers_of_the_exhibits_are_those_of_the_file() -> None:
    text = dict(exhibits.pages(ROOT))["loops/numpy"]
    source = (ROOT / "src" / "overhead" / "loops" / "numpy_.py").read_text().splitlines()
    blocks = re.findall(r"`numpy_\.py`.*?(?=\n## )", text, re.S)[0]

    for start, code in re.findall(r":lineno-start: (\d+)\n\n(.*?)\n````", blocks, re.S):
        assert source[int(start) - 1] == code.splitlines()[0]


def test_nothing_tells_where_or_by_whom_the_book_was_built(html: Path) -> None:
    private = {str(ROOT), str(html.parent), str(sample_book.results()), f"{Path.home()}/"}
    # A name such as "vm" or "root" is a word of the book as well.
    private |= {name for name in (getpass.getuser(), socket.gethostname()) if len(name) > 4}
    for path in html.rglob("*"):
        if path.suffix in (".html", ".js", ".ipynb", ".md", ".json", ".jsonl", ".txt"):
            text = path.read_text(encoding="utf-8")
            assert not [word for word in private if word in text], path


def test_a_page_ends_with_its_provenance(html: Path) -> None:
    text = (html / "results" / CPU_HOST / f"{SWEEP}.html").read_text()

    assert text.rindex("Where these numbers come from") > text.index(made_pages.OUTPUTS["tables"])
    assert '<code class="docutils literal notranslate"><span class="pre">0123456789</span></code>' in text
    assert "no disturbance was noticed" in text


def test_parameters_stay_readable_and_calls_are_shown_small(html: Path) -> None:
    text = (html / "results" / CPU_HOST / f"{SWEEP}.html").read_text()

    assert "tag_injected-parameters" in text
    assert CPU_HOST in text[text.index("tag_injected-parameters") :][:1500]
    assert text.count("tag_call") > 4
    assert "tag_call tag_injected" not in text


def test_a_page_leads_to_the_same_chapter_of_other_hosts(html: Path) -> None:
    links = Page(html / "results" / CPU_HOST / f"{SWEEP}.html").links

    assert f"../{GPU_HOST}/{SWEEP}.html" in links


def test_what_a_framework_says_while_it_starts_is_not_shown(html: Path) -> None:
    assert "Unable to register" not in (html / "results" / CPU_HOST / f"{SWEEP}.html").read_text()


def test_values_from_a_host_never_become_markup(html: Path) -> None:
    intro = (html / "book" / "intro.html").read_text()

    assert "Made &lt;Up&gt; CPU | model_1" in intro
    assert "&lt;not&gt; installed" in (html / "results" / CPU_HOST / f"{SWEEP}.html").read_text()


# --- nothing measured -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (None, "resluts: there is no such folder of results"),
        ("", "resluts: holds no host's folder"),
        ("box", "resluts: holds no chapter"),
    ],
)
def test_results_without_any_keep_the_old_book(tmp_path: Path, made: str | None, says: str) -> None:
    old = tmp_path / "out" / "html" / "index.html"
    old.parent.mkdir(parents=True)
    old.write_text("the book of an earlier build")
    if made is not None:
        (tmp_path / "resluts" / made).mkdir(parents=True)

    with pytest.raises(BookError, match=says):
        book.build(tmp_path / "resluts", tmp_path / "out")
    assert old.read_text() == "the book of an earlier build"


def test_a_second_build_into_the_same_folder_is_refused(results: Path, tmp_path: Path) -> None:
    with book._alone(tmp_path / "out"), pytest.raises(BookError, match=r"^out: another build writes there; wait"):
        book.build(results, tmp_path / "out")


def test_a_builder_that_is_killed_is_said(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = book.subprocess.CompletedProcess([], -9, "", "")
    monkeypatch.setattr(book.subprocess, "run", lambda *given, **how: killed)

    with pytest.raises(BookError, match=r"^jupyter-book was ended by SIGKILL; the old book stays$"):
        book.build(results, tmp_path / "out")


# --- what is refused --------------------------------------------------------------------------------------------------


def facts(**more: Any) -> folder.Facts:
    return folder.Facts.model_validate({**sample_book.FACTS, **more})


def spoil(folder: Path, change: Any) -> None:
    """Apply `change` to the executed notebook of a host."""
    notebook = nbformat.read(folder / f"{SWEEP}.ipynb", as_version=4)
    change(notebook)
    nbformat.write(notebook, folder / f"{SWEEP}.ipynb")


def strip_all(notebook: Any) -> None:
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []


def strip_the_figure(notebook: Any) -> None:
    next(cell for cell in notebook.cells if cell.source == "chapter.figure(records)").outputs = []


def add_an_error(notebook: Any) -> None:
    notebook.cells[-1].outputs = [nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])]


def add_a_widget(notebook: Any) -> None:
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "Slider"}
    notebook.cells[-1].outputs = [nbformat.v4.new_output("display_data", data=view)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (strip_all, r"\(chapter\.host_card\(\)\) has no output"),
        (strip_the_figure, r"\(chapter\.figure\(records\)\) has no output"),
        (add_an_error, r"\(chapter\.floors_table\(records\)\) ended in an error"),
        (add_a_widget, r"\(chapter\.floors_table\(records\)\) shows a widget"),
    ],
)
def test_a_notebook_that_lost_its_outputs_is_named(results: Path, tmp_path: Path, change: Any, says: str) -> None:
    spoil(results / CPU_HOST, change)

    named = rf"^results/{CPU_HOST}/{SWEEP}: left out: {SWEEP}\.ipynb: code cell \d+ {says}"
    with pytest.raises(BookError, match=named):
        book.build(results, tmp_path / "out")


def test_records_of_another_run_are_refused(results: Path, tmp_path: Path) -> None:
    lines = results / CPU_HOST / f"{SWEEP}.jsonl"
    lines.write_text("".join(lines.read_text().splitlines(keepends=True)[:-1]))

    with pytest.raises(BookError, match=rf"{SWEEP}\.ipynb and {SWEEP}\.jsonl are not of one run"):
        book.build(results, tmp_path / "out")


@pytest.mark.parametrize("name", [f"{SWEEP}.ipynb", f"{SWEEP}.jsonl", "host.json"])
def test_a_missing_file_is_named(results: Path, tmp_path: Path, name: str) -> None:
    (results / CPU_HOST / name).unlink()

    with pytest.raises(BookError, match=rf"results/{CPU_HOST}.*: left out: {re.escape(name)} is missing"):
        book.build(results, tmp_path / "out")


@pytest.mark.parametrize("name", ["my laptop", "box..2", "box."])
def test_a_folder_whose_name_cannot_be_a_host_is_named(results: Path, tmp_path: Path, name: str) -> None:
    (results / CPU_HOST).rename(results / name)

    with pytest.raises(BookError, match=rf"results/{re.escape(name)}: left out: a host's name must be 1 to 64 letters"):
        book.build(results, tmp_path / "out")


@pytest.mark.parametrize("version", ["2.0.2", "0.15.1"])
def test_another_jupyter_book_is_refused(
    monkeypatch: pytest.MonkeyPatch, results: Path, tmp_path: Path, version: str
) -> None:
    monkeypatch.setattr(book.metadata, "version", lambda name: version)

    with pytest.raises(BookError, match=f"jupyter-book must be a version 1, got {re.escape(version)}"):
        book.build(results, tmp_path / "out")


def test_a_warning_fails_the_build_names_the_page_and_leaves_the_old_book(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "out" / "html" / "index.html"
    old.parent.mkdir(parents=True)
    old.write_text("the book of an earlier build")

    monkeypatch.setattr(fragments, "provenance", lambda *given: "See {ref}`there-is-no-such-label`.")

    with pytest.raises(BookError, match=rf"results/{CPU_HOST}/{SWEEP}.*there-is-no-such-label") as error:
        book.build(results, tmp_path / "out")
    assert str(tmp_path) not in str(error.value)
    assert old.read_text() == "the book of an earlier build"


def test_a_page_that_was_not_built_or_lost_its_figure_is_named(html: Path, tmp_path: Path) -> None:
    copy = tmp_path / "html"
    shutil.copytree(html, copy)
    hosts = {CPU_HOST: {SWEEP: book.page_of(ROOT, sample_book.results() / CPU_HOST, SWEEP)}}
    book.check(hosts, copy)
    page = copy / "results" / CPU_HOST / f"{SWEEP}.html"

    page.write_text(page.read_text().replace(made_pages.OUTPUTS["figures"], ""))
    with pytest.raises(BookError, match=r"shows 0 figures, its notebook made 1"):
        book.check(hosts, copy)

    page.write_text("x" * (book.MAX_PAGE_BYTES + 1))
    with pytest.raises(BookError, match=f"must be at most {book.MAX_PAGE_BYTES} bytes"):
        book.check(hosts, copy)

    page.unlink()
    with pytest.raises(BookError, match=rf"results/{CPU_HOST}/{SWEEP}\.html was not built"):
        book.check(hosts, copy)

    (copy / "book" / "glossary.html").unlink()
    with pytest.raises(BookError, match=r"book/glossary\.html was not built"):
        book.check({}, copy)


@pytest.mark.parametrize(
    "markup",
    [
        '<script async src="https://cdn.example.org/mathjax.js"></script>',
        "<img alt='' src='http://example.org/figure.png'>",
        '<link rel="stylesheet"\n href="//example.org/fonts.css">',
        "<script src=https://example.org/x.js></script>",
        '<img srcset="a.png 1x, https://example.org/b.png 2x">',
        "<video src=//example.org/film.webm>",
        "<video poster='https://example.org/film.png'>",
        '<svg><image href="https://example.org/x.png"/></svg>',
        '<svg><use xlink:href="https://example.org/x.svg#a"/></svg>',
        "<style>@import 'https://example.org/x.css';</style>",
        '<p style="background: url(https://example.org/x.png)">',
        "<base href=https://example.org/>",
        '<meta http-equiv="Refresh" content="0; url=https://example.org/">',
        '<object data="https://example.org/x.swf"></object>',
    ],
)
def test_a_page_that_would_load_something_from_elsewhere_is_named(tmp_path: Path, html: Path, markup: str) -> None:
    shutil.copytree(html, tmp_path / "html")
    page = tmp_path / "html" / "book" / "method.html"
    page.write_text(page.read_text() + '<a href="https://example.org">a link is fine</a>')
    book.check({}, tmp_path / "html")

    page.write_text(page.read_text() + markup)
    with pytest.raises(BookError, match=r"book/method\.html: must open without a network, loads .*example\.org"):
        book.check({}, tmp_path / "html")


# --- what is generated ------------------------------------------------------------------------------------------------


def test_adding_a_host_changes_the_contents_and_nothing_else() -> None:
    one, two = (book.contents(hosts) for hosts in ({"a": [SWEEP]}, {"a": [SWEEP], "b": [SWEEP]}))

    added = [part for part in two["parts"] if part not in one["parts"]]
    listed = [{"file": f"results/b/{name}"} for name in parts.names(SWEEP)]
    assert added == [{"caption": "Measured on b", "chapters": listed}]


def test_a_headline_gives_the_ratio_of_the_records_and_both_devices() -> None:
    text = fragments.headline_of(GPU_HOST, sample_book.sweep(gpu=True), facts(gpus=[sample_book.GPU]))

    ratios = {name: float(found) for found, name in re.findall(r"\*\*([\d.]+) \[.*?\[([\w-]+)\]\(loop-", text)}
    assert "Fastest: [jax-epoch](loop-jax-epoch) on the CPU" in text
    assert ratios["keras-fit"] == pytest.approx(12, rel=0.06)
    assert ratios["cupy"] == pytest.approx(3, rel=0.06)
    assert "the GPU's fastest loop, [cupy]" in text
    assert "48,000 images at batch size 32, 1,500 updates" in text
    assert "measure again" not in text


def test_a_headline_says_no_difference_where_the_interval_holds_one() -> None:
    same = [sample_book.record("jax-epoch", 0.1), sample_book.record("keras-fit", 0.1)]

    assert "no difference shown" in fragments.headline_of(CPU_HOST, same, facts())


def test_a_headline_of_a_disturbed_run_says_so() -> None:
    found = [r.model_copy(update={"disturbed": ["steal time 9% of the cores"]}) for r in sample_book.sweep()]

    assert "measure again" in fragments.headline_of(CPU_HOST, found, facts())


def test_a_host_without_a_batch_sweep_has_no_headline() -> None:
    assert "no headline yet" in fragments.headline_of(CPU_HOST, [], facts())


def test_a_missing_gpu_host_is_said_and_a_measured_one_is_not_denied() -> None:
    results = sample_book.results()

    assert "No GPU host has been measured" in fragments.headline(results, {CPU_HOST: [SWEEP]})
    assert "No GPU host" not in fragments.headline(results, {CPU_HOST: [SWEEP], GPU_HOST: [SWEEP]})


def test_chapter_links_say_where_a_chapter_stands() -> None:
    text = "See {chapter}`05-batch-sweep` and {chapter}`98-none`."

    measured = fragments.expand(text, ROOT, {"b": [SWEEP], "a": [SWEEP]})
    assert f"({{doc}}`b </results/b/{SWEEP}>`, {{doc}}`a </results/a/{SWEEP}>`)" in measured
    assert r"chapter 98\-none (not in this copy of the book yet)" in measured
    assert "not measured on any host yet" in fragments.expand(text, ROOT, {"c": []})


@given(st.text(alphabet=string.printable + "äß–µ", max_size=60))
def test_plain_shows_any_text_letter_by_letter(text: str) -> None:
    words = " ".join(text.split())

    tokens = MarkdownIt("commonmark").parseInline(fragments.plain(text))[0].children or []
    assert "".join(token.content for token in tokens) == words
    assert {token.type for token in tokens} <= {"text", "text_special"}


def test_every_chapter_that_the_prose_names_is_numbered_as_the_studies_are() -> None:
    named = {stem for page in (ROOT / "book").rglob("*.md") for stem in fragments.CHAPTER.findall(page.read_text())}
    by_number = {stem[:2]: stem for stem in CHAPTERS}

    assert named
    for stem in named:
        assert by_number.get(stem[:2], stem) == stem, f"the prose says {stem}, the book has {by_number[stem[:2]]}"


def test_answers_of_the_workshop_print_no_measured_figure() -> None:
    text = (ROOT / "book" / "workshop" / "questions.md").read_text()

    assert not re.findall(r"\d\s*(?:ms|us|µs|seconds|s|times|%)(?![\w-])", text)


def test_configuration_never_executes_a_notebook() -> None:
    configuration = yaml.safe_load((ROOT / "_config.yml").read_text())

    assert configuration["execute"]["execute_notebooks"] == "off"
    assert configuration["only_build_toc_files"] is True
    assert {".venv", "_build"} <= set(configuration["exclude_patterns"])


@pytest.mark.parametrize("source", ["chapter.table(records)", "a = 1\nf(a)\n"])
def test_a_cell_that_ends_in_an_expression_must_show_something(source: str) -> None:
    assert made_pages.ends_in_expression(source)


@pytest.mark.parametrize("source", ["", "a = f()", "f();", "import numpy", "%%bash\nls", "for x in y:\n    f(x)"])
def test_other_cells_need_not(source: str) -> None:
    assert not made_pages.ends_in_expression(source)
