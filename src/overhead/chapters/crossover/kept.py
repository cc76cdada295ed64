"""What the chapter keeps in records and reads from them: the constants, and a record a hold-out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import ValidationError

from overhead.model import atlas, check
from overhead.model.constants import Constants
from overhead.model.replay import CannotModel
from overhead.problem.workload import Workload
from overhead.records.record import Record, Samples, Timing

CONSTANTS = "constants"  # the record that holds them


def constants_of(records: Sequence[Record]) -> Constants | None:
    """The constants among a host's records; None where there are none that can be read."""
    held = next((r.model for r in records if r.op == CONSTANTS and r.status == "ok" and r.model), None)
    return _validated(repr(sorted(held)), _Held(held)) if held else None


class _Held:
    """A dictionary as a cache takes it: the same object is the same key."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@cache
def _validated(_: str, held: _Held) -> Constants | None:
    try:
        return Constants.model_validate(held.value)
    except ValidationError:
        return None


def report_of(records: Sequence[Record]) -> dict[str, Any] | None:
    """`atlas.report` by a host's constants; None without Keras's."""
    constants = constants_of(records)
    try:
        return atlas.report(constants) if constants else None
    except CannotModel:
        return None


def record_of(case: check.Checked, about: dict[str, Any]) -> Record:
    workload = Workload(layers=case.layers, batch_size=case.batch_size, images=check.IMAGES)
    rounds = [i // check.REPEATS for i in range(len(case.ns))]
    samples = Samples(clock="wall", steps=workload.steps, process=0, round=rounds, ns=list(case.ns))
    timing = Timing(samples=[samples])
    return Record(
        status="ok", loop=case.loop, workload=workload, timing=timing, disturbed=list(case.disturbed), **about
    )
