"""Pages of hosts: the switcher, how a page is made again, Hosts and Status."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import sample_book
from overhead.book import build, hosts, status
from overhead.cli import cli
from sample_book import CPU_HOST, GPU_HOST, SWEEP

COPY = "cpu-box.v2-b"


def test_the_switcher_links_each_other_host_that_has_the_chapter() -> None:
    line = hosts.switcher("a", SWEEP, {"a": [SWEEP], "b.1-c": [SWEEP], "d": []})

    assert f"**a** · {{doc}}`b.1-c </results/b.1-c/{SWEEP}>` · " in line
    assert "/results/d/" not in line


def test_the_host_stands_in_the_title_and_the_block_under_it() -> None:
    made = hosts.under_title("(x)=\n# Title\n\nText.", "BLOCK", "box")

    assert made == "(x)=\n# Title · box\n\nBLOCK\n\nText."


def test_the_command_of_a_page_is_what_it_was_run_with() -> None:
    source = "# Parameters\nhost = 'box'\npreset = 'workshop'\ndevices = ['cpu']\nbatch_sizes = [32, 512]\n"
    page = {"cells": [{"id": "injected", "source": source}]}

    told = hosts.command("box.2", SWEEP, page, None)

    assert shlex.split(told) == [
        "overhead", "run", SWEEP, "--host", "box.2", "--preset", "workshop", "--device", "cpu",
        "-p", "batch_sizes", "[32, 512]",
    ]  # fmt: skip


def test_a_page_says_how_long_it_took_and_how_much_memory_a_process_had() -> None:
    found = [sample_book.record("numpy", 0.1, peak_rss_bytes=3 * 2**29)]

    told = hosts.made_by("box", SWEEP, {"cells": []}, found, 90.0)

    assert f"`overhead run {SWEEP} --host box --preset quick`; it took 1.5 minutes, at most 1.5 GiB a process" in told
    assert "this run's own were not kept" in hosts.made_by("box", SWEEP, {"cells": []}, found, None)


@pytest.fixture(scope="module")
def with_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of one host and of its folder copied under a name with a dot and a dash."""
    results = tmp_path_factory.mktemp("copies")
    for name in (CPU_HOST, COPY):
        shutil.copytree(sample_book.results() / CPU_HOST, results / name)
    return results


def test_a_copied_folder_is_another_host_everywhere_without_an_edit(with_copy: Path, tmp_path: Path) -> None:
    found = build.survey(sample_book.ROOT, with_copy)
    slots, _ = build.assemble(sample_book.ROOT, with_copy, found, tmp_path / "source")

    book = tmp_path / "source" / "book"
    assert found.left_out == []
    assert set(slots) == {"overhead-slot-slides"}  # no records of the story: no bar
    assert f"/results/{COPY}/{SWEEP}" in (tmp_path / "source" / "_toc.yml").read_text().replace("file: ", "/")
    assert f"/results/{COPY}/{SWEEP}>`" in (tmp_path / "source" / "results" / CPU_HOST / f"{SWEEP}.ipynb").read_text()
    assert f"## {COPY} against {CPU_HOST}" in (book / "compare.md").read_text()
    assert f"## {COPY}\n" in (book / "hosts.md").read_text()
    assert f"</results/{COPY}/{SWEEP}>`" in (book / "status.md").read_text()
    assert {entry["host"] for entry in status.pages(with_copy)} == {CPU_HOST, COPY}


def test_status_and_compare_take_a_name_with_a_dot(with_copy: Path) -> None:
    told = CliRunner().invoke(cli, ["status", "--results", str(with_copy)])
    compared = CliRunner().invoke(cli, ["compare", COPY, CPU_HOST, "--results", str(with_copy)])

    assert COPY in told.output
    assert compared.exit_code == 0
    assert "1.00 [1.00, 1.00]" in compared.output


def test_a_host_without_a_folder_of_its_own_is_on_no_page() -> None:
    made = build.survey(sample_book.ROOT, sample_book.results()).hosts

    page = hosts.page(sample_book.ROOT, sample_book.results(), made)

    assert f"## {GPU_HOST}" in page
    assert "## 99" not in page
