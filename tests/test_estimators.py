"""Which estimate repeats best, on made-up runs whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from overhead.records import estimators
from overhead.records.estimators import ALL, ESTIMATORS, HEADLINE, LENGTHS, LOADED, LONG, ONE_SAMPLE, QUIET, TURN
from overhead.records.record import Record, Samples, Timing

RUNS, TURNS, SAMPLES = 12, 20, 3


def loop(name: str, level: float, disturbed: float, noise: float = 0.01, seed: int = 0, runs: int = RUNS) -> Record:
    """A loop at `level` seconds a step. Beside the load each run has its own share of turns that take twice as long."""
    rng = np.random.default_rng(seed)
    kept = []
    for condition in (QUIET, LOADED):
        for run in range(runs):
            turns = level * (1 + noise * rng.exponential(size=TURNS))
            if condition == LOADED:
                turns[: round(disturbed * rng.uniform(0.5, 1) * TURNS)] *= 2
            seconds = np.repeat(turns, SAMPLES) * rng.uniform(0.999, 1.001, TURNS * SAMPLES)
            rounds = [turn for turn in range(TURNS) for _ in range(SAMPLES)]
            kept.append(
                Samples(clock=condition, steps=10, process=run, round=rounds, seconds=[10 * float(s) for s in seconds])
            )
    return Record(
        host="made-up", notebook="00-clocks", status="ok", loop=name, device="cpu", op="estimators",
        timing=Timing(samples=kept),
    )  # fmt: skip


@pytest.fixture(scope="module")
def disturbed() -> list[Record]:
    return [loop("numpy", 1e-4, 0.7, seed=1), loop("jax-epoch", 5e-5, 0.7, seed=2)]


def test_a_low_estimate_repeats_where_what_disturbs_only_adds(disturbed):
    scores = estimators.scores(disturbed)

    assert set(scores) == set(ESTIMATORS)
    assert scores[HEADLINE] < scores["median"]
    assert scores["minimum"] < scores["trimmed mean"]
    assert estimators.moved(disturbed, HEADLINE) == pytest.approx(1, abs=0.02)
    assert estimators.moved(disturbed, "trimmed mean") > 1.3
    assert estimators.against_headline(disturbed)["median"].low > 1


def test_the_median_repeats_best_where_single_turns_are_too_short():
    """A clock that is wrong downwards once in a while: what is low is then the worst to take."""
    rng = np.random.default_rng(3)

    def wrong(record: Record) -> Record:
        assert record.timing
        kept = []
        for samples in record.timing.samples:
            seconds = np.array(samples.values_s) * np.repeat(
                np.where(rng.random(TURNS) < 0.15, rng.uniform(0.2, 0.9, TURNS), 1), SAMPLES
            )
            kept.append(samples.model_copy(update={"seconds": seconds.tolist()}))
        return record.model_copy(update={"timing": Timing(samples=kept)})

    found = [wrong(loop("numpy", 1e-4, 0.0, seed=4)), wrong(loop("jax-epoch", 5e-5, 0.0, seed=5))]
    ratios = estimators.against_headline(found)

    assert min(scores := estimators.scores(found), key=lambda name: scores[name]) == "median"
    assert ratios["median"].high < 1
    assert ratios["minimum"].median > 1


def test_spread_is_of_runs_and_has_a_row_a_loop_condition_estimator_and_length(disturbed):
    rows = estimators.spreads(disturbed)
    first = next(
        r for r in rows if (r.loop, r.condition, r.estimator, r.length) == ("numpy (cpu)", QUIET, "median", TURN)
    )
    runs = estimators.runs_of(disturbed[0], QUIET)
    by_hand = [np.median([np.mean(turns[t]) for t in turns]) for turns in runs.values()]

    assert len(rows) == 2 * 3 * len(ESTIMATORS) * len(LENGTHS)
    assert first.runs == RUNS
    assert first.range_ratio == pytest.approx(max(by_hand) / min(by_hand))
    assert first.sd_log == pytest.approx(np.std(np.log(by_hand), ddof=1))
    assert {r.runs for r in rows if r.condition == ALL} == {2 * RUNS}


def test_a_value_is_a_sample_a_turn_or_the_mean_of_five():
    turns = {n: [n + 0.0, n + 2.0] for n in range(12)}

    assert estimators.values(turns, ONE_SAMPLE)[:4] == [0, 2, 1, 3]
    assert estimators.values(turns, TURN)[:3] == [1, 2, 3]
    assert estimators.values(turns, LONG) == [3, np.mean(range(6, 13))]  # the two that are left over join the last
    assert estimators.values({0: [1.0]}, LONG) == [1]


def test_levels_of_loops_do_not_matter_and_one_run_has_no_spread(disturbed):
    slower = [loop("numpy", 1e-1, 0.7, seed=1), loop("jax-epoch", 5e-2, 0.7, seed=2)]

    assert estimators.scores(slower) == pytest.approx(estimators.scores(disturbed), rel=1e-6)
    assert estimators.scores([loop("numpy", 1e-4, 0.5, runs=1)], QUIET) == {}
    assert estimators.against_headline([loop("numpy", 1e-4, 0.5, runs=1)]) == {}
    assert estimators.scores([]) == {}
    assert estimators.against_headline([]) == {}


def test_a_loop_that_was_not_timed_is_left_out(disturbed):
    missing = Record(
        host="made-up", notebook="00-clocks", status="declined", reason="not here", loop="keras-fit", device="cpu",
        op="estimators",
    )  # fmt: skip

    assert estimators.scores([*disturbed, missing]) == estimators.scores(disturbed)
    assert {row.loop for row in estimators.spreads([*disturbed, missing])} == {"numpy (cpu)", "jax-epoch (cpu)"}
