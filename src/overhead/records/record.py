"""A record: one line of JSON that says what was measured, where, and with what. Units stand in the names."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from overhead.machine import timer as timers
from overhead.problem.files import check_regular
from overhead.problem.workload import Workload
from overhead.records import old

SCHEMA = 2
MAX_FILE_BYTES = 2_000_000
Status = Literal["ok", "declined", "failed", "disagrees", "diverged"]


KEPT_WHERE_SET = (
    "preset", "pools", "kernels", "busy_threads", "cores_allowed", "placed_s", "import_s", "timer", "host_state",
    "census", "page_faults", "probe", "part", "models", "beside", "cost", "tool", "notes", "profile", "timeline",
    "diagnosis", "model",
)  # fields that few records have: a line holds them only where they are set  # fmt: skip


class RecordError(ValueError):
    """A file of records that cannot be read; names the file, the line and the reason."""


class Samples(BaseModel):
    """Raw samples of one clock, in order. `round[i]` is the round in which `seconds[i]` was taken."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    clock: str  # what was read: wall, dispatch, op, unread, …; of counts and shares what was counted
    steps: int  # training steps in one sample
    process: int
    round: list[int]
    process_set: int | None = None  # which processes were alive together; None: a set has the one process
    seconds: list[float] | None = None
    ns: list[int] | None = None
    counts: list[int] | None = None  # in the place of times
    shares: list[float] | None = None  # likewise; 0 to 1

    @property
    def set_number(self) -> int:
        """The set of processes that took turns with this one."""
        return self.process if self.process_set is None else self.process_set

    @property
    def values_s(self) -> list[float]:
        """The samples in seconds, whichever unit the file keeps; empty for counts and shares."""
        return self.seconds if self.seconds is not None else [n * 1e-9 for n in self.ns or []]

    def epochs_s(self, steps: int) -> list[float]:
        """Seconds an epoch of so many steps would take at the pace of each sample."""
        scale = steps / self.steps
        return [seconds * scale for seconds in self.values_s]


class Timing(BaseModel):
    """The cold run apart, why sampling stopped, and every sample."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    first_s: float | None = None  # the first run of the timed program: compilation and warm-up included
    stopped: str | None = None  # target, budget or count
    samples: list[Samples] = []


class Record(BaseModel):
    """One case: a contestant (loop, device, threads, environment) on a workload, or one op or member of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)  # a field that a file has besides is not read

    schema_: int = SCHEMA
    host: str
    notebook: str
    status: Status
    reason: str | None = None
    loop: str
    device: str
    device_name: str | None = None
    threads: int | None = None
    op: str | None = None
    member: dict[str, Any] | None = None
    workload: Workload | None = None  # None: nothing of the kind was trained
    data: str | None = None
    timing: Timing | None = None
    agreement: dict[str, Any] | None = None
    val_accuracy: list[float] | None = None
    peak_rss_bytes: int | None = None
    settings: dict[str, str] = {}
    env: dict[str, str] = {}
    versions: dict[str, str] = {}
    code_sha256: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    disturbed: list[str] = []
    started: str | None = None
    preset: str | None = None
    placed_s: float | None = None  # seconds to place parameters and images on the device
    import_s: float | None = None  # seconds to import the framework
    pools: list[dict[str, Any]] = []  # thread pools of the process: library, version, architecture, threads
    kernels: str | None = None  # kernel architecture that the BLAS chose
    busy_threads: int | None = None  # threads that worked
    cores_allowed: int | None = None
    timer: dict[str, float] | None = None  # resolution_ns, pair_cost_ns, empty_ns
    host_state: dict[str, Any] | None = None  # what disturbed, as shares of the time
    census: dict[str, Any] | None = None  # counts a step, or the reason why there are none
    page_faults: float | list[float] | None = None  # a step; a list: one a process
    probe: dict[str, Any] | None = None  # kind, does, flops, bytes
    part: str | None = None  # of the learning-rate page
    models: int | None = None  # trained together in the samples
    beside: int | None = None  # models of the case that the record is compared with
    cost: dict[str, Any] | None = None  # of a sweep: wall_s, train_s, …
    tool: str | None = None  # the profiler
    notes: list[str] = []  # on the profile
    profile: dict[str, Any] | None = None
    timeline: dict[str, list[Any]] | None = None
    model: dict[str, Any] | None = None  # the constants that predictions are made with
    diagnosis: dict[str, Any] | None = None  # what `overhead diagnose --json` prints of the loop

    @model_validator(mode="before")
    @classmethod
    def _schema_key(cls, value: Any) -> Any:
        if isinstance(value, dict) and "schema" in value:
            if type(value["schema"]) is not int or not 1 <= value["schema"] <= SCHEMA:
                raise ValueError(f"schema must be between 1 and {SCHEMA}, got {value['schema']!r}")
            value = old.converted(value, SCHEMA)
            value["schema_"] = value.pop("schema")
            value = {name: field for name, field in value.items() if name in cls.model_fields}
        return value

    @model_validator(mode="after")
    def _says_why(self) -> Record:
        if self.status != "ok" and not self.reason:
            raise ValueError(f"a record that is {self.status} must carry a reason")
        return self

    def as_json(self) -> dict[str, Any]:
        """The object of one line: `schema` first, floats to 6 significant digits."""
        fields = self.model_dump(mode="json")
        for name in KEPT_WHERE_SET:
            if fields[name] is None or fields[name] == []:
                del fields[name]
        for samples in fields["timing"]["samples"] if fields["timing"] else []:
            for name in ("counts", "shares"):
                if samples[name] is None:
                    del samples[name]
        return {"schema": fields.pop("schema_"), **_rounded(fields)}

    @field_validator("workload", mode="before")
    @classmethod
    def _no_second_copies(cls, value: Any) -> Any:
        """Older files repeat in it what follows from the rest (steps, images_seen); what it says of itself is kept."""
        return {k: v for k, v in value.items() if k in Workload.model_fields} if isinstance(value, dict) else value

    @property
    def trained(self) -> Workload:
        """The workload. Raises `RecordError` for a record without one."""
        if self.workload is None:
            raise RecordError(f"{self.notebook}: the record of {self.loop} must have a workload, got none")
        return self.workload

    @property
    def steps_per_epoch(self) -> int:
        """Training steps of one epoch of the workload; 1 where there is none."""
        return self.workload.steps if self.workload else 1

    def processes(self, clock: str = "wall") -> list[list[float]]:
        """Samples of `clock` in seconds, one list a process, as they were read; see `without_clock`."""
        found: dict[int, list[float]] = {}
        for samples in self.timing.samples if self.timing else []:
            if samples.clock == clock:
                found.setdefault(samples.process, []).extend(samples.values_s)
        return [found[p] for p in sorted(found)]

    def of_no_unit(self, what: str) -> list[Samples]:
        """The series of counts or of shares of that name."""
        found = self.timing.samples if self.timing else []
        return [s for s in found if s.clock == what and (s.counts is not None or s.shares is not None)]

    def epochs(self) -> list[list[float]]:
        """Wall seconds per epoch, one list a process with a value a turn, the mean of its samples.

        Samples of one turn follow each other and are not independent; turns are, as far as rounds can make them.
        """
        found: dict[int, dict[int, list[float]]] = {}
        for samples in self.timing.samples if self.timing else []:
            if samples.clock == "wall":
                turns = found.setdefault(samples.process, {})
                for turn, value in zip(samples.round, samples.epochs_s(self.steps_per_epoch), strict=True):
                    turns.setdefault(turn, []).append(value)
        return [[sum(of) / len(of) for of in found[p].values()] for p in sorted(found)]


def without_clock(record: Record) -> list[list[float]]:
    """Seconds of an op's samples, one list a process, less what reading the clock costs (`timers.net`).

    As they were read where the record does not know its clock. The only place that subtracts the clock's cost.
    """
    series = record.processes("op")
    if not record.timer:
        return series
    empty_s, pair_s = record.timer["empty_ns"] * 1e-9, record.timer["pair_cost_ns"] * 1e-9
    return [timers.net(samples, empty_s, pair_s) for samples in series]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value


def dumps(records: Iterable[Record]) -> str:
    """Records as JSON lines. A figure that is not finite becomes null where a record may have none.

    Raises `RecordError` where it may not: a sample, an accuracy.
    """
    lines = []
    for record in records:
        fields = record.as_json()
        try:
            Record.model_validate(fields)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            raise RecordError(f"{record.notebook}: {where} of {record.loop} must be a finite number") from None
        lines.append(json.dumps(fields, allow_nan=False, separators=(",", ":"), ensure_ascii=False) + "\n")
    return "".join(lines)


def write(path: Path, records: Iterable[Record]) -> None:
    """Write a file of records whole or not at all (a temporary name, then a rename).

    Raises `RecordError` when it would exceed 2 MB; the file that was there stays.
    """
    text = dumps(records)
    size = len(text.encode())
    if size > MAX_FILE_BYTES:
        raise RecordError(f"{path.name}: must stay under {MAX_FILE_BYTES} bytes, got {size}")
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Put `text` at `path` by a rename, so that a crash leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


LONGEST_WHY = 300  # characters of what is wrong with a line


def read(path: Path) -> list[Record]:
    """The records of one file. Raises `RecordError` naming the file and the line that is not a record."""
    found = []
    try:
        check_regular(path)
        # Not splitlines: a reason may hold what Unicode counts as the end of a line.
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path.name}: cannot be read: {error}") from None
    for number, line in enumerate(lines if lines != [""] else [], 1):
        try:
            found.append(_record(json.loads(line, parse_constant=_not_json)))
        except (ValidationError, ValueError, RecursionError) as error:
            why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            why = why if len(why) <= LONGEST_WHY else f"{why[:LONGEST_WHY]}…"  # it may quote a value of any length
            raise RecordError(f"{path.name}: line {number} is no record: {why}") from None
    return found


def _record(value: Any) -> Record:
    if not isinstance(value, dict) or "schema" not in value:
        raise ValueError("it has no schema")
    return Record.model_validate(value)


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
