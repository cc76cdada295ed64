"""What is changed about a step, one thing at a time, and what each change tells."""

from __future__ import annotations

from typing import Literal, NamedTuple

Competitor = Literal["registers", "memory"]


class Condition(NamedTuple):
    """How a sample is taken. The fields' defaults are the unchanged step on a batch that is there already."""

    times: float = 1.0  # the batch, times the size that was asked for
    pipeline: bool = False  # batches come from the reader's `batches()`
    prefetch: bool = False  # … by a thread that is a few batches ahead
    wait_each: bool = False  # wait after each step, not once at the end
    spin_ns: int = 0  # a busy wait before each step
    hook_ns: int | None = None  # a busy wait at each call from Python; 0: the hook alone
    one_core: bool = False  # all threads on one core, BLAS with one thread
    competitor: Competitor | None = None  # what another process does on another core meanwhile


class Intervention(NamedTuple):
    """A change against its reference, taken in pairs in the same round."""

    changed: Condition
    reference: Condition
    tells: str
    cannot: str


PLAIN = Condition()
INPUT, HALVED, DOUBLED = "same batch again", "batch halved", "batch doubled"
WAITS, ONE_CORE, MEMORY = "wait each step", "one core", "memory competitor"
SPIN, CALLS, IDLE = "busy wait a step", "busy wait a call", "idle processor"

INTERVENTIONS = {
    INPUT: Intervention(
        PLAIN, Condition(pipeline=True), "the share of the time that the input pipeline holds the step up",
        "why the pipeline is slow",
    ),
    HALVED: Intervention(
        Condition(times=0.5), PLAIN, "1: time goes with the examples; 0: it is the same for any number of them",
        "whether what stays is calls or work on weights, which does not depend on the batch either",
    ),
    DOUBLED: Intervention(Condition(times=2.0), PLAIN, "the same, on the other side", "the same"),
    WAITS: Intervention(
        PLAIN, Condition(wait_each=True), "the share of the time that a wait after each step would cost",
        "what the step waits for inside itself",
    ),
    ONE_CORE: Intervention(
        Condition(one_core=True), PLAIN, "1: all time is work that the cores share; below 0: threads hinder each other",
        "anything of work that has one thread anyway",
    ),
    MEMORY: Intervention(
        Condition(one_core=True, competitor="memory"), Condition(one_core=True, competitor="registers"),
        "1: the time goes as that of a copy of arrays that no cache holds; 0: memory does not matter",
        "work in caches, which the competitor does not reach",
    ),
    SPIN: Intervention(
        Condition(spin_ns=1), PLAIN, "1: the host's time is the step's; 0: it hides behind a device or other threads",
        "how much of the host's time is the calls",
    ),
    CALLS: Intervention(
        Condition(hook_ns=1), Condition(hook_ns=0), "the same for each call from Python by itself",
        "calls that compiled code makes inside itself",
    ),
}  # fmt: skip
