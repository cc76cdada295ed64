"""The self-checks on fake clocks and synthetic records: they pass where the harness is right, and fail otherwise."""

from __future__ import annotations

import json
import math
import random
from functools import lru_cache
from itertools import count

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from overhead import cli
from overhead.harness import comparisons, experiments, self_check, synthetic
from overhead.harness.experiments import PAIRS, SHARES, Sizes
from overhead.loops.base import Op, nothing_to_wait_for
from overhead.machine import disturbance
from overhead.machine import timer as timers
from overhead.measure import clock as timing
from overhead.measure.clock import Arm, Slowed
from overhead.measure.session import PRESETS, Session
from overhead.records import stats
from overhead.records.record import Record, Samples, Timing, without_clock

NAMES = [
    "a-a", *(f"injection-{percent}" for percent in SHARES), "coverage", "unsynchronised", "load", "timer",
]  # fmt: skip


class FakeHost:
    """A clock, and a loop that takes time on it: `takes(step)` nanoseconds for the step that is the nth so far."""

    def __init__(self, takes):
        self.takes, self.at, self.step = takes, 0, 0

    def now(self):
        self.at += 40  # reading costs
        return self.at

    def run(self, state, steps):
        for _ in range(steps):
            self.at += int(self.takes(self.step))
            self.step += 1
        return state

    def block(self, state):
        pass


class InOrder(random.Random):
    """No chance at all: always the first arm first."""

    def sample(self, population, k, **_):
        return list(population)[:k]


def noisy(drift=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return lambda step: 1e4 * math.exp(drift * step) * rng.lognormal(0, 0.02)


def record(op, /, loop="numpy", status="ok", reason=None, timed=True, **arms):
    """A record whose arms hold series of seconds, one a process."""
    samples = [
        Samples(clock=side, steps=1, process=process, round=list(range(len(series))), ns=[int(1e9 * s) for s in series])
        for side, processes in arms.items()
        for process, series in enumerate(processes)
    ]
    return Record(
        host="local", notebook="self-check", status=status, reason=reason, loop=loop, device="cpu", op=op,
        timing=Timing(samples=samples) if timed else None,
    )  # fmt: skip


def against_itself(fake, shuffle, comparisons=400):
    arm = Arm(fake, 1)
    _, a, b = timing.alternate((arm, arm), None, PAIRS * comparisons, shuffle, fake.now)
    return [record("a-a", a=[[ns * 1e-9 for ns in a]], b=[[ns * 1e-9 for ns in b]])]


def with_slowdown(share, seed=0, pairs=120, steps=6):
    fake = FakeHost(noisy(seed=seed))
    arms = (Arm(fake, steps), Arm(Slowed(fake, share, fake.now), steps))
    _, a, b = timing.alternate(arms, None, pairs, random.Random(seed), fake.now)
    return [s * 1e-9 for s in a], [s * 1e-9 for s in b]


# A loop against itself


@pytest.mark.parametrize("drift", [0.0, 1e-4, -1e-4], ids=["steady", "slowing", "speeding up"])
def test_a_loop_against_itself_passes_however_the_host_drifts(drift):
    found = self_check.a_a(against_itself(FakeHost(noisy(drift)), random.Random(1)), [])

    assert found.passed, found.line()
    assert found.low <= 0.05 <= found.high


def test_without_chance_in_the_order_a_drift_is_taken_for_a_difference():
    found = self_check.a_a(against_itself(FakeHost(noisy(drift=2e-3)), InOrder(), 200), [])

    assert not found.passed
    assert found.figure > 0.076


def test_arms_that_differ_fail_as_arms_that_do_not():
    rng = np.random.default_rng(3)
    a = rng.lognormal(0, 0.01, 1000 * PAIRS)

    assert not self_check.a_a([record("a-a", a=[a], b=[a * 1.01 * rng.lognormal(0, 0.005, a.size)])], []).passed
    assert not self_check.a_a([record("a-a", a=[a], b=[a])], []).passed  # never called different is no 5 % level


def test_fresh_processes_stand_beside():
    rng = np.random.default_rng(4)
    levels = rng.lognormal(0, 0.2, (2, 10))  # of each process's whole life
    arms = [[level * rng.lognormal(0, 0.01, PAIRS) for level in arm] for arm in levels]
    fresh = [record("fresh", a=arms[0]), record("fresh", b=arms[1])]

    one, five = (comparisons.in_fresh_processes(fresh, count) for count in (1, 5))

    assert len(one) == 10
    assert len(five) == 2
    assert comparisons.different(one) >= 8  # within a process the noise is small, and says nothing of the next process
    assert comparisons.different(five) <= 1
    said = self_check.a_a(against_itself(FakeHost(noisy()), random.Random(1)), fresh).says
    assert f"{comparisons.different(one)} of 10 where each has 1 fresh process" in said


# Slowdowns


@pytest.mark.parametrize("percent", SHARES)
def test_an_injected_slowdown_is_recovered(percent):
    trials = [with_slowdown(percent / 100, seed) for seed in range(10)]
    records = [record(f"injection-{percent} {n}", a=[a], b=[b]) for n, (a, b) in enumerate(trials, 1)]

    found = self_check.injection(records, percent)

    assert found.passed, found.line()
    assert found.low < percent / 100 < found.high


@pytest.mark.parametrize(("share", "claimed"), [(0.0, 1), (0.02, 10), (-0.02, 2)])
def test_a_slowdown_that_is_not_there_is_not_recovered(share, claimed):
    trials = [with_slowdown(max(share, 0), seed) for seed in range(10)]
    if share < 0:
        trials = [(b, a) for a, b in trials]
    records = [record(f"injection-{claimed} {n}", a=[a], b=[b]) for n, (a, b) in enumerate(trials, 1)]

    assert not self_check.injection(records, claimed).passed


def test_trials_are_those_of_their_slowdown_in_order():
    made = [
        record(f"injection-1{more} {n}", a=[[1.0, 1.0]], b=[[n + 0.0] * 2]) for more in ("", "0") for n in (2, 10, 1)
    ]

    assert [ratio.median for ratio in comparisons.trials(made, "injection-1")] == [1, 2, 10]


# Coverage, load, devices


def test_intervals_of_synthetic_samples_cover():
    found = self_check.coverage(400)

    assert found.passed, found.line()
    assert found.n == 400


def test_intervals_that_are_too_narrow_do_not_cover(monkeypatch):
    right = stats.median_interval
    monkeypatch.setattr(stats, "median_interval", lambda series: right(series, 0.8))

    assert not self_check.coverage(200).passed


@pytest.mark.parametrize("name", synthetic.samples())
def test_the_true_median_of_synthetic_samples_is_known(name):
    draw, truth = synthetic.samples()[name]
    rng = np.random.default_rng(5)
    medians = [np.median(series) for _ in range(4000) for series in draw(rng)]
    many = np.median(medians)

    assert many == pytest.approx(truth, rel=0.03)


def load_records(together, apart, quiet=1.25):
    rng = np.random.default_rng(6)

    def arms(ratio):
        a = rng.lognormal(0, 0.001, 30)
        return {"a": [a], "b": [a * ratio]}

    return [
        record("load quiet", **arms(quiet)),
        *(record(f"load interleaved {n}", **arms(r)) for n, r in enumerate(together, 1)),
        *(record(f"load one-after-the-other {n}", **arms(r)) for n, r in enumerate(apart, 1)),
    ]


@pytest.mark.parametrize(
    ("together", "apart", "passed"),
    [
        ([1.25, 1.26], [2.5, 0.8], True),
        ([1.25, 1.30], [2.5, 0.8], False),  # interleaved moves by 4 %
        ([1.25, 1.26], [2.5, 1.3], False),  # the load did not matter, so nothing was shown
    ],
)
def test_beside_a_load_only_one_way_of_comparing_may_move(together, apart, passed):
    found = self_check.load(load_records(together, apart))

    assert found.passed == passed, found.line()
    assert "one after the other" in found.says


def test_a_contestant_that_was_given_a_time_was_not_caught():
    refused = {"status": "failed", "reason": "returned before the device was done"}
    fake, honest = "overhead.harness.fake_device:Unsynchronised", "overhead.harness.fake_device:Synchronised"
    caught = record(None, fake, timed=False, **refused)
    fair = record(None, honest, wall=[[0.05]])

    assert self_check.unsynchronised([caught, caught, fair]).passed
    assert not self_check.unsynchronised([caught, record(None, fake, **refused, wall=[[1e-5]]), fair]).passed
    assert not self_check.unsynchronised([caught, record(None, fake, wall=[[1e-5]]), fair]).passed
    assert not self_check.unsynchronised([caught, record(None, honest, timed=False, **refused)]).passed


def test_real_unsynchronised_workers_are_refused_and_an_honest_one_is_timed():
    bench = Session(PRESETS["quick"], {"host": "local", "notebook": "test"}, force=True)

    found = self_check.unsynchronised(experiments.unsynchronised(bench, Sizes(fakes=1)))

    assert found.passed, found.line()


def test_an_experiment_that_failed_says_why():
    broken = [record(None, status="failed", reason="out of memory", timed=False)]

    for found in (
        self_check.a_a(broken, broken),
        self_check.injection(broken, 5),
        self_check.load(broken),
    ):
        assert not found.passed
        assert found.figure is None
        assert "out of memory" in found.line()


# The clock


@given(stuck=st.integers(0, 60))
def test_a_clock_that_stands_still_at_first_gives_no_zero_infinity_or_nan(stuck):
    nothing = [Op("nothing", "none", nothing_to_wait_for, nothing_to_wait_for)] * 2
    fake = FakeHost(lambda step: 0)
    values = [
        *(ns for op in timing.measure_ops(nothing, 5, synthetic.standing_clock(stuck)) for ns in op),
        *timing.measure_unread(nothing, 5, synthetic.standing_clock(stuck)),
        timers.pair_cost_ns(50, synthetic.standing_clock(stuck)),
        timers.resolution_ns(50, synthetic.standing_clock(stuck)),
        *timing.measure(fake, None, 1, synthetic.standing_clock(stuck))[1][1:],  # type: ignore[arg-type]
        *timers.measured(synthetic.standing_clock(stuck)),
    ]

    assert all(math.isfinite(value) and value > 0 for value in values)


def test_a_coarse_clock_gives_at_least_its_step():
    readings = count()
    fake = FakeHost(lambda step: 0)

    _, sample = timing.measure(fake, None, 1, lambda: 1000 * (next(readings) // 40))  # type: ignore[arg-type]

    assert sample.wall_ns >= 1000
    assert sample.dispatch_ns >= 1


def test_a_clock_that_never_moves_is_named(monkeypatch):
    monkeypatch.setattr(timers, "READINGS", 1000)

    with pytest.raises(timers.ClockStandsStill, match="must move within 1,000 readings, got 7 ns"):
        timers.measured(lambda: 7)


def test_the_clock_s_cost_is_taken_off_short_ops_only():
    assert timers.net([150.0, 250.0], 50, 100) == [100.0, 200.0]
    assert timers.net([9_999.0], 50, 100) == [9_949.0]
    assert timers.net([10_000.0], 50, 100) == [10_000.0]  # a hundred pairs
    assert timers.net([50.0, 20.0], 50, 100) == [0.5, 0.2]  # too short for this clock, but not nothing
    assert timers.net([], 50, 100) == []


def test_a_record_that_knows_its_clock_shows_ops_without_it():
    made = record("z1", op=[[150e-9, 250e-9]], unread=[[150e-9]])
    timer = {"resolution_ns": 1, "pair_cost_ns": 100.0, "empty_ns": 50.0}
    timed = Record.model_validate({**made.as_json(), "timer": timer})

    assert without_clock(timed)[0] == pytest.approx([100e-9, 200e-9])
    assert timed.processes("unread")[0] == pytest.approx([150e-9])
    assert without_clock(made)[0] == pytest.approx([150e-9, 250e-9])


def test_the_timer_holds_a_standing_clock_against_the_harness(monkeypatch):
    assert "gives times above 0" in self_check.timer().says

    monkeypatch.setattr(timing, "measure_unread", lambda *_: [0])

    found = self_check.timer()
    assert not found.passed
    assert "gives a time that is none" in found.says


# The battery


@lru_cache(maxsize=1)
def perfect_host():
    """What the experiments would find on a fake host without disturbance, by their names."""
    trials = {p: [with_slowdown(p / 100, seed) for seed in range(10)] for p in SHARES}
    injected = [
        record(f"injection-{p} {n}", a=[a], b=[b]) for p, found in trials.items() for n, (a, b) in enumerate(found, 1)
    ]
    refused = {"status": "failed", "reason": "returned before the device was done"}
    return {
        "in_one_process": [*against_itself(FakeHost(noisy()), random.Random(1)), *injected],
        "in_fresh_processes": [record("fresh", a=[[1.0] * PAIRS] * 5, b=[[1.0] * PAIRS] * 5)],
        "beside_a_load": load_records([1.25], [2.5]),
        "unsynchronised": [
            record(None, "overhead.harness.fake_device:Unsynchronised", timed=False, **refused),
            record(None, "overhead.harness.fake_device:Synchronised", wall=[[0.05]]),
        ],
    }


@pytest.fixture
def synthetic_experiments(monkeypatch):
    """The battery on a perfect fake host, with fewer synthetic samples."""
    for name, records in perfect_host().items():
        monkeypatch.setattr(experiments, name, lambda *_, found=records: found)
    whole = self_check.coverage
    monkeypatch.setattr(self_check, "coverage", lambda: whole(100))


def test_the_battery_has_the_properties_that_the_design_names(synthetic_experiments):
    found = self_check.run(lambda line: None)

    assert [p.name for p in found] == NAMES
    assert [p.name for p in found if not p.passed and p.name != "timer"] == []  # the timer is real, on a busy host
    document = json.loads(json.dumps(self_check.report(found), allow_nan=False))
    for entry in document["properties"]:
        assert {"name", "passed", "figure", "low", "high"} <= entry.keys()
        assert entry["low"] <= entry["figure"] <= entry["high"]


def test_the_command_prints_a_line_a_property(synthetic_experiments, monkeypatch):
    good = self_check.Property("timer", True, 1.0, 0.9, 1.1, "ns", 5, "a pair")
    monkeypatch.setattr(self_check, "timer", lambda: good)

    shown = CliRunner().invoke(cli.cli, ["bench", "--self-check"])
    document = CliRunner().invoke(cli.cli, ["bench", "--self-check", "--json"])

    assert shown.exit_code == 0, shown.output
    assert [line.split()[:2] for line in shown.stdout.splitlines()] == [[name, "pass"] for name in NAMES]
    assert [p["name"] for p in json.loads(document.stdout)["properties"]] == NAMES


def test_the_command_fails_where_a_property_does_not_hold(synthetic_experiments, monkeypatch):
    bad = self_check.Property("timer", False, 1.0, 0.9, 1.1, "ns", 5, "a pair")
    monkeypatch.setattr(self_check, "timer", lambda: bad)

    shown = CliRunner().invoke(cli.cli, ["bench", "--self-check"])

    assert shown.exit_code == 1
    assert "1 of 9 properties do not hold: timer" in shown.stderr


# The host during a run

QUIET = disturbance.State(100.0, 50.0, 1.0, 0.0, 0.0, 0, 2000.0, 0.1)


@pytest.mark.parametrize(
    ("change", "own_s", "says"),
    [
        ({}, 0.0, None),
        ({"busy_s": 60.0}, 10.0, None),  # ours
        ({"busy_s": 60.0}, 0.0, "other processes used"),
        ({"steal_s": 3.0}, 0.0, "steal time"),
        ({"throttled_s": 0.5}, 0.0, "the cgroup's quota held us back 5%"),
        ({"memory_waits_s": 0.5}, 0.0, "tasks waited for memory 5%"),
        ({"swapped_in_bytes": 20_000_000}, 0.0, "20 MB were swapped in"),
        ({"frequency_mhz": 1500.0}, 0.0, "the CPU's frequency changed by -25%"),
        ({"frequency_mhz": None}, 0.0, None),
        ({"load_average": 9.0}, 0.0, None),  # a fact of the last minute, which may have been ours
    ],
)
def test_what_disturbs_a_run_is_named(monkeypatch, change, own_s, says):
    monkeypatch.setattr(disturbance, "_affinity", lambda: {0, 1})
    after = QUIET._replace(at_s=110.0)._replace(**change)

    seen = disturbance.Disturbance()
    found = seen.between(QUIET, after, own_s)

    assert [text for text in found if says and says in text] == found
    assert bool(found) == bool(says)
    assert {"steal_share", "others_share", "load_average", "frequency_mhz"} <= seen.facts.keys()


def test_the_state_of_this_host_can_be_read():
    seen = disturbance.Disturbance()
    seen.start(0.0)

    assert seen.found(0.0) == []  # too short a run to say anything
    assert disturbance.state().at_s > 0
    assert disturbance.pressure("memory") >= 0
    assert 0 <= disturbance.stolen_share() < 1
