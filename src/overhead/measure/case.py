"""A case: a contestant on a workload, and all that was found out about it, gathered over its processes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from overhead.machine import host
from overhead.measure.agreement import Agreement
from overhead.measure.contestant import Contestant, environment
from overhead.problem.workload import Workload
from overhead.records.record import Record, Samples, Timing

KEPT_FACTS = (
    "placed_s",
    "import_s",
    "pools",
    "busy_threads",
    "cores_allowed",
    "timer",
    "host_state",
    "census",
    "page_faults",
)


@dataclass
class Case:
    """A contestant on a workload, gathered over its processes."""

    contestant: Contestant
    workload: Workload
    status: str = "ok"
    reason: str | None = None
    samples: dict[tuple[str, int, int], tuple[list[int], list[int]]] = field(default_factory=dict)
    counts: dict[tuple[str, int, int], tuple[list[int], list[int]]] = field(default_factory=dict)
    shares: dict[tuple[str, int, int], tuple[list[int], list[float]]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    first_s: list[float] = field(default_factory=list)
    agreement: Agreement | None = None
    val_accuracy: list[float] | None = None
    peak_rss_bytes: int = 0
    stopped: str | None = None
    disturbed: set[str] = field(default_factory=set)
    copies: int = 1  # processes of this contestant in one set

    def keep(self, clock: str, steps: int, process: int, round_: int, ns: Iterable[int]) -> None:
        """Add samples of `steps` training steps each, integer nanoseconds, taken in `round_`."""
        rounds, values = self.samples.setdefault((clock, steps, process), ([], []))
        for value in ns:
            rounds.append(round_)
            values.append(value)

    def keep_count(self, what: str, steps: int, process: int, round_: int, count: int) -> None:
        """Add what was counted in `steps` training steps, in `round_`."""
        rounds, values = self.counts.setdefault((what, steps, process), ([], []))
        rounds.append(round_)
        values.append(count)

    def keep_shares(self, what: str, steps: int, process: int, round_: int, shares: Iterable[float]) -> None:
        """Add shares of a time, 0 to 1, read in `round_` while `steps` training steps ran."""
        rounds, values = self.shares.setdefault((what, steps, process), ([], []))
        for share in shares:
            rounds.append(round_)
            values.append(share)

    def _set(self, process: int) -> int:
        return process // self.copies  # numbered by `rounds.lineup`

    def fail(self, status: str, reason: str) -> None:
        self.status, self.reason = status, reason

    def forget(self) -> None:
        """Keep no time of any process: what was taken so far is not to be believed."""
        for kept in (self.samples, self.counts, self.shares):
            kept.clear()
        self.first_s.clear()

    def epochs(self) -> list[list[float]]:
        """Wall seconds per epoch, a list a process."""
        return [seconds for _, seconds in sorted(self.epochs_by_process().items())]

    def turns(self, process: int) -> dict[int, float]:
        """Round → wall seconds per epoch, the mean of the turn that a process had."""
        found: dict[int, list[float]] = {}
        for number, round_, seconds in self._epochs_s():
            if number == process:
                found.setdefault(round_, []).append(seconds)
        return {round_: sum(values) / len(values) for round_, values in found.items()}

    def epochs_by_process(self) -> dict[int, list[float]]:
        """Wall seconds per epoch, by number of the process."""
        found: dict[int, list[float]] = {}
        for process, _, seconds in self._epochs_s():
            found.setdefault(process, []).append(seconds)
        return found

    def _epochs_s(self) -> Iterator[tuple[int, int, float]]:
        """Process, round and wall seconds per epoch of each sample."""
        for (clock, steps, process), (rounds, values) in self.samples.items():
            if clock == "wall":
                for round_, ns in zip(rounds, values, strict=True):
                    yield process, round_, ns * 1e-9 * self.workload.steps / steps

    def record(self, provenance: dict[str, Any]) -> Record:
        """One record of the whole case: the wall and dispatch clocks, in seconds."""
        kept = [
            Samples(
                clock=clock,
                steps=steps,
                process=process,
                round=rounds,
                process_set=self._set(process),
                seconds=[ns * 1e-9 for ns in values],
            )
            for (clock, steps, process), (rounds, values) in self.samples.items()
        ]
        for unit, found in (("counts", self.counts), ("shares", self.shares)):
            kept += [
                Samples(
                    clock=what, steps=steps, process=process, round=rounds, process_set=self._set(process),
                    **{unit: values},  # type: ignore[arg-type]
                )
                for (what, steps, process), (rounds, values) in found.items()
            ]  # fmt: skip
        return self._record(provenance, kept)

    def op_records(self, provenance: dict[str, Any]) -> list[Record]:
        """One record an op, with its samples as integer nanoseconds; a case that was not timed has one record."""
        by_op: dict[str, list[Samples]] = {}
        for (clock, steps, process), (rounds, values) in self.samples.items():
            op, _, kind = clock.rpartition("/")
            by_op.setdefault(op, []).append(
                Samples(
                    clock=kind, steps=steps, process=process, round=rounds, process_set=self._set(process), ns=values
                )
            )
        return [self._record(provenance, kept, op) for op, kept in by_op.items()] or [self._record(provenance, [])]

    def _record(self, provenance: dict[str, Any], kept: list[Samples], op: str | None = None) -> Record:
        w = self.workload
        first_s = self.first_s[0] if self.first_s else None
        return Record(
            status=self.status,  # type: ignore[arg-type]
            reason=self.reason,
            loop=self.contestant.loop,
            device=self.facts.get("device", self.contestant.device),
            device_name=self.facts.get("device_name"),
            threads=self.contestant.threads,
            op=op,
            workload=w,
            data=self.facts.get("data"),
            timing=Timing(first_s=first_s, stopped=self.stopped, samples=kept) if kept or first_s else None,
            agreement=self.agreement._asdict() if self.agreement else None,
            val_accuracy=self.val_accuracy,
            peak_rss_bytes=self.peak_rss_bytes or None,
            settings=self.facts.get("settings", {}),
            env=host.telling_environment({**os.environ, **environment(self.contestant)}),
            versions=self.facts.get("versions", {}),
            disturbed=sorted(self.disturbed),
            **provenance,
            **{k: self.facts[k] for k in KEPT_FACTS if k in self.facts},
        )


Cases = dict[tuple[Contestant, Workload], Case]
