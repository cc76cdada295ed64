"""The formula of a product: fitted on times that it made, it finds them again, and it beats simpler ways."""

from __future__ import annotations

import numpy as np
import pytest

import model_constants
from overhead.model.calibrate import SHAPES
from overhead.model.products import Fit, Timed, fit_layout, formula, leave_out, rivals, seconds

TRUE = model_constants.fit(m_half=6.0, n_half=12.0, k_half=20.0, near_bytes_per_s=8e10, far_bytes_per_s=2e10)


def timed(truth: Fit, noise: float = 0.0) -> list[Timed]:
    rng = np.random.default_rng(0)
    shapes = [(layout, b, o, i) for layout in ("nn", "tn", "nt") for b, i, o in SHAPES]
    return [
        Timed(layout, m, n, k, float(formula(truth, m, n, k)) * float(np.exp(noise * rng.standard_normal())))
        for layout, m, n, k in shapes
    ]


def test_a_fit_finds_times_that_the_formula_made() -> None:
    made = [x for x in timed(TRUE) if x.layout == "nn"]

    fit = fit_layout(made, threads=1)

    assert seconds(fit, 64, 128, 784) == pytest.approx(float(formula(TRUE, 64, 128, 784)), rel=0.05)
    assert np.median(np.abs(leave_out(made, threads=1))) < 0.05


def test_the_formula_beats_simpler_ways_on_products_left_out() -> None:
    made = timed(TRUE, noise=0.05)

    ours = np.concatenate([leave_out([x for x in made if x.layout == layout], 1) for layout in ("nn", "tn", "nt")])

    assert np.median(np.abs(ours)) < min(rivals(made).values())


def test_a_fit_wants_as_many_products_as_constants() -> None:
    with pytest.raises(ValueError, match="at least 8 products, got 3"):
        fit_layout(timed(TRUE)[:3], threads=1)


def test_threads_are_woken_only_above_the_switch() -> None:
    woken = TRUE.model_copy(update={"wake_s": 1e-5, "switch": 1e5})

    assert formula(woken, 8, 8, 8) == formula(TRUE, 8, 8, 8)
    assert formula(woken, 100, 100, 100) == pytest.approx(formula(TRUE, 100, 100, 100) + 1e-5)
