"""The parts that a step is made of, and how each is measured apart from the others."""

from __future__ import annotations

import mmap
from typing import NamedTuple

from overhead.measure.preparation import Turn

PIECE_BLOCK_S = 0.02
WATCHED_S = 0.6  # the driver's own sample interval is up to a sixth of a second


class Term(NamedTuple):
    """One part of a step: (sign, piece) sums, each taken as workload minus twin, over `per` calls a step."""

    name: str
    how: str
    parts: tuple[tuple[int, str], ...] = ()  # none: the twin's own step
    whole_epoch: bool = False  # a piece covers all steps of an epoch


CALLS = Term("calls", "the same loop on a 2-2-2 network: Python, framework and dispatch with next to no arithmetic")
PRODUCTS = Term("products", "the five products alone, less the same there", ((1, "products-into"),))
ELEMENTWISE = Term("elementwise", "all other arithmetic alone, less the same there", ((1, "elementwise-into"),))
ALLOCATION = Term(
    "allocation",
    "page faults counted in an epoch of the loop (`ru_minflt`), each at what a page costs that is taken from the "
    "system, written to and given back; memory that the allocator kept costs nothing here",
    ((1, "page-faults"),),
)
DATA = Term("data", "taking the batches, less the same there", ((1, "data"),))
# The terms of each loop; a piece is of the loop's own framework.
TERMS: dict[str, list[Term]] = {
    "numpy": [CALLS, PRODUCTS, ELEMENTWISE, ALLOCATION, DATA],
    "jax-step": [CALLS, PRODUCTS, ELEMENTWISE],
    "jax-epoch": [
        CALLS,
        PRODUCTS._replace(parts=((1, "products-epoch"),), whole_epoch=True),
        ELEMENTWISE._replace(parts=((1, "elementwise-epoch"),), whole_epoch=True),
    ],
    "keras-fit": [CALLS, PRODUCTS, ELEMENTWISE, DATA._replace(parts=((1, "data-epoch"),), whole_epoch=True)],
}
# Loops whose pieces are called at the loop's own pace: between two calls the threads that they use fall asleep.
PACED = ["keras-fit"]
# Loops that are also budgeted with one thread: what only their usual budget leaves over comes with the second core.
ALSO_ALONE = ["numpy", "jax-epoch"]
ALL_TERMS = (CALLS, PRODUCTS, ELEMENTWISE, ALLOCATION, DATA)


FAULTS, UTILISATION = "page-faults", "gpu-utilisation"  # what is counted, and what is a share
PAGES = "pages"  # the probe that the cost of a page fault is taken from


def of_loop(loop: str) -> list[str]:
    """Names of the pieces that a loop's budget needs."""
    return list(dict.fromkeys(piece for term in TERMS[loop] for _, piece in term.parts))


def take(turn: Turn, round_: int) -> None:
    """Time the pieces of the loop's step, one block each; page faults are counted in an epoch and have their cost."""
    case, steps = turn.case, turn.case.workload.steps
    loop, (step_s, *_) = case.contestant.loop, [process[-1] / steps for process in case.epochs()[-1:]]
    whole = [piece for term in TERMS[loop] if term.whole_epoch for _, piece in term.parts]
    for names, clock in (
        ([name for name in of_loop(loop) if name not in whole], "paced" if loop in PACED else "end"),
        (whole, "end"),
    ):
        if not names:
            continue
        answer = turn.worker.ask(
            "probe", kind="piece", workload=case.workload.model_dump(mode="json"),
            names=[PAGES if name == "page-faults" else name for name in names],
            block_s=PIECE_BLOCK_S, samples=1, clocks=[clock], pause_ns=round(step_s * 1e9),
        )  # fmt: skip
        for probe in answer["probes"]:
            name, calls, ns = probe["name"], probe["calls"], probe[f"{clock}_ns"]
            if name == PAGES:
                faults = turn.worker.ask("faults", steps=steps)["faults"]
                case.keep_count(FAULTS, steps, turn.process, round_, faults)
                pages = calls * probe["bytes"] / mmap.PAGESIZE
                name, calls, ns = "page-faults", steps, [round(faults * block / pages) for block in ns]
            case.keep(f"piece:{name}", calls, turn.process, round_, ns)


def watch(turn: Turn, round_: int) -> None:
    """Read the driver's utilisation while the loop runs for a while; kept as shares."""
    from overhead.profiles.nvml import NvmlSampler
    from overhead.profiles.summary import ProfileError

    epochs = [s for process in turn.case.epochs() for s in process]
    steps = max(1, round(WATCHED_S / max(epochs[-1], 1e-6))) * turn.case.workload.steps
    try:
        with NvmlSampler() as sampler:
            turn.worker.ask("run", steps=steps)
    except ProfileError:
        return  # no driver library for Python: the page says that no GPU was watched
    shares = [s.state.utilisation for s in sampler.samples if s.state.utilisation is not None]
    turn.case.keep_shares(UTILISATION, steps, turn.process, round_, shares)


def how() -> str:
    """A line of Markdown a term: how it is measured."""
    lines = [f"- *{term.name}*: {term.how}." for term in ALL_TERMS]
    paced = ", ".join(f"`{loop}`" for loop in PACED)
    lines.append(
        f"- For {paced} products and other arithmetic are called once a step's time, as in the loop, since between two "
        "calls the library's threads go to sleep and have to be woken."
    )
    return "\n".join(lines)
