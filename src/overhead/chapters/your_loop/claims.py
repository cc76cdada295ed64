"""What the page on a reader's own loop claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from overhead.chapters.your_loop.chapter import factor
from overhead.diagnose.pitfalls import PITFALLS
from overhead.records.record import Record
from overhead.showing import tables
from overhead.showing.claims import FAILS, HOLDS, Claim, Finding, counted, missing

CHAPTER = "10-your-loop"


def diagnosed(loop: str, *limits: str) -> Callable[[Sequence[Record]], Finding]:
    """The check that a loop's verdict is certain and one of these, or names no other where it leaves two open."""

    def check(records: Sequence[Record]) -> Finding:
        said = next((r.diagnosis for r in records if r.loop == loop and r.op is None and r.diagnosis), None)
        if said is None:
            return missing(f"{loop} was not diagnosed")
        named = said["verdict"].removeprefix("mixed: ").split(" or ")
        held = set(named) <= set(limits) and (said["certain"] or len(named) > 1)
        return Finding(HOLDS if held else FAILS, said["verdict"] + ("" if said["certain"] else " (not certain)"))

    return check


def habits(records: Sequence[Record]) -> Finding:
    found = {r.op: factor(r) for r in records if r.op in PITFALLS and r.status == "ok"}
    if not found:
        return missing("no pitfall was priced")
    costly = [name for name, ratio in found.items() if ratio.n > 1 and ratio.low > 1]
    most = max(found, key=lambda name: found[name].median)
    words = f"of {len(found)} habits are slower with their whole interval; {most} {tables.interval(found[most])} times"
    return counted(len(costly), len(costly) == len(found), words)


CLAIMS = [
    Claim(
        "keras-is-dispatch-bound",
        "Diagnosed from outside, Keras's fit at 32 images is dispatch-bound.",
        CHAPTER,
        diagnosed("keras-fit", "dispatch-bound"),
        ("S4", "C6"),
    ),
    Claim(
        "large-batch-is-not-dispatch-bound",
        "Diagnosed from outside, NumPy at 4,096 images is bound by arithmetic or by memory.",
        CHAPTER,
        diagnosed("numpy", "arithmetic-bound", "memory-bound"),
        ("S4",),
    ),
    Claim("habits-cost", "Each habit of the price list makes the step slower.", CHAPTER, habits),
]
