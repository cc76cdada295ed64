"""The undisturbed time repeats where the median does not, and its interval says how well it is known."""

from __future__ import annotations

import numpy as np
import pytest

from overhead.problem.workload import Workload
from overhead.records.headline import headline, quotient, turns
from overhead.records.record import Record
from overhead.records.stats import NO_DIFFERENCE
from overhead.showing import tables

TRUE_S = 0.2


def disturbed(seed: int, share: float, sets: int = 3, rounds: int = 15, scale: float = 1.0) -> dict:
    """Turns of `scale` times the true time with 1 % noise, of which a share is up to three times as long."""
    rng = np.random.default_rng(seed)
    noise = 1 + 0.01 * np.abs(rng.standard_normal((sets, rounds)))
    hit = rng.random((sets, rounds)) < share
    values = scale * TRUE_S * noise * np.where(hit, rng.uniform(1.2, 3, (sets, rounds)), 1)
    return {s: dict(enumerate(map(float, row))) for s, row in enumerate(values)}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_two_runs_agree_however_much_of_them_was_disturbed(share):
    values = [headline(disturbed(seed, share)).median for seed in range(30)]
    medians = [np.median([v for r in disturbed(seed, share).values() for v in r.values()]) for seed in range(30)]

    assert max(values) / min(values) < 1.03
    if share == 0.6:
        assert max(medians) / min(medians) > 1.2


def test_a_ratio_of_two_is_two_beside_a_load():
    found = [quotient(disturbed(seed, 0.5, scale=2), disturbed(seed + 100, 0.5)) for seed in range(30)]
    assert all(abs(i.median / 2 - 1) < 0.03 for i in found)
    assert sum(i.low <= 2 <= i.high for i in found) >= 27


def test_a_drift_that_both_sides_share_falls_out_of_their_ratio():
    slowing = {r: TRUE_S * (1 + r / 5) for r in range(15)}
    found = quotient({0: {r: 2 * v for r, v in slowing.items()}}, {0: slowing})
    assert (found.low, found.median, found.high) == pytest.approx((2, 2, 2))


def test_a_set_that_is_slow_for_its_whole_life_does_not_move_the_headline_but_widens_it():
    good = disturbed(1, 0.0)
    slow = {**good, 2: {r: 2 * v for r, v in good[2].items()}}
    assert headline(slow).median == pytest.approx(headline(good).median, rel=0.01)
    assert headline(slow).high >= headline(good).high


@pytest.mark.parametrize("side", [{}, {0: {}}])
def test_no_turn_is_no_headline(side):
    assert headline(side) is None
    assert quotient(side, {0: {0: 1.0}}) is None
    assert quotient({1: {0: 1.0}}, {0: {0: 1.0}}) is None  # no set in common


def test_one_turn_has_no_width():
    found = headline({0: {0: 0.5}})
    assert (found.median, found.low, found.high, found.n) == (0.5, 0.5, 0.5, 1)


def test_short_samples_of_a_turn_have_no_advantage_over_a_long_one():
    def record(steps: int, seconds: list[float]) -> Record:
        series = {"clock": "wall", "steps": steps, "process": 0, "round": [0] * len(seconds), "seconds": seconds}
        return Record(
            host="h", notebook="n", status="ok", loop="numpy", device="cpu",
            workload=Workload(images=3200),
            timing={"samples": [series]},  # type: ignore[arg-type]
        )  # fmt: skip

    short, long = record(10, [0.1, 0.3] * 5), record(100, [2.0])
    assert turns(short) == {0: {0: pytest.approx(2.0)}}
    assert turns(long) == {0: {0: pytest.approx(2.0)}}


@pytest.mark.parametrize(
    ("times", "said"),
    [(1.0, NO_DIFFERENCE), (1.03, NO_DIFFERENCE), (0.97, NO_DIFFERENCE), (1.08, "slower"), (0.92, "faster")],
)
def test_what_another_run_may_turn_is_no_verdict(times, said):
    def record(seconds: float) -> Record:
        samples = [
            {"clock": "wall", "steps": 100, "process": p, "round": [0, 1, 2], "seconds": [seconds, seconds, seconds]}
            for p in (0, 1)
        ]
        return Record(
            host="h", notebook="n", status="ok", loop="numpy", device="cpu",
            workload=Workload(images=3200),
            timing={"samples": samples},  # type: ignore[arg-type]
        )  # fmt: skip

    ours, other = record(times), record(1.0)
    found = tables.ratio(ours, other)
    assert found is not None
    assert (found.low, found.median, found.high) == pytest.approx((times, times, times))
    assert tables.verdict(ours, other, found) == said
