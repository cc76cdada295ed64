"""The statistics on synthetic samples whose truth is known. No clock is read."""

from itertools import product

import numpy as np
import pytest
from scipy import stats as scipy_stats
from scipy.optimize import brentq

from overhead.records.stats import (
    Interval,
    drift,
    iqr,
    mean,
    median_interval,
    order_statistics,
    paired_ratio,
    reached,
    resampled_medians,
    spread,
    verdict,
)

NORMAL = scipy_stats.norm.cdf
SLOW = 1.5  # times the fast mode


def lognormal(rng, n):
    """Noise of 10 %; the median is 1."""
    return rng.lognormal(0, 0.1, n)


def bimodal(rng, n):
    """Two samples in five are in a slow mode."""
    return np.where(rng.random(n) < 0.4, SLOW, 1.0) * rng.lognormal(0, 0.05, n)


def below(x):
    """Share of `bimodal` below x."""
    return 0.6 * NORMAL(np.log(x) / 0.05) + 0.4 * NORMAL(np.log(x / SLOW) / 0.05)


TRUE_MEDIAN = {lognormal: 1.0, bimodal: brentq(lambda x: below(x) - 0.5, 1, SLOW)}


def coverage(draw, truth, repeats):
    """Share of intervals that hold the truth."""
    found = [median_interval(draw()) for _ in range(repeats)]
    return sum(i.low <= truth <= i.high for i in found) / repeats


@pytest.mark.parametrize(
    ("samples", "n"),
    [*product([lognormal, bimodal], [6, 7, 8, 30]), *product([lognormal], [2, 3, 4])],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_interval_of_one_process_covers_the_true_median(samples, n):
    rng = np.random.default_rng(1)

    assert coverage(lambda: [samples(rng, n)], TRUE_MEDIAN[samples], repeats=2000) >= 0.93


def test_interval_of_one_process_is_no_wider_than_it_must_be():
    rng = np.random.default_rng(1)

    assert coverage(lambda: [lognormal(rng, 30)], 1.0, repeats=2000) <= 0.975


@pytest.mark.parametrize("between", [0.0, 0.2])
@pytest.mark.parametrize(("processes", "rounds"), [(2, 8), (3, 30), (5, 8), (5, 30), (6, 8)])
def test_interval_of_several_processes_covers_the_median_process(processes, rounds, between):
    """Truth here is the median over all processes there could be, of each one's own median.

    It is not the median of the five that were drawn: an interval for those would ignore what a sixth could do.
    """
    rng = np.random.default_rng(2)

    def draw():
        levels = rng.lognormal(0, between, processes)
        return [level * lognormal(rng, rounds) for level in levels]

    assert coverage(draw, 1.0, repeats=400) >= 0.93


def test_pooling_the_rounds_of_processes_that_differ_would_not_cover():
    rng = np.random.default_rng(2)

    def pooled():
        return [np.concatenate([level * lognormal(rng, 30) for level in rng.lognormal(0, 0.2, 5)])]

    assert coverage(pooled, 1.0, repeats=400) < 0.6


def test_one_slow_process_in_five_moves_the_interval_and_not_the_median():
    rng = np.random.default_rng(3)
    found = median_interval([level * rng.lognormal(0, 0.01, 30) for level in (1, 1, 1, 2, 1)])

    assert found.median == pytest.approx(1, rel=0.02)
    assert found.high > 1.9


def test_interval_is_equivariant_and_repeatable():
    rng = np.random.default_rng(4)
    processes = [lognormal(rng, 9) for _ in range(5)]
    found = median_interval(processes)

    assert found == median_interval(processes)
    assert np.allclose(median_interval([p * 1e-6 for p in processes])[:3], np.array(found[:3]) * 1e-6)
    assert found.low < found.median < found.high
    assert found.n == 45


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.99])
@pytest.mark.parametrize("n", [12, 31])
def test_order_statistics_are_those_of_the_sign_test(n, level):
    first, last = order_statistics(n, level)
    outside = scipy_stats.binom(n, 0.5).cdf

    assert last == n - 1 - first
    assert 1 - 2 * outside(first) >= level > 1 - 2 * outside(first + 1)


@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_resampled_medians_are_distributed_as_those_of_drawn_resamples(n):
    rng = np.random.default_rng(5)
    ordered = np.sort(lognormal(rng, n))
    drawn = np.median(rng.choice(ordered, (4000, n)), axis=1)
    direct = resampled_medians(ordered, 4000, rng)

    at = np.unique(drawn)[:, None]
    gap = np.abs((drawn <= at + 1e-12).mean(axis=1) - (direct <= at + 1e-12).mean(axis=1))
    assert gap.max() < 0.045  # Kolmogorov and Smirnov's distance of two times 4,000: 0.044 once in 1,000


@pytest.mark.parametrize("processes", [[[3.0]], [[3.0] * 7], [[3.0], [3.0]], [[3.0] * 4] * 6])
def test_samples_that_do_not_differ_give_an_interval_without_width(processes):
    found = median_interval(processes)

    assert found == Interval(3.0, 3.0, 3.0, sum(map(len, processes)))
    assert spread(processes).within == 0


def test_two_samples_are_not_taken_for_certain():
    found = median_interval([[1.0, 1.1]])

    assert found.low < 0.7
    assert found.high > 1.5


BAD = [
    ([], "at least one series"),
    ([[]], "process 0 must have at least one sample"),
    ([[1.0], []], "process 1 must have at least one sample"),
    ([1.0, 2.0], "process 0 must be a series"),
    ([[1.0, float("nan")]], r"got nan \(process 0, sample 1\)"),
    ([[1.0], [float("inf")]], r"got inf \(process 1, sample 0\)"),
    ([[0.0]], "above 0, got 0.0"),
    ([[1.0, 2.0, -1.0]], r"got -1.0 \(process 0, sample 2\)"),
]


@pytest.mark.parametrize(("processes", "message"), BAD)
@pytest.mark.parametrize("of", [median_interval, mean, iqr, spread, lambda p: paired_ratio(p, p)])
def test_bad_samples_are_named(of, processes, message):
    with pytest.raises(ValueError, match=message):
        of(processes)


@pytest.mark.parametrize("level", [0, 1, 95])
def test_a_level_that_is_no_share_is_refused(level):
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        median_interval([[1.0, 2.0]], level)


def test_mean_and_iqr_pool_all_samples():
    processes = [[1.0, 2.0, 3.0], [4.0, 10.0]]

    assert mean(processes) == 4
    assert iqr(processes) == 2


def test_a_loop_against_itself_is_called_different_about_one_time_in_twenty():
    rng = np.random.default_rng(6)
    calls = [verdict(paired_ratio([lognormal(rng, 30)], [lognormal(rng, 30)])) for _ in range(4000)]

    assert 0.025 <= 1 - calls.count("no difference shown") / 4000 <= 0.076
    assert abs(calls.count("faster") - calls.count("slower")) < 60  # and is not partial to one arm


@pytest.mark.parametrize("slowdown", [0.9, 1.01, 1.02, 1.05, 1.1])
def test_ratio_of_pairs_recovers_a_slowdown_that_unpaired_medians_lose(slowdown):
    """Both arms of a round share the host's state, which varies by 20 %; their own noise is 0.5 %."""
    rng = np.random.default_rng(7)
    host = [rng.lognormal(0, 0.2, 40) for _ in range(3)]
    a = [slowdown * h * rng.lognormal(0, 0.005, 40) for h in host]
    b = [h * rng.lognormal(0, 0.005, 40) for h in host]
    found = paired_ratio(a, b)

    assert found.median == pytest.approx(slowdown, abs=max(0.005, found.half_width))
    assert verdict(found) == ("slower" if slowdown > 1 else "faster")
    assert verdict(paired_ratio(b, a)) == ("faster" if slowdown > 1 else "slower")
    separate = [median_interval(a), median_interval(b)]
    assert min(i.half_width for i in separate) > 2 * found.half_width


def test_pairs_without_a_partner_are_left_out():
    found = paired_ratio([[2.0, 2.0, 9.0], [4.0], [7.0]], [[1.0, 1.0], [2.0, 5.0]])

    assert found == Interval(2.0, 2.0, 2.0, 3)


def test_verdict_needs_the_whole_interval_on_one_side_and_more_than_one_pair():
    assert verdict(Interval(0.9, 0.8, 0.99, 30)) == "faster"
    assert verdict(Interval(1.1, 1.01, 1.2, 30)) == "slower"
    assert verdict(Interval(0.9, 0.8, 1.0, 30)) == "no difference shown"
    assert verdict(Interval(0.5, 0.5, 0.5, 1)) == "no difference shown"


def test_target_is_a_share_of_the_median_and_never_reached_by_one_sample():
    assert reached(Interval(50.0, 49.0, 51.0, 8), 0.02)
    assert not reached(Interval(50.0, 49.0, 51.0, 8), 0.019)
    assert not reached(Interval(50.0, 50.0, 50.0, 1), 0.1)


def test_spread_keeps_processes_and_rounds_apart():
    rng = np.random.default_rng(8)
    steady = [rng.lognormal(0, 0.03, 400) for _ in range(5)]
    one_slow = [*steady[:4], 2 * steady[4]]

    assert spread(steady).within == pytest.approx(0.03, rel=0.15)
    assert spread(steady).between == pytest.approx(0, abs=0.01)
    assert spread(one_slow).within == pytest.approx(0.03, rel=0.15)
    assert spread(one_slow).between == pytest.approx(np.std([1, 1, 1, 1, 2], ddof=1), rel=0.05)
    assert spread(steady[:1]).between is None


def noise(rng, n, share):
    return 1 + share * rng.standard_normal(n)


@pytest.mark.parametrize("n", [5, 8, 30, 100])
def test_a_steady_series_is_rarely_called_drifting(n):
    rng = np.random.default_rng(9)

    assert sum(not drift(noise(rng, n, 0.05)).settled for _ in range(400)) / 400 < 0.05


@pytest.mark.parametrize("n", [20, 60, 1000])
@pytest.mark.parametrize("rise", [0.15, -0.15])
def test_a_series_that_rises_or_falls_by_15_percent_never_settles(rise, n):
    rng = np.random.default_rng(10)
    series = [noise(rng, n, 0.02) * np.linspace(1, 1 + rise, n) for _ in range(50)]
    found = [drift(samples) for samples in series]

    assert not any(d.settled for d in found)
    assert np.median([d.change for d in found]) == pytest.approx(rise, abs=0.03)
    assert f"{'rises' if rise > 0 else 'falls'} by" in " ".join(d.reason for d in found)


def test_a_change_of_level_is_found_where_it_is():
    rng = np.random.default_rng(11)
    found = drift(noise(rng, 60, 0.01) * np.where(np.arange(60) < 40, 1.0, 1.1))

    assert not found.settled
    assert found.reason.startswith("shifts by +")
    assert found.reason.endswith("after sample 40 of 60")
    assert found.change == pytest.approx(0.1, abs=0.01)


def test_a_drift_too_small_to_matter_is_settled():
    rng = np.random.default_rng(12)
    found = drift(noise(rng, 200, 0.001) * np.linspace(1, 1.02, 200))

    assert found.settled
    assert found.change == pytest.approx(0.02, abs=0.005)


def test_drift_says_when_it_cannot_tell():
    assert drift([1.0, 1.1, 1.2]).reason == "too few samples to tell: 3, at least 5 are needed"
    assert drift([2.0] * 9).settled
    assert not drift([1.0, 1.04, 1.08, 1.12, 1.16]).settled
    with pytest.raises(ValueError, match="got nan"):
        drift([1.0, float("nan")])
