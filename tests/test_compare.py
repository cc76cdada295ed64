"""Two hosts side by side: a copy, a slowed record, a changed BLAS, and what cannot be compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sample_book
from overhead.book import comparison, folder
from overhead.book.compare import BUDGETS, Comparison, as_json, compare_hosts, splits
from overhead.book.environments import CODE, UNLIKE
from overhead.cli import cli
from overhead.records import record as records
from sample_book import CPU_HOST, GPU_HOST, SWEEP

COPY = "cpu-box.v2-b"  # a dot and a dash


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A host, and a copy of its folder under another name."""
    for name in (CPU_HOST, COPY):
        shutil.copytree(sample_book.results() / CPU_HOST, tmp_path / "results" / name)
    return tmp_path / "results"


def change(path: Path, edit: Any) -> None:
    """Rewrite a file of JSON, or of JSON lines, object by object."""
    values = [json.loads(line) for line in path.read_text().splitlines()] if path.suffix == ".jsonl" else None
    if values is None:
        value = json.loads(path.read_text())
        edit(value)
        path.write_text(json.dumps(value))
        return
    for value in values:
        edit(value)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def slow_numpy(record: dict[str, Any]) -> None:
    if record["loop"] == "numpy" and record["workload"]["batch_size"] == 32:
        for samples in record["timing"]["samples"]:
            samples["seconds"] = [1.05 * value for value in samples["seconds"]]


def test_two_copies_of_one_host_compare_to_one_and_differ_in_nothing(results: Path) -> None:
    found = compare_hosts(results, COPY, CPU_HOST)

    assert len(found.pairs) == 6
    for pair in found.pairs:
        assert pair.ratio.low <= 1.0 <= pair.ratio.high
        assert pair.verdict == "no difference shown"
    assert found.environment == []
    assert "shows no difference" in comparison.answer(found)


def test_a_record_that_is_five_percent_slower_is_flagged_and_no_other(results: Path) -> None:
    change(results / COPY / f"{SWEEP}.jsonl", slow_numpy)

    found = compare_hosts(results, COPY, CPU_HOST)

    flagged = {(pair.loop, pair.batch_size): pair for pair in found.pairs if pair.verdict != "no difference shown"}
    assert set(flagged) == {("numpy", 32)}
    assert flagged["numpy", 32].verdict == "slower"
    assert flagged["numpy", 32].ratio.median == pytest.approx(1.05, rel=1e-3)


def test_a_slower_record_of_another_run_is_flagged_too(results: Path) -> None:
    def another_run(record: dict[str, Any]) -> None:
        record["started"] = "2026-03-03T00:00:00Z"
        for samples in (record["timing"] or {"samples": []})["samples"]:
            samples["process_set"], samples["seconds"] = 0, [1.2 * v for v in samples["seconds"]]
            second = {**samples, "process": 1, "process_set": 1}
            record["timing"]["samples"] = [samples, second]

    for host in (COPY, CPU_HOST):
        change(results / host / f"{SWEEP}.jsonl", another_run)
    change(results / COPY / f"{SWEEP}.jsonl", lambda record: record.update(started="2026-04-04T00:00:00Z"))
    change(results / COPY / f"{SWEEP}.jsonl", slow_numpy)

    found = compare_hosts(results, COPY, CPU_HOST)

    assert {p.loop for p in found.pairs if p.verdict == "slower"} == {"numpy"}


def test_single_processes_of_two_runs_give_no_verdict(results: Path) -> None:
    change(results / COPY / f"{SWEEP}.jsonl", lambda record: record.update(started="2026-04-04T00:00:00Z"))

    found = compare_hosts(results, COPY, CPU_HOST)

    assert {pair.verdict for pair in found.pairs} == {"no verdict: one process each"}


def test_a_changed_blas_is_named_as_other_code(results: Path) -> None:
    pool = {"library": "openblas", "version": "0.3.31", "architecture": "SkylakeX", "threads": 2}
    change(results / CPU_HOST / "host.json", lambda facts: facts.update(pools={"numpy:openblas": pool}))
    other = {**pool, "library": "mkl", "version": "2025.0"}
    change(results / COPY / "host.json", lambda facts: facts.update(pools={"numpy:mkl": other}))

    (found,) = compare_hosts(results, COPY, CPU_HOST).environment

    assert (found.what, found.tier) == ("BLAS of numpy", CODE)
    assert "mkl 2025.0" in found.a
    assert "openblas 0.3.31" in found.b


def test_hosts_with_and_without_a_gpu_are_unlike_and_cases_of_one_are_not_compared() -> None:
    found = compare_hosts(sample_book.results(), GPU_HOST, CPU_HOST)

    assert next(one for one in found.environment if one.what == "GPU").tier == UNLIKE
    assert {what for what, why in found.not_compared if why == f"not measured on {CPU_HOST}"} == {
        f"{SWEEP}: cupy on the GPU at 32", f"{SWEEP}: cupy on the GPU at 512"
    }  # fmt: skip
    assert any("declined on gpu-box: tensorflow" in why for _, why in found.not_compared)


def test_that_two_hosts_share_no_chapter_is_an_answer(results: Path) -> None:
    for end in (".jsonl", ".ipynb"):
        (results / COPY / f"{SWEEP}{end}").unlink()

    found = compare_hosts(results, COPY, CPU_HOST)

    assert comparison.answer(found) == f"{COPY} and {CPU_HOST} could not be compared: no case was timed on both."
    assert (SWEEP, f"measured on {CPU_HOST} only") in found.not_compared


def test_records_that_cannot_be_read_are_an_answer_too(results: Path) -> None:
    (results / COPY / f"{SWEEP}.jsonl").write_text("{\n")

    found = compare_hosts(results, COPY, CPU_HOST)

    assert any(what == f"{SWEEP} of {COPY}" for what, _ in found.not_compared)
    assert found.pairs == []


def test_each_host_stands_over_its_own_floor(results: Path) -> None:
    path = results / CPU_HOST / f"{SWEEP}.jsonl"
    floor = sample_book.record("floor-numpy", 0.1)
    records.write(path, [*records.read(path), floor])

    found = compare_hosts(results, CPU_HOST, COPY)

    pair = next(pair for pair in found.pairs if (pair.loop, pair.batch_size) == ("numpy", 32))
    ours, theirs = pair.times_floor
    assert ours is not None
    assert ours.median == pytest.approx(2.0, rel=0.05)
    assert theirs is None


def test_the_ratio_of_two_steps_is_one_plus_what_each_term_adds() -> None:
    found = folder.read_records(sample_book.ROOT / "results" / "epyc-2core", BUDGETS)
    quicker = [r for r in found if r.threads == 1]

    for split in splits({BUDGETS: found}, {BUDGETS: found}) + splits({BUDGETS: found}, {BUDGETS: quicker}):
        assert 1 + sum(share.adds for share in split.shares) == pytest.approx(split.ratio)


def test_the_document_has_the_keys_of_the_contract(results: Path) -> None:
    done = CliRunner().invoke(cli, ["compare", COPY, CPU_HOST, "--json", "--results", str(results)])

    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    assert {"pairs", "environment", "not_compared"} <= document.keys()
    for pair in document["pairs"]:
        assert {"chapter", "loop", "device", "batch_size", "ratio", "verdict", "times_floor"} <= pair.keys()
        assert {"median", "low", "high"} <= pair["ratio"].keys()
        assert len(pair["times_floor"]) == 2


def test_a_name_that_is_no_host_is_refused_in_a_line(results: Path) -> None:
    done = CliRunner().invoke(cli, ["compare", "nowhere", CPU_HOST, "--results", str(results)])

    assert done.exit_code == 1
    assert done.output.splitlines() == [f"Error: a host must be one of {CPU_HOST}, {COPY}, got nowhere"]


def test_a_stranger_s_words_reach_the_terminal_and_the_page_without_control_characters(results: Path) -> None:
    change(results / COPY / "host.json", lambda facts: facts.update(cpu_model="x\x1b[31m<script>| y"))

    found: Comparison = compare_hosts(results, COPY, CPU_HOST)

    assert "\x1b" not in comparison.as_text(found)
    page = comparison.page(results, {CPU_HOST: [SWEEP], COPY: [SWEEP]})
    assert "<script>" not in page
    assert json.dumps(as_json(found))
