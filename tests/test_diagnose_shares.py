"""Shares, verdicts and advice from samples of a step whose mixture is known by construction."""

import numpy as np
import pytest

from overhead.diagnose.interventions import (
    CALLS,
    DOUBLED,
    HALVED,
    INPUT,
    INTERVENTIONS,
    MEMORY,
    ONE_CORE,
    SPIN,
    Condition,
)
from overhead.diagnose.session import Measured, Sample
from overhead.diagnose.shares import LIMITS, elasticities, shares
from overhead.diagnose.verdict import CANNOT_TELL, advice, verdict

ROUNDS = 10
COPY_SLOWS = 1.5  # a copy beside a competitor for memory, times its time beside one that computes
STEP_NS = 10e6


def a_step(
    mixture: dict[str, float], noise: float = 0.01, fixed: bool = False, contrast: float = COPY_SLOWS
) -> Measured:
    """What two cores would show of a step of `STEP_NS` without its input, whose products use both."""
    rng = np.random.default_rng(1)
    whole = 1 / (1 - mixture.get("input", 0))
    part = {limit: share * whole * STEP_NS for limit, share in mixture.items()}

    def sample(c: Condition) -> Sample:
        size = 1.0 if fixed else c.times
        arithmetic = part.get("arithmetic", 0) * size * (2 if c.one_core else 1)
        memory = part.get("memory", 0) * size * (contrast if c.competitor == "memory" else 1)
        busy = part.get("dispatch", 0) + arithmetic + memory + c.spin_ns
        waits = part.get("wait", 0) + (part.get("input", 0) if c.pipeline else 0)
        off = rng.lognormal(0, noise)
        return Sample((busy + waits) * off, busy * off, c.spin_ns)

    arms = {name: INTERVENTIONS[name] for name in (HALVED, DOUBLED, ONE_CORE, MEMORY, SPIN)}
    if "input" in mixture:
        arms[INPUT] = INTERVENTIONS[INPUT]
    pairs = {
        name: [
            (sample(arm.changed._replace(spin_ns=2_000_000 if name == SPIN else 0)), sample(arm.reference))
            for _ in range(ROUNDS)
        ]
        for name, arm in arms.items()
    }
    beyond = part.get("arithmetic", 0) + part.get("memory", 0) + part.get("wait", 0)
    return Measured(pairs=pairs, copies=[(contrast, 1.0)] * ROUNDS, beyond_ns=beyond, calls=100, cores=2)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("limit", LIMITS)
def test_a_pure_step_is_told_with_certainty(limit, fixed):
    mixture = {limit: 1.0} if limit != "input" else {"input": 0.9, "arithmetic": 0.1}

    found = verdict(shares(a_step(mixture, fixed=fixed)))

    assert found == (f"{limit}-bound", limit, True)


@pytest.mark.parametrize("first", LIMITS)
@pytest.mark.parametrize("second", LIMITS)
def test_of_a_mixture_the_shares_are_recovered(first, second):
    if first == second:
        return
    found = np.median(shares(a_step({first: 0.6, second: 0.4})).of, axis=0)

    assert found[LIMITS.index(first)] == pytest.approx(0.6, abs=0.04)
    assert found[LIMITS.index(second)] == pytest.approx(0.4, abs=0.04)


def test_two_that_lead_together_are_both_named():
    found = verdict(shares(a_step({"wait": 0.5, "memory": 0.5})))

    assert found.text in ("mixed: wait-bound or memory-bound", "mixed: memory-bound or wait-bound")
    assert not found.certain


def test_noise_takes_the_certainty_away():
    found = verdict(shares(a_step({"dispatch": 0.4, "arithmetic": 0.3, "memory": 0.3}, noise=0.3)))

    assert not found.certain


def test_three_that_are_equal_cannot_be_told():
    found = verdict(shares(a_step({"dispatch": 1 / 3, "wait": 1 / 3, "memory": 1 / 3})))

    assert found.text == CANNOT_TELL


def test_without_a_contrast_memory_and_arithmetic_are_not_parted():
    found = verdict(shares(a_step({"memory": 1.0}, contrast=1.0)))

    assert found.text == "mixed: arithmetic-bound or memory-bound"
    assert not found.certain


def test_work_of_a_fixed_size_is_not_taken_for_calls():
    """Doubling the batch changes nothing of it, which alone would prove nothing."""
    found = verdict(shares(a_step({"arithmetic": 1.0}, fixed=True)))

    assert found.text == "arithmetic-bound"


def test_a_host_that_hides_behind_its_device_is_no_limit():
    measured = a_step({"dispatch": 1.0})
    measured.pairs[SPIN] = [(Sample(b.ns, b.cpu_ns, a.spun_ns), b) for a, b in measured.pairs[SPIN]]

    found = np.median(shares(measured).of, axis=0)

    assert found[LIMITS.index("dispatch")] < 0.01


def test_elasticities_are_those_of_the_construction():
    measured = a_step({"arithmetic": 0.5, "memory": 0.5})
    measured.pairs[CALLS] = measured.pairs[SPIN]

    found = {row.intervention: row for row in elasticities(measured)}

    assert found[DOUBLED].median == pytest.approx(1, abs=0.05)
    assert found[MEMORY].median == pytest.approx(1 / 3, abs=0.05)  # on one core the products take twice as long
    assert found[ONE_CORE].median == pytest.approx(np.log2(1.5), abs=0.05)
    assert found[SPIN].median == pytest.approx(1, abs=0.1)
    assert all(row.low <= row.median <= row.high for row in found.values())


def test_the_gain_of_a_larger_batch_is_that_of_the_calls_spread():
    found = shares(a_step({"dispatch": 0.6, "arithmetic": 0.4}))

    change = advice(found, "dispatch", has_pipeline=False)

    assert change.gain == pytest.approx(4 / (0.6 + 0.4 * 4), rel=0.05)
    assert change.low <= change.gain <= change.high
    assert change.after.times == 4


def test_the_gain_of_input_made_ready_is_that_of_the_longer_of_the_two():
    found = shares(a_step({"input": 0.6, "arithmetic": 0.4}))

    change = advice(found, "input", has_pipeline=True)

    assert change.gain == pytest.approx(1 / 0.6, rel=0.05)
    assert change.after.prefetch


def test_one_thread_is_advised_where_threads_hinder():
    measured = a_step({"arithmetic": 1.0})
    measured.pairs[ONE_CORE] = [(Sample(b.ns / 2, b.cpu_ns / 2, 0), b) for _, b in measured.pairs[ONE_CORE]]

    change = advice(shares(measured), "arithmetic", has_pipeline=False)

    assert change.change.startswith("one thread")
    assert change.gain == pytest.approx(2, rel=0.05)
    assert change.after.one_core


def test_nothing_is_advised_where_nothing_leads():
    assert advice(shares(a_step({"dispatch": 1.0})), None, has_pipeline=False) is None


def test_nothing_is_certain_beside_other_work_and_nothing_told_from_few_rounds():
    busy, short = a_step({"memory": 1.0}), a_step({"memory": 1.0})
    busy.disturbed = ["other processes used 50% of the cores"]
    short.pairs = {name: pairs[:4] for name, pairs in short.pairs.items()}

    assert verdict(shares(busy)) == ("memory-bound", "memory", False)
    assert verdict(shares(short)).text == CANNOT_TELL
