"""The chapters that measure, in the order of the book. Listing them imports none of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from overhead.chapters.base import Chapter


class ChapterInfo(NamedTuple):
    """A row of the table: where a chapter's class stands, and what measuring it asks of a host."""

    folder: str  # under overhead/chapters/; the class is in its chapter.py
    cls: str
    title: str  # the first heading of its notebook
    seconds: tuple[int, int, int]  # about, in quick, workshop and full, on two cores
    answers: bool = False  # whether it is of the few that answer the question: what `make book` measures
    on_gpu: int | None = None  # its place in a short run on a rented GPU, the most telling first


CHAPTERS: dict[str, ChapterInfo] = {
    "00-clocks": ChapterInfo("clocks", "Clocks", "Can these clocks be believed?", (40, 90, 240), on_gpu=8),
    "01-per-op-breakdown": ChapterInfo(
        "per_op", "PerOp", "One training step, op by op", (20, 60, 180), answers=True, on_gpu=6
    ),
    "02-flop-lower-bound": ChapterInfo(
        "flop_bound", "FlopBound", "How fast could it be? Bounds, ceilings and what was reached", (34, 60, 120),
        on_gpu=7,
    ),
    "03-where-time-goes": ChapterInfo(
        "where_time_goes", "WhereTimeGoes", "Where a step's time goes", (96, 180, 420), on_gpu=2
    ),
    "04-profile": ChapterInfo("profile", "Profile", "What a profile really says", (20, 20, 20), answers=True, on_gpu=4),
    "05-batch-sweep": ChapterInfo(
        "batch_sweep", "BatchSweep", "Batch size: how much of the time is per step?", (220, 720, 3_600),
        answers=True, on_gpu=3,
    ),
    "06-overhead-ladder": ChapterInfo("ladder", "OverheadLadder", "The overhead ladder", (180, 420, 1_500), on_gpu=1),
    "07-learning-rate-sweep": ChapterInfo(
        "learning_rates", "LearningRates", "Many learning rates at once", (114, 300, 900), on_gpu=5
    ),
    "08-crossover": ChapterInfo("crossover", "Crossover", "From which size on does a GPU win?", (170, 420, 700)),
    "09-under-the-floor": ChapterInfo(
        "under_the_floor", "UnderTheFloor", "Under the floor: arithmetic that need not be done", (170, 400, 1_200)
    ),
    "10-your-loop": ChapterInfo("your_loop", "YourLoop", "Is it your loop?", (130, 200, 300)),
    "11-lab": ChapterInfo("simulated", "Lab", "A lab without a GPU", (15, 25, 45)),
}  # fmt: skip


def chapter_of(name: str) -> type[Chapter]:
    """The class of a chapter. Raises `KeyError` for a name that is none."""
    info = CHAPTERS[name]
    return getattr(import_module(f"overhead.chapters.{info.folder}.chapter"), info.cls)
