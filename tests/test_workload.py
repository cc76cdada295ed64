"""Counts that follow from a workload, and values that are no workload."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from overhead.problem.workload import Workload

# batch size: steps with the last batch kept, with it dropped, its length; 60,000 images
STEPS = {
    32: (1875, 1875, 0),
    64: (938, 937, 32),
    128: (469, 468, 96),
    256: (235, 234, 96),
    512: (118, 117, 96),
    1024: (59, 58, 608),
    4096: (15, 14, 2656),
    8192: (8, 7, 2656),
}


def message(**values: object) -> str:
    """The one problem that the values have, with the path to it."""
    with pytest.raises(ValidationError) as caught:
        Workload(**values)  # pyright: ignore[reportArgumentType]
    (problem,) = caught.value.errors()
    return ".".join(map(str, problem["loc"])) + ": " + problem["msg"]


@pytest.mark.parametrize("batch_size", STEPS)
def test_steps_of_sixty_thousand_images(batch_size):
    kept, dropped, last = STEPS[batch_size]

    keep = Workload(batch_size=batch_size, images=60_000, remainder="keep")
    drop = Workload(batch_size=batch_size, images=60_000, remainder="drop")

    assert (keep.steps, drop.steps, keep.last_batch) == (kept, dropped, last)
    assert keep.images_seen == 60_000
    assert drop.images_seen == dropped * batch_size


def test_the_workload_of_the_article():
    workload = Workload()

    assert workload.steps == 1500
    assert workload.parameters == 101_770
    assert workload.batch_bytes == 100_352
    assert workload.is_mnist


def test_batch_4096_drops_its_last_batch_or_keeps_it():
    assert (Workload(batch_size=4096).steps, Workload(batch_size=4096).images_seen) == (11, 45_056)
    assert Workload(batch_size=4096, remainder="keep").steps == 12


@given(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from(["drop", "keep"]))
def test_batches_add_up_to_the_images_seen(images, batch_size, remainder):
    batch_size = min(images, batch_size)
    workload = Workload(batch_size=batch_size, images=images, remainder=remainder)

    short = workload.last_batch if remainder == "keep" else 0
    assert workload.steps >= 1
    assert workload.whole_batches * batch_size + short == workload.images_seen
    assert images - workload.images_seen < batch_size


@pytest.mark.parametrize("batch_size", [0, -1, 48_001, 65_536])
def test_a_batch_size_out_of_range_names_thing_limit_and_value(batch_size):
    assert f"batch_size must be between 1 and 48000 (training images), got {batch_size}" in message(
        batch_size=batch_size
    )


@pytest.mark.parametrize("value", ["32", b"32", True, np.True_, 1.5, 32.0, np.float32(32), None, [32], np.array([32])])
@pytest.mark.parametrize("name", ["batch_size", "images", "epochs", "seed"])
def test_only_a_whole_number_is_a_count(name, value):
    assert message(**{name: value}) == f"{name}: Value error, must be a whole number, got {value!r}"


NO_RATES = [0, -1, "nan", "abc", "", "inf", "-1e-3", "1e400", 10**400, math.inf, math.nan]
NO_NUMBERS = [True, np.True_, b"0.1", None, [0.1], np.array([0.1]), 1j]


@pytest.mark.parametrize("value", NO_RATES + NO_NUMBERS)
def test_only_a_finite_number_above_zero_is_a_learning_rate(value):
    expected = f"learning_rate: Value error, must be a finite number above 0, got {value!r}"
    assert message(learning_rate=value) == expected


@pytest.mark.parametrize("value", ["1e-3", "0.001", " 1.0e-3 ", 1e-3, np.float64(1e-3)])
def test_a_learning_rate_may_be_the_text_that_yaml_makes_of_it(value):
    rate = Workload(learning_rate=value).learning_rate

    assert rate == 0.001
    assert type(rate) is float  # NumPy 2 would carry a float64 scalar into every product


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8])
def test_numpy_whole_numbers_are_counts(kind):
    workload = Workload(batch_size=kind(64), layers=[kind(100), kind(16), kind(10)], seed=kind(3))  # pyright: ignore

    assert workload == Workload(batch_size=64, layers=(100, 16, 10), seed=3)
    assert all(type(size) is int for size in (workload.batch_size, workload.seed, *workload.layers))


@pytest.mark.parametrize("layers", ["784,128,10", 784, [784], [], [784, 0, 10], [784, -1], [784, True], [784.0, 10]])
def test_layers_are_two_or_more_sizes(layers):
    assert message(layers=layers).startswith("layers")


@pytest.mark.parametrize(
    "values", [{"remainder": "pad"}, {"seed": -1}, {"epochs": 0}, {"images": 0}, {"batchsize": 32}]
)
def test_other_values_are_refused_by_name(values):
    (name,) = values
    assert message(**values).startswith(f"{name}: ")


def test_a_workload_cannot_change():
    with pytest.raises(ValidationError):
        Workload().batch_size = 64  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("layers", "fits"), [((784, 10), True), ((784, 64, 64, 10), True), ((784, 11), False), ((4, 10), False)]
)
def test_which_layers_mnist_fits(layers, fits):
    assert Workload(layers=layers).is_mnist is fits


def test_parameters_of_a_deeper_model():
    assert Workload(layers=(3, 5, 4, 2)).parameters == (3 * 5 + 5) + (5 * 4 + 4) + (4 * 2 + 2)
