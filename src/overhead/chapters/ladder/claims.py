"""What the page on the ladder claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from overhead.records.record import Record
from overhead.showing import tables
from overhead.showing.claims import Claim, Finding, between, missing, slower, timed

CHAPTER = "06-overhead-ladder"


def rung(below: str, above: str) -> Callable[[Sequence[Record]], Finding]:
    """The check that one rung is slower than the next."""
    return lambda records: slower(timed(records, below), timed(records, above))


def derived(records: Sequence[Record]) -> Finding:
    """The check on gradients that JAX derives, against those that are written out."""
    ours, other = timed(records, "jax-autodiff"), timed(records, "jax-step")
    if ours is None or other is None:
        return missing("one of the two was not timed")
    return between(tables.ratio(ours, other), 0.9, 1.1)


CLAIMS = [
    Claim(
        "dispatch-per-operator-costs",
        "A dispatch an operator is slower than a dispatch a step.",
        CHAPTER,
        rung("jax-op-by-op", "jax-step"),
        ("C6", "S11"),
    ),
    Claim(
        "derived-gradients-cost-as-much",
        "With gradients that JAX derives, the step takes within a tenth as long as with gradients written out.",
        CHAPTER,
        derived,
        ("C6",),
    ),
    Claim(
        "dispatch-per-step-costs",
        "A dispatch a step is slower than a dispatch an epoch.",
        CHAPTER,
        rung("jax-step", "jax-epoch"),
        ("C6",),
    ),
    Claim(
        "keras-around-the-step-costs",
        "Keras's fit is slower than the same step called by itself.",
        CHAPTER,
        rung("keras-fit", "tf-step"),
        ("S9", "C6"),
    ),
    Claim(
        "allocation-costs-numpy",
        "The NumPy loop is slower than the one that allocates nothing.",
        CHAPTER,
        rung("numpy", "numpy-preallocated"),
    ),
    Claim(
        "tuned-epoch-pays",
        "The compiled epoch is slower than the same without YNNPACK.",
        CHAPTER,
        rung("jax-epoch", "jax-epoch-tuned"),
    ),
]
