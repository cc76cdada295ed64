"""What the page on a step's parts claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from overhead.chapters.where_time_goes.budget import Budget
from overhead.chapters.where_time_goes.chapter import WhereTimeGoes
from overhead.chapters.where_time_goes.pieces import UTILISATION
from overhead.measure import probing
from overhead.records import pairs
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing.claims import Claim, Finding, above, closes, counted, missing

CHAPTER = "03-where-time-goes"


def budget_of(records: Sequence[Record], backend: str) -> Budget | None:
    """The budget of a loop and device."""
    return next((b for b in WhereTimeGoes().budgets(records) if b.backend == backend), None)


def closing(backend: str) -> Callable[[Sequence[Record]], Finding]:
    """The check that a loop's budget closes."""

    def check(records: Sequence[Record]) -> Finding:
        found = budget_of(records, backend)
        return closes(found.residual, found.step.median) if found else missing("this loop has no budget")

    return check


def share(backend: str, term: str) -> Callable[[Sequence[Record]], Finding]:
    """The check that a term has more than half of a loop's step."""

    def check(records: Sequence[Record]) -> Finding:
        found = budget_of(records, backend)
        part = next((i for t, i in found.terms if t.name == term), None) if found else None
        if found is None or part is None:
            return missing("this loop has no budget")
        of = found.step
        low, high = 100 * part.low / of.high, 100 * part.high / of.low
        return above(
            Interval(100 * part.median / of.median, low, high, part.n),
            50.0, "% of the step",
        )  # fmt: skip

    return check


def frame(records: Sequence[Record]) -> Finding:
    keras = probing.select(records, "frame", "keras-train-step", device="cpu")[0]
    plain = probing.select(records, "frame", "function-step", device="cpu")[0]
    return above(pairs.ratio(probing.rounds_us(keras, "end"), probing.rounds_us(plain, "end")))


def busy(records: Sequence[Record]) -> Finding:
    watched = [r for r in records if r.device == "gpu" and r.op is None]
    shares = sorted(100 * share for r in watched for s in r.of_no_unit(UTILISATION) for share in s.shares or [])
    if not shares:
        return missing("no GPU was watched")
    middle = shares[len(shares) // 2]
    return counted(middle, middle >= 90, f"% in the median, {shares[0]:.0f} to {shares[-1]:.0f} %")


CLAIMS = [
    Claim(
        "keras-adds-to-a-step",
        "A step through Keras's train function is slower than the same mathematics without it.",
        CHAPTER,
        frame,
        ("S4",),
    ),
    Claim("numpy-budget-closes", "The budget of the NumPy step closes.", CHAPTER, closing("numpy (cpu)"), ("S4",)),
    Claim(
        "jax-step-budget-closes",
        "The budget of the compiled JAX step closes.",
        CHAPTER,
        closing("jax-step (cpu)"),
        ("S4",),
    ),
    Claim(
        "jax-epoch-budget-closes",
        "The budget of the compiled epoch closes.",
        CHAPTER,
        closing("jax-epoch (cpu)"),
        ("S4",),
    ),
    Claim("keras-budget-closes", "The budget of Keras's fit closes.", CHAPTER, closing("keras-fit (cpu)"), ("S4",)),
    Claim(
        "products-fill-numpy",
        "More than half of the NumPy step is its products.",
        CHAPTER,
        share("numpy (cpu)", "products"),
        ("S4",),
    ),
    Claim(
        "products-fill-epoch",
        "More than half of the compiled epoch is its products.",
        CHAPTER,
        share("jax-epoch (cpu)", "products"),
        ("S4",),
    ),
    Claim(
        "calls-fill-keras",
        "More than half of a step of Keras's fit is its calls.",
        CHAPTER,
        share("keras-fit (cpu)", "calls"),
        ("S4",),
    ),
    Claim(
        "busy-while-slower",
        "The driver reports the GPU as at least 90 % busy in the median of its samples.",
        CHAPTER,
        busy,
        ("S8",),
    ),
]
