"""Agreement before timing: what passes, what does not, and when training counts as diverged."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.loops.numpy_ import NumpyLoop
from overhead.measure import agreement
from overhead.measure.agreement import LOSS_TOLERANCE, STEPS, TOLERANCES, Agreement, compare, diverged_at, diverged_step
from overhead.problem import data, mlp
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params
from overhead.problem.workload import Workload

LIMIT = math.log(10)  # mean loss of the constant prediction


def trained(workload: Workload, split: Split, steps: int) -> Params:
    loop = NumpyLoop("cpu")
    return loop.fetch(loop.run(loop.place(mlp.init(workload), split, workload), steps))


def test_numpy_agrees_wrapping_round_an_epoch_that_is_shorter_than_twenty_steps(tiny_workload, tiny_data):
    assert tiny_workload.steps < STEPS
    after = trained(tiny_workload, tiny_data, STEPS)
    epoch = trained(agreement.at_epoch_rate(tiny_workload), tiny_data, tiny_workload.steps)
    found = compare(after, epoch, tiny_workload, tiny_data)

    assert found.disagreement is None
    assert found.error < 1e-6
    assert found.epoch_loss_error < 1e-6


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_loop_that_trains_in_float64_is_none_of_float32(tiny_workload, tiny_data, dtype):
    """Field case N22, a `keras.json` with floatx float64: also where what is fetched was rounded in the end."""
    w = agreement.at_agreement_rate(tiny_workload)
    exact = agreement.reference(w, tiny_data).params
    other_order = tuple(Layer((p.w * (1 + 1e-16)).astype(dtype), p.b.astype(dtype)) for p in exact)
    epoch = trained(agreement.at_epoch_rate(w), tiny_data, w.steps)

    found = compare(other_order, epoch, tiny_workload, tiny_data)

    assert found.disagreement == "after 20 steps its parameters are those of float64: it must train in float32"
    assert found.error < 1e-7


@pytest.mark.parametrize("images", [640, 641, 1000])
def test_the_reference_is_the_oracle_after_twenty_steps_and_after_an_epoch(images):
    w = Workload(images=images, batch_size=32, remainder="keep")
    split = data.split(data.load_mnist(), w)
    reference = agreement.reference(w, split)
    at_epoch_rate = agreement.at_epoch_rate(w)
    steps = list(islice(mlp.reference_steps(mlp.init(w), split.x, split.y, w), STEPS))
    epoch = list(islice(mlp.reference_steps(mlp.init(w), split.x, split.y, at_epoch_rate), w.steps))

    assert mlp.relative_error(reference.params, steps[-1][1]) == 0
    assert reference.epoch_loss == mlp.loss(epoch[-1][1], split.x, split.y)


def test_rounding_is_far_from_the_tolerance_after_an_epoch_of_the_real_data():
    w = agreement.at_epoch_rate(Workload())
    split = data.for_workload(w)
    rng = np.random.default_rng(0)
    moved = tuple(Layer(p.w * (1 + 1e-6 * rng.standard_normal(p.w.shape)), p.b) for p in mlp.init(w))
    *_, (_, epoch) = islice(mlp.reference_steps(moved, split.x, split.y, w), w.steps)
    found = compare(mlp.init(w), epoch, w, split)

    assert found.epoch_loss_error < LOSS_TOLERANCE / 10


def test_an_epoch_of_smaller_batches_is_compared_at_a_smaller_rate():
    rates = [agreement.at_epoch_rate(Workload(batch_size=b)).learning_rate for b in (1, 16, 32, 4096)]
    assert rates == pytest.approx([0.01 / 32, 0.005, 0.01, 0.01])


@pytest.mark.parametrize("change", ["rate", "one step less", "one weight", "bias left out", "nan"])
def test_what_learns_something_else_disagrees(change, tiny_workload, tiny_data):
    other = tiny_workload.model_copy(update={"learning_rate": 0.099}) if change == "rate" else tiny_workload
    after = trained(other, tiny_data, STEPS - (change == "one step less"))
    if change == "one weight":
        after[0].w[400, 3] += 0.1
    if change == "bias left out":
        after = (after[0], Layer(after[1].w, np.zeros_like(after[1].b)))
    if change == "nan":
        after[1].b[0] = np.nan
    epoch = trained(agreement.at_epoch_rate(tiny_workload), tiny_data, tiny_workload.steps)
    found = compare(after, epoch, tiny_workload, tiny_data)

    assert found.disagreement is not None
    assert f"after {STEPS} steps exceeds 1e-05 (norm-wise)" in found.disagreement


@pytest.mark.parametrize("side", [1, -1])
def test_a_relu_that_rounding_decides_may_fall_either_way(side):
    w = Workload(layers=(4, 3, 2), images=64, batch_size=32)
    rng = np.random.default_rng(1)
    x = rng.random((64, 4), np.float32)
    y = rng.integers(0, 2, 64).astype(np.int32)
    start = mlp.init(w)
    unit, image = start[0].w[:, 0].astype(np.float64), x[0].astype(np.float64)
    # the last input puts the first unit a hundred millionth above or below zero for the first image
    unit[3] = (side * 1e-8 - image[:3] @ unit[:3]) / image[3]
    params = (Layer(np.column_stack([unit, start[0].w[:, 1:]]), start[0].b), start[1])

    _, plain = mlp.gradients(params, x.astype(np.float64), y)
    _, other = mlp.gradients(params, x.astype(np.float64), y, doubt=side * agreement.ROUNDING["float32"])
    _, same = mlp.gradients(params, x.astype(np.float64), y, doubt=-side * agreement.ROUNDING["float32"])

    assert mlp.relative_error(same, plain) == 0
    assert not np.allclose(other[0].w[:, 0], plain[0].w[:, 0], rtol=1e-3)
    assert np.array_equal(other[0].w[:, 1:], plain[0].w[:, 1:])


def test_the_tolerance_grows_by_what_rounding_decides(monkeypatch, tiny_workload, tiny_data):
    after = trained(tiny_workload, tiny_data, STEPS)
    sure = compare(after, after, tiny_workload, tiny_data)
    reference = agreement.reference(tiny_workload, tiny_data)
    monkeypatch.setattr(agreement, "reference", lambda *_: reference._replace(undecided=1e-4))

    assert sure.tolerance == TOLERANCES["float32"] + reference.undecided
    assert compare(after, after, tiny_workload, tiny_data).tolerance == TOLERANCES["float32"] + 1e-4


def in_tf32(x: np.ndarray) -> np.ndarray:
    """float32 rounded to the nearest number with the ten bits of fraction that TF32 has, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    kept = (bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFF_E000)
    return kept.view(np.float32)


def trained_in_tf32(workload: Workload, split: Split, steps: int) -> Params:
    """A right loop whose products have their factors rounded to TF32 and are added up in float32."""
    (w1, b1), (w2, b2) = (Layer(w.copy(), b.copy()) for w, b in mlp.init(workload))
    batches, rate = list(mlp.batches(split.x, split.y, workload)), np.float32(workload.learning_rate)
    for step in range(steps):
        x, y = batches[step % len(batches)]
        h = np.maximum(in_tf32(x) @ in_tf32(w1) + b1, 0)
        z = in_tf32(h) @ in_tf32(w2) + b2
        e = np.exp(z - z.max(axis=1, keepdims=True))
        d = (e / e.sum(axis=1, keepdims=True) - np.eye(10, dtype=np.float32)[y]) / np.float32(len(y))
        dh = (in_tf32(d) @ in_tf32(w2).T) * (h > 0)
        w2, b2 = w2 - rate * (in_tf32(h).T @ in_tf32(d)), b2 - rate * d.sum(axis=0)
        w1, b1 = w1 - rate * (in_tf32(x).T @ in_tf32(dh)), b1 - rate * dh.sum(axis=0)
    return Layer(w1, b1), Layer(w2, b2)


def test_a_right_loop_in_tf32_agrees_in_tf32_and_not_in_float32():
    workload = Workload(images=6400)
    split = data.for_workload(workload)
    after = trained_in_tf32(agreement.at_agreement_rate(workload), split, STEPS)
    epoch = trained_in_tf32(agreement.at_epoch_rate(workload), split, workload.steps)

    found = compare(after, epoch, workload, split, "tf32")

    assert found.tolerance > TOLERANCES["tf32"]  # by what a ReLU that rounding decides is worth, which is no fault
    assert found.disagreement is None
    assert compare(after, epoch, workload, split).disagreement is not None
    wrong = agreement.at_agreement_rate(workload).model_copy(update={"learning_rate": 0.12})
    assert compare(trained_in_tf32(wrong, split, STEPS), epoch, workload, split, "tf32").disagreement is not None


def test_the_epoch_is_compared_too(tiny_workload, tiny_data):
    after = trained(tiny_workload, tiny_data, STEPS)
    found = compare(after, mlp.init(tiny_workload), tiny_workload, tiny_data)  # a program that trained nothing
    assert "mean loss after one epoch is off by" in str(found.disagreement)
    assert f"more than {LOSS_TOLERANCE:g}" in str(found.disagreement)


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(allow_nan=True, allow_infinity=True))
def test_only_figures_within_both_tolerances_agree(error, loss_error):
    for tolerance in TOLERANCES.values():
        found = Agreement(STEPS, error, tolerance, loss_error)
        assert (found.disagreement is None) == (error <= tolerance and loss_error <= LOSS_TOLERANCE)


def test_loops_are_compared_at_one_rate_whatever_the_workload_s_is(tiny_workload, tiny_data):
    wild = tiny_workload.model_copy(update={"learning_rate": 1e3})
    assert mlp.relative_error(
        agreement.reference(wild, tiny_data).params, agreement.reference(tiny_workload, tiny_data).params
    ) == 0  # fmt: skip
    assert agreement.at_agreement_rate(wild).learning_rate == agreement.RATE


# Diverged

fine = st.floats(0, LIMIT)
wild = st.floats(min_value=10 * LIMIT, exclude_min=True) | st.just(math.nan)


@given(st.lists(fine, min_size=1, max_size=50))
def test_an_epoch_below_the_constant_prediction_has_not_diverged(losses):
    assert diverged_step(losses, 10) is None


@given(st.lists(fine, max_size=20), st.lists(wild, min_size=1, max_size=20))
def test_an_epoch_that_ends_wild_diverged_at_its_first_wild_loss(calm, lost):
    losses = [*calm, *lost]
    step = diverged_step(losses, 10)
    mean = math.fsum(loss / len(losses) for loss in losses) if all(map(math.isfinite, losses)) else math.inf
    assert step == (len(calm) if mean > LIMIT else None)


@given(st.lists(wild, min_size=1, max_size=5), st.lists(fine, min_size=1, max_size=5))
def test_an_epoch_that_recovers_diverged_as_a_whole(lost, calm):
    losses = [*lost, *calm]
    mean = math.fsum(loss / len(losses) for loss in losses) if all(map(math.isfinite, losses)) else math.inf
    assert diverged_step(losses, 10) == (0 if mean > LIMIT else None)


def test_a_slow_spike_is_no_divergence():
    assert diverged_step([1.0] * 99 + [50.0], 10) is None


def test_a_loss_that_stays_where_it_began_is_no_divergence():
    high = [1.2 * LIMIT] * 20  # He's start may lie above the constant prediction's loss

    assert diverged_step(high, 10, began=1.2 * LIMIT) is None
    assert diverged_step([*high, 20 * LIMIT], 10, began=1.2 * LIMIT) == 20
    assert diverged_step([*high, math.nan], 10, began=1.2 * LIMIT) == 20
    assert diverged_step(high, 10) == 0  # where it began is not known


@pytest.mark.parametrize(("rate", "diverges"), [(1e-7, False), (0.1, False), (0.5, False), (1e4, True), (1e30, True)])
def test_rates_that_diverge_are_found(rate, diverges, tiny_data):
    w = Workload(images=200, epochs=2, learning_rate=rate)
    step = diverged_at(w, tiny_data)
    assert (step is not None) == diverges
    assert step is None or 0 <= step < w.steps
