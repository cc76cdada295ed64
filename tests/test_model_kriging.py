"""What is left over is given back at known points less its noise, and forgotten far from all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from overhead.model import kriging

AT = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
LEFT = np.array([0.3, -0.2, 0.1])


def test_a_leftover_without_noise_is_given_back_where_it_was_found() -> None:
    weights = kriging.weights(AT, LEFT, reach=1.5, nugget=0.0)

    found = [math.log(kriging.factor(AT.tolist(), weights.tolist(), point, 1.5)) for point in AT.tolist()]

    assert found == pytest.approx(LEFT.tolist())


def test_the_noisier_a_leftover_the_less_of_it_is_kept() -> None:
    kept = []
    for nugget in (0.0, 0.5, 2.0):
        weights = kriging.weights(AT, LEFT, reach=1.5, nugget=nugget).tolist()
        kept.append(math.log(kriging.factor(AT.tolist(), weights, (0.0, 0.0), 1.5)))

    assert kept == sorted(kept, reverse=True)
    assert kept[-1] > 0


def test_nothing_is_known_far_from_every_point() -> None:
    weights = kriging.weights(AT, LEFT, reach=1.5, nugget=0.3).tolist()

    assert kriging.factor(AT.tolist(), weights, (100.0, 100.0), 1.5) == pytest.approx(1.0)
    assert kriging.factor([], [], (1.0, 2.0), 1.5) == 1.0
