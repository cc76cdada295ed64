"""`overhead status`: a line a page, with its claims, its minutes where they are known, and why it is stale."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner

from overhead.book import status
from overhead.chapters import provenance
from overhead.cli import cli
from sample_book import CPU_HOST, FACTS, SWEEP, sweep, write_host

KEYS = {"host", "chapter", "preset", "started", "minutes", "versions", "stale", "why", "claims"}


@pytest.fixture
def results(tmp_path):
    facts = {**FACTS, "runs": {SWEEP: {"seconds": 90.0}, "bad": None}}
    write_host(tmp_path / "results", CPU_HOST, provenance.stamped(sweep()), facts)
    return tmp_path / "results"


def test_a_page_of_today_s_code_is_fresh_and_knows_its_minutes(results):
    (page,) = status.pages(results)

    assert set(page) == KEYS
    assert (page["host"], page["chapter"], page["minutes"]) == (CPU_HOST, SWEEP, 1.5)
    assert (page["stale"], page["why"]) == (False, None)
    assert page["started"] == "2026-01-01T00:00:00Z"
    assert sum(page["claims"].values()) > 10


def test_a_page_of_another_version_is_stale_and_says_why(tmp_path):
    write_host(tmp_path / "results", CPU_HOST, sweep())
    (page,) = status.pages(tmp_path / "results")

    assert page["stale"]
    assert "earlier version" in page["why"]
    assert page["minutes"] is None


def test_records_that_cannot_be_read_are_listed_with_the_reason(results):
    (results / CPU_HOST / f"{SWEEP}.jsonl").write_text("no record\n")
    (page,) = status.pages(results)

    assert page["stale"]
    assert f"{SWEEP}.jsonl" in page["why"]
    assert page["claims"]["holds"] == 0


def test_the_command_prints_lines_or_one_json_document(results):
    text = CliRunner().invoke(cli, ["status", "--results", str(results)])
    found = CliRunner().invoke(cli, ["status", "--results", str(results), "--json"])

    assert text.exit_code == found.exit_code == 0
    assert SWEEP in text.output
    assert "fresh" in text.output
    assert [page["chapter"] for page in json.loads(found.output)["pages"]] == [SWEEP]


def test_without_results_it_fails_in_one_line(results):
    shutil.rmtree(results)
    said = CliRunner().invoke(cli, ["status", "--results", str(results)])

    assert said.exit_code == 1
    assert "there is no such folder of results" in said.output
