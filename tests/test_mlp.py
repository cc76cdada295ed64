"""The oracle is checked before anything is checked against it."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.problem import mlp
from overhead.problem.mlp import Layer, Params
from overhead.problem.workload import Workload


def small(layers=(6, 5, 4, 3), batch=7, seed=0) -> tuple[Params, np.ndarray, np.ndarray]:
    """Parameters with non-zero biases, inputs (batch, inputs) and labels (batch,), in float64."""
    rng = np.random.default_rng(seed)
    params = mlp.astype(mlp.init(Workload(layers=layers, images=batch, batch_size=batch, seed=seed)), np.float64)
    params = tuple(Layer(w, rng.normal(size=b.shape)) for w, b in params)
    return params, rng.normal(size=(batch, layers[0])), rng.integers(0, layers[-1], batch).astype(np.int32)


def replaced(params: Params, tensor: int, index: int, value: float) -> Params:
    """A copy of `params` with one number of one tensor replaced."""
    tensors = [t.copy() for t in mlp.flat(params)]
    tensors[tensor].flat[index] = value
    return mlp.unflat(tensors)


@pytest.mark.parametrize("layers", [(6, 3), (6, 5, 3), (6, 5, 4, 3)])
@pytest.mark.parametrize("batch", [1, 7])
def test_gradients_are_those_of_finite_differences(layers, batch):
    params, x, y = small(layers, batch)
    value, found = mlp.gradients(params, x, y)
    step = 1e-6

    assert value == pytest.approx(mlp.loss(params, x, y), rel=1e-12)
    for i, (tensor, gradient) in enumerate(zip(mlp.flat(params), mlp.flat(found), strict=True)):
        assert gradient.shape == tensor.shape
        for j, at in enumerate(tensor.ravel().tolist()):
            above = mlp.loss(replaced(params, i, j, at + step), x, y)
            below = mlp.loss(replaced(params, i, j, at - step), x, y)
            assert gradient.flat[j] == pytest.approx((above - below) / (2 * step), rel=1e-5, abs=1e-8)


def test_the_gradient_of_a_batch_is_the_mean_over_its_images():
    # so a short last batch divides by its own length, and weights its images more
    params, x, y = small(batch=3)
    each = [mlp.flat(mlp.gradients(params, x[i : i + 1], y[i : i + 1])[1]) for i in range(3)]
    _, batch = mlp.gradients(params, x, y)

    for tensor, parts in zip(mlp.flat(batch), zip(*each, strict=True), strict=True):
        np.testing.assert_allclose(tensor, np.mean(parts, axis=0), rtol=1e-12, atol=1e-15)


def test_the_loss_of_even_scores_is_that_of_guessing():
    params = tuple(Layer(np.zeros_like(w), np.zeros_like(b)) for w, b in small(layers=(6, 10))[0])

    assert mlp.loss(params, np.ones((4, 6)), np.arange(4, dtype=np.int32)) == pytest.approx(np.log(10))


def test_large_scores_do_not_overflow():
    params, x, y = small()
    params = (*params[:-1], Layer(params[-1].w * 1e6, params[-1].b))

    value, found = mlp.gradients(params, x, y)

    assert np.isfinite(value)
    assert all(np.isfinite(tensor).all() for tensor in mlp.flat(found))


def test_a_diverged_model_has_no_finite_loss_and_no_warning():
    params, x, y = small()
    assert not np.isfinite(mlp.loss(replaced(params, 0, 0, np.inf), x, y))


def test_accuracy_counts_the_largest_score():
    params = (Layer(np.eye(3), np.zeros(3)),)
    assert mlp.accuracy(params, np.eye(3), np.array([0, 1, 1], np.int32)) == pytest.approx(2 / 3)


def test_initial_weights_have_he_s_spread_and_biases_are_zero():
    params = mlp.init(Workload(layers=(784, 512, 256, 10)))

    for (w, b), inputs in zip(params, (784, 512, 256), strict=True):
        assert w.dtype == b.dtype == np.float32
        assert w.std() == pytest.approx((2 / inputs) ** 0.5, rel=4 / (2 * w.size) ** 0.5)  # four standard errors
        assert abs(w.mean()) < 4 * (2 / inputs / w.size) ** 0.5
        assert not b.any()


def test_initial_parameters_follow_the_seed_alone():
    first, again = mlp.init(Workload(seed=3)), mlp.init(Workload(seed=3, batch_size=64, learning_rate=1.0))
    other = mlp.init(Workload(seed=4))

    assert all(np.array_equal(a, b) for a, b in zip(mlp.flat(first), mlp.flat(again), strict=True))
    assert not np.array_equal(first[0].w, other[0].w)


def test_batches_are_views_in_order_and_end_with_the_short_one(tiny_workload, tiny_data):
    parts = list(mlp.batches(tiny_data.x, tiny_data.y, tiny_workload))

    assert [len(y) for _, y in parts] == [32] * 6 + [8]
    assert all(np.shares_memory(x, tiny_data.x) for x, _ in parts)
    np.testing.assert_array_equal(np.concatenate([y for _, y in parts]), tiny_data.y)
    dropped = tiny_workload.model_copy(update={"remainder": "drop"})
    assert [len(y) for _, y in mlp.batches(tiny_data.x, tiny_data.y, dropped)] == [32] * 6


def test_the_reference_wraps_round_the_epoch_and_repeats_itself(tiny_workload, tiny_data):
    params = mlp.init(tiny_workload)
    before = [tensor.tobytes() for tensor in mlp.flat(params)]

    runs = [list(islice(mlp.reference_steps(params, tiny_data.x, tiny_data.y, tiny_workload), 20)) for _ in range(2)]

    assert [value for value, _ in runs[0]] == [value for value, _ in runs[1]]
    assert mlp.relative_error(runs[0][-1][1], runs[1][-1][1]) == 0
    assert [tensor.tobytes() for tensor in mlp.flat(params)] == before  # the caller's stay his own
    # step 8 is the second epoch's first: by hand, from the parameters after step 7
    first = next(mlp.batches(tiny_data.x, tiny_data.y, tiny_workload))
    _, found = mlp.gradients(runs[0][6][1], first[0].astype(np.float64), first[1])
    by_hand = tuple(Layer(w - 0.1 * dw, b - 0.1 * db) for (w, b), (dw, db) in zip(runs[0][6][1], found, strict=True))
    assert mlp.relative_error(by_hand, runs[0][7][1]) < 1e-15


def test_the_reference_learns(tiny_workload, tiny_data):
    steps = mlp.reference_steps(mlp.init(tiny_workload), tiny_data.x, tiny_data.y, tiny_workload)
    *_, (_, params) = islice(steps, 10 * tiny_workload.steps)

    assert params[0].w.dtype == np.float64
    assert mlp.loss(params, tiny_data.x, tiny_data.y) < 0.5
    assert mlp.accuracy(params, tiny_data.x_val, tiny_data.y_val) > 0.7  # from 200 images; guessing gives 0.1


@given(st.floats(1e-6, 10), st.integers(0, 3))
def test_relative_error_is_that_of_the_worst_tensor(scale, tensor):
    params, *_ = small(layers=(4, 3, 2))
    tensors = [t.copy() for t in mlp.flat(params)]
    tensors[tensor] *= 1 + scale

    assert mlp.relative_error(mlp.unflat(tensors), params) == pytest.approx(scale, rel=1e-6)


def test_relative_error_does_not_depend_on_the_scale():
    params, *_ = small(layers=(4, 3, 2))
    off = replaced(params, 0, 0, 1.5)
    larger = [tuple(Layer(1e3 * w, 1e3 * b) for w, b in each) for each in (off, params)]

    assert mlp.relative_error(*larger) == pytest.approx(mlp.relative_error(off, params))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("side", [0, 1, 2])
def test_what_is_not_finite_disagrees(bad, side):
    params, *_ = small(layers=(4, 3, 2))
    pair = [replaced(params, 1, 0, bad) if side in (i, 2) else params for i in range(2)]

    assert mlp.relative_error(*pair) == np.inf


def test_zero_agrees_with_zero_alone():
    zero = (Layer(np.zeros((2, 2)), np.zeros(2)),)
    assert mlp.relative_error(zero, zero) == 0
    assert mlp.relative_error(replaced(zero, 0, 0, 1e-9), zero) == np.inf


def test_a_tensor_that_came_back_is_measured_by_its_way():
    start = (Layer(np.zeros((1, 1)), np.zeros(1)),)
    there, back = replaced(start, 1, 0, 1.0), replaced(start, 1, 0, 1e-3)
    ways = mlp.travelled(start, [there, back])

    assert ways == pytest.approx((0.0, 1.999))
    off = replaced(back, 1, 0, 1e-3 + 2e-8)
    assert mlp.relative_error(off, back) == pytest.approx(2e-5)
    assert mlp.relative_error(off, back, ways) == pytest.approx(1e-8, rel=1e-3)
    assert mlp.relative_error(start, back, ways) > 1e-4, "a bias that is not trained is still found"


def test_another_shape_or_number_of_tensors_disagrees():
    params = (Layer(np.ones((3, 3)), np.ones(3)),)
    broadcast = (Layer(np.ones((3, 3)), np.ones((1, 3))),)

    assert mlp.relative_error(broadcast, params) == np.inf
    with pytest.raises(ValueError, match="zip"):
        mlp.relative_error(params, params * 2)


def test_flat_and_unflat_are_inverse():
    params, *_ = small()
    assert mlp.unflat(mlp.flat(params)) == params
