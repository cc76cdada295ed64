"""Turns at two levels are told from turns that scatter or drift."""

from __future__ import annotations

import numpy as np
import pytest

from overhead.records.levels import levels


def test_the_step_that_was_printed_with_a_narrow_interval_has_two_levels():
    found = levels([204, 205, 206, 204, 205, 300, 320, 355, 206, 204, 330, 205])

    assert found is not None
    assert (found.low, found.at_low, found.at_high) == (pytest.approx(205), 8, 4)
    assert found.high == pytest.approx(325, abs=1)


@pytest.mark.parametrize("n", [12, 20, 60])
@pytest.mark.parametrize("noise", [0.01, 0.1, 0.4])
def test_turns_that_scatter_around_one_level_have_one(n, noise):
    rng = np.random.default_rng(n)
    called = sum(levels(rng.lognormal(0, noise, n)) is not None for _ in range(500))

    assert called <= 0.03 * 500


@pytest.mark.parametrize("turns", [np.linspace(1, 2, 40), [1.0] * 30, [1.0] * 30 + [2.0], [1.0, 2.0] * 5])
def test_a_drift_an_equal_series_a_single_outlier_and_a_short_series_have_one_level(turns):
    assert levels(turns) is None
