"""The zeros among the pixels: counts that the book states, and a bound that is the dense one where there are none."""

from __future__ import annotations

import numpy as np
import pytest

from overhead.problem import bounds, data, nonzeros
from overhead.problem.workload import Workload


def test_four_fifths_of_mnist_are_zero() -> None:
    workload = Workload()
    found = nonzeros.count(data.for_workload(workload).x, workload)

    assert found.images == 48_000
    assert found.per_image == pytest.approx(150, abs=0.5)
    assert found.share == pytest.approx(0.191, abs=0.001)
    assert found.ever_used == 713
    assert found.rows == pytest.approx(457, abs=0.5)


def test_without_zeros_the_bound_is_the_dense_one() -> None:
    workload = Workload(layers=(7, 5, 3), images=70, batch_size=32, remainder="keep")
    found = nonzeros.count(np.ones((70, 7), np.float32), workload)

    assert (found.share, found.rows, found.ever_used) == (1, 7, 7)
    assert nonzeros.step_flops(workload, found) == bounds.step_flops(workload)
    assert nonzeros.step_bytes(workload, found) == bounds.step_bytes(workload) + 2 * 32 * 7


def test_images_without_a_pixel_leave_the_second_layer() -> None:
    workload = Workload(layers=(7, 5, 3), images=64, batch_size=32)
    found = nonzeros.count(np.zeros((64, 7), np.float32), workload)

    assert (found.per_image, found.rows, found.ever_used) == (0, 0, 0)
    assert nonzeros.step_flops(workload, found) == 3 * 2 * 32 * 5 * 3
    assert nonzeros.step_bytes(workload, found) == 4 * (32 + 2 * (5 + 5 * 3 + 3))
