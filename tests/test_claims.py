"""The claims: each has a check, a record turned round turns its verdict, and prose names only what exists."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache

import pytest

from overhead.book import ledger
from overhead.chapters import CHAPTERS
from overhead.chapters.claims import CONCLUSIONS, ROWS, claims, findings
from overhead.chapters.provenance import checkout
from overhead.problem.workload import Workload
from overhead.records import record as records
from overhead.records.record import Record, Samples, Timing
from overhead.records.stats import Interval
from overhead.showing import claims as rules
from overhead.showing.claims import FAILS, HOLDS, NOT_MEASURED, Claim, Finding, judged

ROOT = checkout()
assert ROOT is not None
HOST = ROOT / "results" / "epyc-2core"
MEASURED = {c: records.read(HOST / f"{c}.jsonl") for c in CHAPTERS if (HOST / f"{c}.jsonl").exists()}


def loop(name: str, seconds: float, processes: int = 2, **more: object) -> Record:
    """A loop around `seconds` an epoch in so many processes."""
    workload = Workload()
    walls = [
        Samples(
            clock="wall", steps=workload.steps, process=process, round=list(range(8)),
            seconds=[seconds * (1 + 0.01 * (turn % 3)) for turn in range(8)],
        )
        for process in range(processes)
    ]  # fmt: skip
    fields = {**workload.model_dump(mode="json"), "steps": workload.steps, "images_seen": workload.images_seen}
    return Record.model_validate(
        {
            "host": "made-up", "notebook": "05-batch-sweep", "status": "ok", "loop": name, "device": "cpu",
            "threads": 2, "workload": fields, "timing": Timing(samples=walls), **more,
        }
    )  # fmt: skip


@cache
def measured() -> list[tuple[Claim, Finding]]:
    """Every claim with what the host's records say."""
    return findings(MEASURED)


def named(name: str) -> Claim:
    return next(claim for claim in claims() if claim.name == name)


# --- every claim -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.name)
def test_a_claim_has_a_check_that_answers_on_any_records(claim):
    said = [judged(claim, MEASURED.get(claim.chapter)), judged(claim, []), judged(claim, [loop("numpy", 0.2)])]

    assert callable(claim.check)
    assert all(finding.status in (HOLDS, FAILS, NOT_MEASURED) and finding.figure for finding in said)
    assert said[1].status == NOT_MEASURED
    assert claim.statement.endswith(".")
    assert claim.chapter in (*CHAPTERS, "")


def test_names_are_unique_and_can_be_labels():
    names = [claim.name for claim in claims()]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)


def test_every_row_and_every_conclusion_of_the_article_is_settled_by_a_claim():
    about = {row for claim in claims() for row in claim.about}

    assert about == {*ROWS, *CONCLUSIONS}


def test_no_check_lacks_what_it_needs_on_the_host_that_has_every_chapter():
    failing = [claim.name for claim, finding in measured() if finding.figure.startswith("its records lack")]

    assert failing == []


# --- a record turned round -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "slow", "fast"),
    [
        ("keras-slower-than-numpy", "keras-fit", "numpy"),
        ("batching-pays-numpy", "numpy-per-image", "numpy"),
        ("numpy-slower-than-compiled-epoch", "numpy", "jax-epoch"),
        ("validation-changes-the-figure", "keras-fit-validated", "keras-fit"),
        ("preallocation-pays", "numpy", "numpy-preallocated"),
    ],
)
def test_a_ratio_turned_round_turns_the_claim(name, slow, fast):
    claim = named(name)

    assert judged(claim, [loop(slow, 0.4), loop(fast, 0.2)]).status == HOLDS
    assert judged(claim, [loop(slow, 0.2), loop(fast, 0.4)]).status == FAILS
    assert judged(claim, [loop(slow, 0.2), loop(fast, 0.2)]).status == FAILS  # no difference is no difference shown
    assert judged(claim, [loop(slow, 0.4, 1), loop(fast, 0.2, 1)]).status == NOT_MEASURED  # one process each


def test_a_ratio_of_the_host_turned_round_turns_its_claim():
    claim, found = named("keras-slower-than-numpy"), MEASURED["05-batch-sweep"]

    assert judged(claim, found).status == HOLDS
    assert judged(claim, [swapped(record, "keras-fit", "numpy") for record in found]).status == FAILS


def swapped(record: Record, one: str, other: str) -> Record:
    names = {one: other, other: one}
    return record.model_copy(update={"loop": names.get(record.loop, record.loop)})


# --- the rules -------------------------------------------------------------------------------------------------------


def test_a_verdict_word_takes_the_whole_interval():
    clear, touching, one = Interval(1.2, 1.1, 1.3, 9), Interval(1.2, 0.99, 1.3, 9), Interval(1.2, 1.2, 1.2, 1)

    assert [rules.above(i).status for i in (clear, touching, one)] == [HOLDS, FAILS, FAILS]
    assert [rules.below(Interval(1 / i.median, 1 / i.high, 1 / i.low, i.n)).status for i in (clear, touching)] == [
        HOLDS, FAILS,
    ]  # fmt: skip
    assert rules.between(Interval(1.0, 0.99, 1.01, 9), 0.97, 1.03).status == HOLDS
    assert rules.between(Interval(1.0, 0.5, 1.5, 9), 0.97, 1.03).status == FAILS  # no difference shown is not as long


def test_the_largest_lies_above_every_other_interval():
    found = {"a": Interval(3, 2.8, 3.2, 9), "b": Interval(2, 1.8, 2.2, 9), "c": Interval(2.5, 2.0, 2.9, 9)}

    assert rules.largest({"a": found["a"], "b": found["b"]}, "a").status == HOLDS
    assert rules.largest(found, "a").status == FAILS


@pytest.mark.parametrize(("low", "high", "status"), [(-5, 5, HOLDS), (-5, 11, FAILS), (-11, 5, FAILS), (12, 20, FAILS)])
def test_a_sum_closes_with_its_whole_interval(low, high, status):
    assert rules.closes(Interval((low + high) / 2, low, high, 9), 100).status == status


def test_first_is_who_has_every_seed_there_before_any_other():
    early, late, between = [1, 1.1, 1.2, 1.3, 1.4], [2, 2, 2, 2, 2], [1.35, 2, 2, 2, 2]

    assert rules.first_at({"32": early, "512": late}, "32").status == HOLDS
    assert rules.first_at({"32": early, "512": between}, "32").status == FAILS
    assert rules.first_at({"32": early[:3], "512": late[:3]}, "32").status == NOT_MEASURED


def test_accuracies_are_alike_within_a_tenth_of_a_point():
    assert rules.alike({"a": 0.9383, "b": 0.9381}).status == HOLDS
    assert rules.alike({"a": 0.9383, "b": 0.9370}).status == FAILS


# --- what prose refers to --------------------------------------------------------------------------------------------


def texts() -> Sequence[tuple[str, str]]:
    """Every page of prose and every notebook, as (name, text)."""
    assert ROOT is not None
    pages = [(path.name, path.read_text(encoding="utf-8")) for path in (ROOT / "book").rglob("*.md")]
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        pages.append((path.name, "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")))
    return pages


def test_prose_refers_only_to_claims_that_exist():
    known = {claim.name for claim in claims()}
    used = [(page, name) for page, text in texts() for name in ledger.CLAIM.findall(text)]
    used += [(page, name) for page, text in texts() for name in re.findall(r"\(claim-([\w-]+)\)", text)]

    assert len(used) >= 15
    assert [(page, name) for page, name in used if name not in known] == []


def test_the_article_has_a_status_for_each_of_its_rows_and_conclusions():
    text = dict(texts())["article.md"]

    assert set(ledger.SETTLED.findall(text)) == {*ROWS, *CONCLUSIONS}
    assert "Settled in" not in text


@pytest.mark.parametrize(
    "phrase",
    [
        "all you time", "hundredfold", "2 to 12 times more accurate", "may help little", "fifty times",
        "flat pays for arithmetic", "most of it is not arithmetic", "the same validation accuracy.",
        "makes new arrays where the thirteen calls",
    ],
)  # fmt: skip
def test_what_no_record_supports_is_not_said(phrase):
    assert [page for page, text in texts() if phrase in " ".join(text.split())] == []


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_ledger_lists_every_claim_for_every_host():
    assert ROOT is not None
    found = {"a-host": measured(), "bare": findings({})}
    page = ledger.page(ROOT, found)

    for claim in claims():
        assert f"(claim-{claim.name})=" in page
        assert claim.statement in page
    assert page.count("| a-host |") == page.count("| bare |") == len(claims())
    assert page.count(f"| bare | {NOT_MEASURED} |") == len(claims())


def test_prose_shows_the_status_a_host():
    found = {"a-host": measured()}
    text = ledger.expand("{claim}`equal-learning`, {settled}`S15`, {settled}`C4`", found)

    assert "[equal-learning](claim-equal-learning) (a-host: holds)" in text
    statuses = {claim.name: finding.status for claim, finding in found["a-host"]}
    other = r"(?:(?!holds \(|does not hold here \(|not measured here \().)*"  # no other status in between
    for name in ("grouping-decides-rows", "one-batch-size-is-first"):
        assert re.search(rf"{statuses[name]} \({other}\[{name}\]\(claim-{name}\)", text), name
    with pytest.raises(KeyError, match="no-such"):
        ledger.expand("{claim}`no-such`", found)


def test_a_chapter_s_claims_stand_in_its_folder():
    assert ROOT is not None
    for claim in claims():
        if claim.chapter:
            assert (ROOT / "src/overhead/chapters" / CHAPTERS[claim.chapter].folder / "claims.py").exists()
