"""Probes to records: workers that train nothing, asked in shuffled rounds for the costs of small pieces."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from overhead.loops import frameworks
from overhead.machine import host
from overhead.machine.alone import measuring
from overhead.machine.disturbance import Disturbance
from overhead.measure.contestant import Contestant
from overhead.measure.process import START_LIMIT_S, Process, WorkerFailed
from overhead.measure.session import Session
from overhead.problem.workload import Workload
from overhead.records import pairs, stats
from overhead.records.record import Record, Samples, Timing
from overhead.records.stats import Interval

ROUNDS = {"quick": 4, "workshop": 8, "full": 16}


class Ask(NamedTuple):
    """A process to start, and the kinds of probes to ask it for."""

    contestant: Contestant
    kinds: tuple[str, ...]
    names: tuple[str, ...] | None = None  # of the probes; None: all of these kinds


def merged(asks: Sequence[Ask]) -> list[Ask]:
    """One process for all that is asked of the same contestant."""
    found: dict[tuple[Contestant, Any], Ask] = {}
    for ask in asks:
        key = ask.contestant.resolved(), ask.names
        old = found.get(key, Ask(ask.contestant.resolved(), (), ask.names))
        found[key] = old._replace(kinds=tuple(dict.fromkeys(old.kinds + ask.kinds)))
    return list(found.values())


def measure(asks: Sequence[Ask], workload: Workload, session: Session) -> list[Record]:
    """One record a process and probe, or one with the reason why a process could not.

    Raises `Busy` when another measurement holds the host.
    """
    asked = json.dumps([merged(asks), workload.model_dump(mode="json")])
    name = f"probes {hashlib.sha256(asked.encode()).hexdigest()[:12]}"
    return session.once(name, lambda: _measured(asks, workload, session))


def _measured(asks: Sequence[Ask], workload: Workload, session: Session) -> list[Record]:
    found: list[Record] = []
    with measuring(session.force) as shared:
        workers: list[tuple[Ask, Process]] = []
        try:
            waiting = merged(asks)
            while waiting:  # a core's worth of imports at a time
                chunk, waiting = waiting[: host.cores_allowed()], waiting[host.cores_allowed() :]
                for ask, worker in [(ask, Process(ask.contestant, session.limit_s)) for ask in chunk]:
                    workers.append((ask, worker))
                    try:
                        worker.facts = worker.ask("hello", START_LIMIT_S)
                        worker.pause()
                    except WorkerFailed as failure:
                        found.append(_failed(ask, failure, session))
            disturbance = Disturbance()
            disturbance.start(sum(worker.cpu_seconds() for _, worker in workers))
            gathered = _rounds(workers, workload, session, found)
            disturbed = disturbance.found(sum(worker.cpu_seconds() for _, worker in workers))
        finally:
            for _, worker in workers:
                worker.close()
    if shared:
        disturbed.append("another measurement ran at the same time (--force)")
    for (index, _), probed in gathered.items():
        ask, worker = workers[index]
        found.append(_record(ask, worker, probed, workload, session, disturbed))
    return found


Gathered = dict[tuple[int, str], list[tuple[int, dict[str, Any]]]]


def _rounds(
    workers: list[tuple[Ask, Process]], workload: Workload, session: Session, found: list[Record]
) -> Gathered:  # fmt: skip
    """(index of a worker among all, kind/name of the probe) → (round, answer); one that did not start is not asked."""
    gathered: Gathered = {}
    shuffle, able = random.Random(session.seed), {i: pair for i, pair in enumerate(workers) if pair[1].facts}
    for round_ in range(ROUNDS[session.preset.name]):
        for index in shuffle.sample(sorted(able), len(able)):
            ask, worker = able[index]
            try:
                for kind in ask.kinds:
                    answer = worker.ask(
                        "probe", kind=kind, workload=workload.model_dump(mode="json"),
                        names=list(ask.names) if ask.names else None,
                    )  # fmt: skip
                    for probe in answer["probes"]:
                        gathered.setdefault((index, f"{kind}/{probe['name']}"), []).append((round_, probe))
            except WorkerFailed as failure:
                found.append(_failed(ask, failure, session))
                del able[index]
            worker.pause()
    return gathered


def _shown_as(ask: Ask) -> str:
    info = ask.contestant.info
    return frameworks.of(info.framework if info else ask.contestant.loop).shown


def _failed(ask: Ask, failure: WorkerFailed, session: Session) -> Record:
    contestant = ask.contestant
    return Record(
        status=failure.status,  # type: ignore[arg-type]
        reason=failure.reason, loop=_shown_as(ask), device=contestant.device, threads=contestant.threads,
        env=dict(contestant.env), **session.provenance,
    )  # fmt: skip


def _record(
    ask: Ask,
    worker: Process,
    probed: list[tuple[int, dict[str, Any]]],
    workload: Workload,
    session: Session,
    disturbed: list[str],
) -> Record:
    probe = probed[0][1]
    samples = [
        Samples(
            clock=clock, steps=answer["calls"], process=0, round=[round_] * len(answer[f"{clock}_ns"]),
            seconds=[ns * 1e-9 for ns in answer[f"{clock}_ns"]],
        )
        for clock in ("each", "end")
        for round_, answer in probed
    ]  # fmt: skip
    extra: dict[str, Any] = {
        "probe": {key: probe[key] for key in ("kind", "does", "flops", "bytes")},
        "kernels": _kernels(worker.facts),
        "pools": worker.facts["pools"],
    }
    return Record(
        status="ok", loop=_shown_as(ask), device=ask.contestant.device, threads=ask.contestant.threads,
        op=probe["name"], workload=workload, timing=Timing(samples=samples),
        env=dict(ask.contestant.env), versions=worker.facts["versions"], disturbed=sorted(disturbed),
        **extra, **session.provenance,
    )  # fmt: skip


def _kernels(facts: dict[str, Any]) -> str | None:
    """The kernel architecture that NumPy's BLAS chose in this process."""
    return next((p["architecture"] for p in facts["pools"] if p["library"] == "openblas"), None)


def kind(record: Record) -> str | None:
    """Of `probes.KINDS`; None for a record that is of no probe."""
    return (record.probe or {}).get("kind")


def facts(record: Record) -> dict[str, Any]:
    """kind, does, flops and bytes of a record's probe."""
    return record.probe or {}


def per_call_us(record: Record, clock: str) -> list[float]:
    """Microseconds a call of every block: `each` waits after each call, `end` once at the end."""
    return [
        value / samples.steps * 1e6
        for samples in (record.timing.samples if record.timing else [])
        if samples.clock == clock
        for value in samples.values_s
    ]


def rounds_us(record: Record, clock: str) -> pairs.Rounds:
    """Microseconds a call, the median of each round's blocks."""
    return pairs.typical(
        [
            (samples.set_number, round_, value / samples.steps * 1e6)
            for samples in (record.timing.samples if record.timing else [])
            if samples.clock == clock
            for round_, value in zip(samples.round, samples.values_s, strict=True)
        ]
    )


def interval_us(record: Record, clock: str = "end") -> Interval:
    """The median microseconds a call with its interval; n is the number of blocks."""
    return stats.median_interval([per_call_us(record, clock)])


def select(records: Sequence[Record], of_kind: str, op: str | None = None, **fields: Any) -> list[Record]:
    """Timed probes of one kind, of one name if `op` is given, with these loop, device or threads."""
    return [
        r
        for r in records
        if r.status == "ok" and kind(r) == of_kind and op in (None, r.op)
        and all(getattr(r, name) == value for name, value in fields.items())
    ]  # fmt: skip
