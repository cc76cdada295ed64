"""Constants of a host that does not exist: round figures, so that a test can say what a prediction must be."""

from __future__ import annotations

from typing import Any

from overhead.machine import host
from overhead.model.constants import Constants, Frame, Library
from overhead.model.products import Fit

FLOPS_PER_S = 1e11
OFF = (-0.1, -0.05, 0.0, 0.05, 0.1)


def fit(**other: Any) -> Fit:
    """A product takes its FLOPs over `FLOPS_PER_S`; its call is counted as an operator."""
    values = {
        "a_s": 1e-6, "flops_per_s": FLOPS_PER_S, "m_half": 0.1, "n_half": 0.1, "k_half": 0.1, "near_bytes_per_s": 1e12,
        "far_bytes_per_s": 1e12, "wake_s": 0.0, "switch": 0.0, "tile_m": 1, "tile_n": 1, "at": [], "weights": [],
    }  # fmt: skip
    return Fit(**(values | other))  # type: ignore[arg-type]


def frame(epoch_s: float = 0.0, call_s: float = 10e-6, op_s: float = 1e-6) -> Frame:
    base = (epoch_s, call_s, op_s, 1e-9, 1.0, 1.0)
    draws = [tuple(x * f for x in base) for f in (0.95, 1.0, 1.05)]
    names = ("epoch_s", "call_s", "op_s", "logit_s", "product_factor", "memory_factor")
    return Frame(**dict(zip(names, base, strict=True)), draws=draws, residuals=list(OFF))  # type: ignore[arg-type]


def constants(name: str = "made-up", **other: object) -> Constants:
    """Two threads; one thread is half as fast."""
    both = {
        threads: Library(
            fits={layout: fit(flops_per_s=FLOPS_PER_S * int(threads) / 2) for layout in ("nn", "tn", "nt")},
            residuals=list(OFF), rivals={"formula": 0.1},
        )
        for threads in ("1", "2")
    }  # fmt: skip
    curve = [(16_384.0, 1e-11), (16_777_216.0, 4e-11)]
    facts = host.facts()
    fields = {
        "name": name, "host": {k: facts[k] for k in (*host.SAME_HOST, "memory_bytes", "gpus")}, "versions": {},
        "started": "2026-12-01T00:00:00Z", "seconds": 60.0, "threads": 2, "far_bytes": 3e7,
        "products": dict.fromkeys(("numpy", "xla", "xla-tuned", "tensorflow"), both),
        "passes": dict.fromkeys(("numpy", "jax", "tensorflow"), curve), "fresh": curve,
        "frames": {
            "numpy": frame(), "jax-step": frame(), "jax-epoch": frame(50e-6, 0.2e-6, 0.05e-6),
            "tf-step": frame(0, 300e-6, 2e-6), "tf-epoch": frame(300e-6, 0.2e-6, 0.05e-6),
            "keras-fit": frame(0.04, 600e-6, 2e-6), "keras-fit-tuned": frame(0.005, 70e-6, 1e-6),
        },
    }  # fmt: skip
    return Constants(**(fields | other))  # type: ignore[arg-type]
