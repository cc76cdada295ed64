"""Chapter 0's independent runs: really taken, and what the page and the claims make of made-up ones."""

from __future__ import annotations

import re

import pytest

from overhead.chapters.base import ParameterError
from overhead.chapters.clocks import claims
from overhead.chapters.clocks.chapter import Clocks
from overhead.harness import estimator_runs as study
from overhead.measure.session import PRESETS, Session
from overhead.records import estimators
from overhead.records import record as records
from overhead.records.estimators import HEADLINE, LOADED, QUIET
from overhead.showing import tables
from overhead.showing.claims import FAILS, HOLDS, NOT_MEASURED
from test_estimators import loop


@pytest.fixture(scope="module")
def disturbed() -> list[records.Record]:
    """Loops whose turns beside the load are disturbed for half of them at most in every run."""
    return [loop("numpy", 1e-4, 0.7, seed=1), loop("jax-epoch", 5e-5, 0.7, seed=2)]


def test_runs_are_fresh_processes_with_quiet_turns_and_then_turns_beside_a_load(monkeypatch, tmp_path):
    monkeypatch.setattr(study, "TURNS", 2)
    monkeypatch.setattr(study, "TURN_S", 0.02)
    switched = []
    monkeypatch.setattr(study._Load, "switch", lambda self, on: switched.append(on))
    session = Session(PRESETS["quick"], {"host": "local", "notebook": "00-clocks"}, force=True)

    found = study.estimator_runs(session, 3, loops=("numpy", "no-such-loop:Loop"))
    records.write(tmp_path / "kept.jsonl", found)
    timed, missing = study.of_study(records.read(tmp_path / "kept.jsonl"))

    assert (missing.status, missing.op) == ("declined", "estimators")
    for condition in (QUIET, LOADED):
        runs = estimators.runs_of(timed, condition)
        assert sorted(runs) == [0, 1, 2]
        assert all(len(turns) == 2 for turns in runs.values())
    assert switched[:5] == [False, False, True, True, False]  # off again before the next run is prepared
    assert estimators.scores([timed]).keys() == estimators.ESTIMATORS.keys()


def test_no_runs_are_taken_unless_they_are_asked_for():
    assert study.estimator_runs(Session(PRESETS["quick"], {}), 0) == []
    assert Clocks().estimator_runs == 0


@pytest.mark.parametrize(
    ("runs", "says"), [(2, "0 .none. or"), (41, "0 .none. or"), (True, "a whole number"), ("20", "a whole number")]
)
def test_so_few_runs_or_so_many_are_refused(runs, says):
    with pytest.raises(ParameterError, match=f"estimator_runs must be {says}"):
        Clocks.checked(estimator_runs=runs)
    assert Clocks.checked(estimator_runs=20).estimator_runs == 20


def test_the_page_says_which_estimate_won_and_by_how_much(disturbed):
    text = Clocks().estimates(disturbed).text
    scores, ratios = estimators.scores(disturbed), estimators.against_headline(disturbed)
    best = min(scores, key=lambda name: scores[name])

    assert text.count("**To remember: ") == 1
    assert f"**{best}**: {tables.number(100 * scores[best])} %" in text
    assert f"{HEADLINE}: {tables.number(100 * scores[HEADLINE])} %" in text
    assert f"median {tables.interval(ratios['median'])} times (larger)" in text
    assert f"median {tables.number(estimators.moved(disturbed, 'median') or 0)} times" in text
    assert not re.search(r"\b(nan|inf|None)\b", text)


def test_the_table_has_a_row_an_estimate_and_length(disturbed):
    text = Clocks().estimates_table(disturbed).text
    worst = max(
        (s for s in estimators.spreads(disturbed) if s[1:4] == (LOADED, "median", estimators.TURN)),
        key=lambda s: s.range_ratio,
    )

    rows = text.count("<tr>") - text.count("<thead>")
    assert rows == len(estimators.ESTIMATORS) * len(estimators.LENGTHS)
    assert f"{tables.number(worst.range_ratio)} ({worst.loop})" in text
    assert "12 runs" in text
    assert "median" in Clocks().estimates_figure(disturbed).alt


def test_a_page_without_the_runs_says_how_to_take_them():
    page = Clocks()

    assert "-p estimator_runs 20" in page.estimates([]).text
    for part in (page.estimates_figure([]), page.estimates_table([])):
        assert part.text.startswith("Not measured here")


def test_the_claims_follow_the_records(disturbed):
    """With decile and median exchanged the headline's claims fall."""
    by_name = {claim.name: claim.check for claim in claims.CLAIMS}

    assert by_name["median-repeats-worse"](disturbed).status == HOLDS
    assert by_name["no-estimate-beats-headline"]([]).status == NOT_MEASURED
    with pytest.MonkeyPatch.context() as patch:
        exchanged = dict(estimators.ESTIMATORS)
        exchanged[HEADLINE], exchanged["median"] = exchanged["median"], exchanged[HEADLINE]
        patch.setattr(estimators, "ESTIMATORS", exchanged)
        for name in ("headline-repeats-best", "no-estimate-beats-headline", "median-repeats-worse"):
            assert by_name[name](disturbed).status == FAILS
