"""What a reader bets on before a chapter's headline figure is seen: two things, and how many times as long one takes.

Predicting first makes an observation stick, whether the prediction was right or wrong (Miller, Lasry, Chu and Mazur
2013, "Role of physics lecture demonstrations in conceptual learning"); watching alone teaches little (Crouch, Fagen,
Callan and Mazur 2004, "Classroom demonstrations: Learning tools or entertainment?").
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables
from overhead.showing.claims import timed


class Guess(NamedTuple):
    """A question of the form *how many times as long as `under` does `over` take*, and what the records answer."""

    figure: str  # the chapter's method that draws the figure that is covered
    question: str
    over: str
    under: str
    ratio: Callable[[Sequence[Record]], Interval | None]  # None, or an error of a lack: not measured here
    gap: str  # the commonest gap between guess and record, explained in a sentence


def of_chapter(chapter: str, records: Sequence[Record]) -> Guess | None:
    """The question to a chapter's page, by what its host has: with a GPU the batch sweep asks of both devices."""
    if chapter == "05-batch-sweep" and any(r.device == "gpu" and r.status == "ok" for r in records):
        return DEVICES
    return GUESSES.get(chapter)


def answer(guess: Guess, records: Sequence[Record]) -> Interval | None:
    """The ratio with its interval; None where these records do not have it."""
    try:
        found = guess.ratio(records)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None
    return found if found is not None and 0 < found.low <= found.median <= found.high < float("inf") else None


def quotient(over: Interval, under: Interval) -> Interval:
    """One figure through another that was taken apart from it: ends that hold for any pairing."""
    n = min(over.n, under.n)
    return Interval(over.median / under.median, over.low / under.high, over.high / under.low, int(n))


def loops(slow: str, fast: str) -> Callable[[Sequence[Record]], Interval | None]:
    """The headline ratio of two loops on the CPU at batch size 32."""

    def ratio(records: Sequence[Record]) -> Interval | None:
        ours, other = timed(records, slow, 32), timed(records, fast, 32)
        return tables.ratio(ours, other) if ours and other else None

    return ratio


def waiting(records: Sequence[Record]) -> Interval | None:
    from overhead.chapters.clocks.chapter import Clocks

    frame = Clocks().devices_frame([r for r in records if r.loop.endswith(":Synchronised")])
    row = frame.iloc[0]
    return quotient(row["wall"], row["dispatch"])


def update(records: Sequence[Record]) -> Interval | None:
    from overhead.chapters.per_op.chapter import PerOp

    frame = PerOp().frame(records)
    rows = frame[frame["backend"] == "numpy (cpu)"].set_index("op")
    product, change = (Interval(r.median_us, r.low_us, r.high_us, r.n) for r in (rows.loc["z1"], rows.loc["w1"]))
    return quotient(product, change)


def over_bound(records: Sequence[Record]) -> Interval | None:
    from overhead.chapters.flop_bound.chapter import FlopBound

    frame = FlopBound().roofline_frame(records)
    row = frame[(frame["backend"] == "numpy (cpu)") & (frame["op"] == "softmax")].iloc[0]
    times = float(row["time_us"] / row["bound_us"])
    return Interval(times, times, times, 1)


def queue(records: Sequence[Record]) -> Interval | None:
    from overhead.chapters.profile.claims import profile_of

    found = profile_of(records)
    times = found["queue"]["total_ns"] / found["span_ns"] if found else 0.0
    return Interval(times, times, times, 1)


def models(records: Sequence[Record]) -> Interval | None:
    found = {r.loop: r for r in records if r.part == "models" and r.models == 5 and r.device == "cpu"}
    return tables.ratio(found["sequential"], found["vmap"])


def predicted(records: Sequence[Record]) -> Interval | None:
    """Of the hold-outs, as measured: an epoch of Keras's fit over one of the compiled epoch, at batch size 32."""
    from overhead.chapters.crossover.chapter import Crossover

    network = (784, 128, 10), 32
    found = [case for case in Crossover().held_out(records) if (case.layers, case.batch_size) == network]
    of = {case.loop: case.measured_s for case in found}
    times = of["keras-fit"] / of["jax-epoch"]
    return Interval(times, times, times, 1)


def under_the_floor(records: Sequence[Record]) -> Interval | None:
    from overhead.chapters.under_the_floor import rungs

    here = rungs.part(records, None)
    floor = tables.floor_of(here, 32, "cpu")
    ours = timed(here, "sparse", 32)
    return tables.ratio(floor[0], ours) if floor and ours else None


def queued(records: Sequence[Record]) -> Interval | None:
    """Of the simulated device: a launch with the queue full over one of the first."""
    calls = next(r for r in records if r.op == "queue" and r.status == "ok").processes("call")[0]
    times = statistics.median(calls[-50:]) / statistics.median(calls[:500])
    return Interval(times, times, times, 1)


def one_image(records: Sequence[Record]) -> Interval | None:
    from overhead.chapters.your_loop.chapter import factor

    return factor(next(r for r in records if r.op == "one-image-at-a-time" and r.status == "ok"))


def devices(records: Sequence[Record]) -> Interval | None:
    from overhead.chapters.batch_sweep.chapter import BatchSweep

    rows = [r for r in BatchSweep().rows(records) if r.status == "ok" and r.timing]
    size = min(r.trained.batch_size for r in rows)
    best = {}
    for device in ("gpu", "cpu"):
        of_device = [(i.median, n, r) for n, r in enumerate(rows) if _at(r, device, size) and (i := tables.headline(r))]
        best[device] = min(of_device)[2]
    return tables.ratio(best["gpu"], best["cpu"])


def _at(record: Record, device: str, size: int) -> bool:
    return (record.device, record.trained.batch_size) == (device, size) and not record.loop.startswith("floor")


DEVICES = Guess(
    "figure",
    "One epoch of the small network at its smallest batch size, each device with its fastest loop.",
    "the GPU",
    "the CPU",
    devices,
    "Whoever divides the devices' peaks leaves out launches and waits, which have no peak.",
)
GUESSES = {
    "00-clocks": Guess(
        "waiting_figure",
        "A device is called and works by itself. One stopwatch is stopped when the call returns, another when the "
        "device is done.",
        "the device's work",
        "the call",
        waiting,
        "A guess of two or three takes the call for the work: a call may only hand the work over, and return at once.",
    ),
    "01-per-op-breakdown": Guess(
        "figure",
        "The first product, of 6.4 million operations, and the update of its weights, of 0.2 million, both in NumPy.",
        "the product",
        "the update",
        update,
        "A guess near 32 is the ratio of the arithmetic; it leaves out that the update reads and writes every weight.",
    ),
    "02-flop-lower-bound": Guess(
        "roofline",
        "NumPy's softmax of a batch of 32, and the time that its arithmetic and its bytes need at the least.",
        "the softmax",
        "its bound",
        over_bound,
        "A guess near 1 takes the bound for a duration; it leaves out what calling a small operation costs.",
    ),
    "03-where-time-goes": Guess(
        "budget_figure",
        "One step of the same network at batch size 32, in Keras's fit and in a NumPy loop.",
        "Keras's step",
        "NumPy's step",
        loops("keras-fit", "numpy"),
        "Whoever has the compiled framework first counts the arithmetic, and leaves out the calls around each step.",
    ),
    "04-profile": Guess(
        "timeline",
        "In this host's own trace: the time that all pieces of work waited in the queue, added up, and the whole run.",
        "the sum of the queue times",
        "the run",
        queue,
        "A guess below 1 takes it for a part of the run; queue times may overlap, so the sum is part of nothing.",
    ),
    "05-batch-sweep": Guess(
        "figure",
        "One epoch on the CPU at batch size 32, with Keras's defaults and with a NumPy loop written by hand.",
        "Keras's fit",
        "the NumPy loop",
        loops("keras-fit", "numpy"),
        "Whoever has Keras first thinks of its compiled arithmetic, and leaves out the calls around each small step.",
    ),
    "06-overhead-ladder": Guess(
        "figure",
        "The same epoch in JAX, with a dispatch for every operator and with one dispatch for the whole epoch.",
        "a dispatch an operator",
        "a dispatch an epoch",
        loops("jax-op-by-op", "jax-epoch"),
        "A guess in the hundreds counts dispatches; it leaves out how short each of them is beside the arithmetic.",
    ),
    "07-learning-rate-sweep": Guess(
        "models_figure",
        "Five models of the same shape, trained one after another and side by side in one vmap call.",
        "one after another",
        "side by side",
        models,
        "A guess of 5 lets the models share everything; they can share dispatches and images, but no arithmetic.",
    ),
    "08-crossover": Guess(
        "predicted_figure",
        "One short epoch of the small network at batch size 32, with Keras's defaults and as one compiled program.",
        "Keras's fit",
        "the compiled epoch",
        predicted,
        "A guess near 1 counts the arithmetic, which is the same; a model needs what each call costs as well.",
    ),
    "09-under-the-floor": Guess(
        "rungs_figure",
        "The matrix products of a dense step and nothing else, and a whole training step that multiplies by no zero.",
        "the dense products",
        "the whole sparse step",
        under_the_floor,
        "A guess of five follows the zeros; a product that skips them also moves more bytes for each number it uses.",
    ),
    "11-lab": Guess(
        "queue_figure",
        "A launch on a simulated device whose queue is full, and one of the first launches.",
        "a launch into a full queue",
        "one of the first",
        queued,
        "A guess of 1 takes a launch for a fixed price; into a full queue it waits until the device has ended another.",
    ),
    "10-your-loop": Guess(
        "prices_figure",
        "The same images in NumPy, with a step for each image and with a step for each batch.",
        "a step an image",
        "a step a batch",
        one_image,
        "A guess of 32 counts the calls; each of them also has less to do.",
    ),
}
