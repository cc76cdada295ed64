"""Ratios across runs: paired in one run, of independent intervals in two."""

from __future__ import annotations

import numpy as np
import pytest

from overhead.records import across
from overhead.records.record import Record, Samples, Timing
from sample_book import record


def of_two_hosts(factor: float = 1.0, **more: object) -> tuple[Record, Record]:
    """A record, and another host's own run of the same loop that is `factor` times as slow."""
    other = record("numpy", 0.2 * factor, host="other", started="2026-02-02T00:00:00Z")
    return other.model_copy(update=more), record("numpy", 0.2)


def test_a_copy_of_a_run_compares_to_one_without_any_width() -> None:
    ours = record("numpy", 0.2)

    assert across.ratio(ours, ours) == pytest.approx((1.0, 1.0, 1.0, 11))


def test_a_run_that_was_slowed_by_a_few_percent_is_told_though_its_rounds_vary_as_much() -> None:
    ours = record("numpy", 0.2)
    assert ours.timing is not None
    slowed = [s.model_copy(update={"seconds": [1.05 * v for v in s.seconds or []]}) for s in ours.timing.samples]
    slower = ours.model_copy(update={"timing": ours.timing.model_copy(update={"samples": slowed})})

    found = across.ratio(slower, ours)

    assert found is not None
    assert found.low == pytest.approx(1.05)
    assert found.high == pytest.approx(1.05)


def test_two_runs_share_no_round_and_their_interval_is_wider_than_either() -> None:
    slower, ours = of_two_hosts(1.3)

    found, alone = across.ratio(slower, ours), across.ratio(ours, ours)

    assert found is not None
    assert alone is not None
    assert found.low < 1.3 < found.high
    assert found.half_width > 0 == alone.half_width


def test_the_interval_of_two_runs_holds_the_truth_as_often_as_it_says() -> None:
    rng, held = np.random.default_rng(1), 0

    def run(host: str) -> Record:
        series = [
            Samples(clock="wall", steps=1500, process=p, round=list(range(12)), seconds=values.tolist())
            for p, values in enumerate(0.2 * rng.lognormal(0, 0.05, (4, 12)))
        ]
        return record("numpy", 0.2).model_copy(
            update={"host": host, "started": host, "timing": Timing(first_s=1, stopped="target", samples=series)}
        )

    for _ in range(40):
        found = across.ratio(run("a"), run("b"))
        assert found is not None
        held += found.low <= 1 <= found.high

    assert held >= 36  # 95 % of 40, less what chance takes once in a hundred


def test_without_a_time_there_is_no_ratio() -> None:
    ours = record("numpy", 0.2)

    assert across.ratio(ours, ours.model_copy(update={"timing": None})) is None
