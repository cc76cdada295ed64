"""A host's folder as a stranger's: what is read of it, within which limits, and why something is not.

Nothing here is shown as it is; `clean` and `pages` decide what reaches a page.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from overhead.chapters import CHAPTERS
from overhead.chapters.base import HOST_NAME
from overhead.measure import probing
from overhead.records import record as records
from overhead.records.record import Record, RecordError

MAX_HOSTS = 64
MAX_BYTES = {".ipynb": 12_000_000, ".jsonl": records.MAX_FILE_BYTES, ".json": 1_000_000}
MAX_LINE_BYTES = 2_000_000  # a figure's PNG is one line of a notebook
MAX_NESTING = 40  # lists and objects in each other


class FolderError(ValueError):
    """What a host's folder holds that cannot be used: one line that names the file and the reason."""


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be printable characters")
    return text


Text = Annotated[str, StringConstraints(max_length=300), AfterValidator(_printable)]


class Card(BaseModel):
    """A GPU of `host.json`, as far as a page tells of it."""

    model_config = ConfigDict(strict=True, frozen=True)

    name: Text
    driver: Text | None = None


class Facts(BaseModel):
    """What a page tells of `host.json`; other keys are not looked at."""

    model_config = ConfigDict(strict=True, frozen=True)

    cpu_model: Annotated[Text, StringConstraints(min_length=1)]
    cores_allowed: int = Field(ge=1, le=65_536)
    memory_bytes: int = Field(ge=2**20, le=2**50)
    os: Text
    python: Text
    gpus: list[Card] = Field(default=[], max_length=64)


def hosts(results: Path) -> list[str]:
    """Names of the folders under `results`, `local` last. One that starts with a dot is none.

    Raises `FolderError` where there is no such folder, it holds no host, or too many.
    """
    if not results.is_dir():
        raise FolderError(f"{results.name}: there is no such folder of results")
    names = [entry.name for entry in os.scandir(results) if entry.is_dir() and not entry.name.startswith(".")]
    if not names:
        raise FolderError(f"{results.name}: holds no host's folder; measure first (overhead run)")
    if len(names) > MAX_HOSTS:
        raise FolderError(f"{results.name}: must hold at most {MAX_HOSTS} hosts, got {len(names)}")
    return sorted(names, key=lambda name: (name == "local", name))


def check_name(folder: Path) -> None:
    """Refuse a folder that is a link, or whose name cannot be a host's. Raises `FolderError`."""
    if not HOST_NAME.fullmatch(folder.name):
        raise FolderError("a host's name must be 1 to 64 letters, digits, '-', '_' or '.'; rename the folder")
    if folder.is_symlink():
        raise FolderError("is a symbolic link; a host's results lie in a folder of their own")


def chapters(folder: Path) -> list[str]:
    """Chapters of which the folder has the notebook, the records, or both, in order."""
    return [c for c in CHAPTERS if any(os.path.lexists(folder / f"{c}{end}") for end in (".ipynb", ".jsonl"))]


def read_text(path: Path) -> str:
    """A regular file's text, within the limits of its kind. Never follows a link, never waits for a pipe.

    Raises `FolderError` with the file's name and why it is not read.
    """
    limit = MAX_BYTES[path.suffix]
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise FolderError(f"{path.name} is missing; run a notebook there again") from None
    except OSError:
        raise FolderError(f"{path.name} must be a regular file that can be read (no link, no pipe)") from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise FolderError(f"{path.name} must be a regular file that can be read (no link, no pipe)")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise FolderError(f"{path.name}: must be at most {limit} bytes, is longer")
    if data.startswith(b"\xef\xbb\xbf"):
        raise FolderError(f"{path.name}: line 1 begins with a byte order mark; save it as UTF-8 without one")
    for number, line in enumerate(data.split(b"\n"), 1):
        if len(line) > MAX_LINE_BYTES:
            raise FolderError(f"{path.name}: line {number} must be at most {MAX_LINE_BYTES} bytes, got {len(line)}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FolderError(f"{path.name}: line {line} is not UTF-8") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object that a file holds. Raises `FolderError` naming the file, the line where known, and the reason."""
    return parse(read_text(path), path.name)


def parse(text: str, name: str) -> dict[str, Any]:
    """The JSON object in `text`: nested and numbered within limits, no NaN, no half of a surrogate pair."""
    try:
        value = json.loads(text, parse_constant=_not_json, parse_float=_finite)
        if not isinstance(value, dict):
            raise ValueError(f"must hold an object, got {type(value).__name__}")
        if _depth(value) > MAX_NESTING:
            raise ValueError(f"must be nested at most {MAX_NESTING} deep")
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise FolderError(f"{name}: line {error.lineno} is no JSON: {error.msg}") from None
    except UnicodeEncodeError:
        raise FolderError(f"{name}: holds half of a surrogate pair, which is no text") from None
    except RecursionError:
        raise FolderError(f"{name}: must be nested at most {MAX_NESTING} deep") from None
    except ValueError as error:
        raise FolderError(f"{name}: {str(error).splitlines()[0][:200]}") from None
    return value


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{number[:20]} is no finite number")
    return value


def _depth(value: Any) -> int:
    level, deep = [value], 0
    while level and deep <= MAX_NESTING:
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        deep += 1
    return deep


def facts(folder: Path) -> Facts:
    """What `host.json` says, checked. Raises `FolderError` naming what it lacks or what cannot be."""
    found = read_json(folder / "host.json")
    try:
        return Facts.model_validate(found)
    except ValidationError as error:
        fault = error.errors()[0]
        name = ".".join(map(str, fault["loc"]))
        if fault["type"] == "missing":
            raise FolderError(f"host.json: lacks {name}") from None
        why = fault["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        raise FolderError(f"host.json: {name} {why}, got {str(fault['input'])[:40]!r}") from None


COMMIT = re.compile(r"[0-9a-f]{7,64}")
STARTED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
KIND = re.compile(r"[a-z]{1,16}")


def read_records(folder: Path, chapter: str) -> list[Record]:
    """A chapter's records. Raises `FolderError` naming the line that is none, is there twice, or is another host's.

    The host is the folder: a copy under another name is another host, whose records say what it was called before.
    """
    name = f"{chapter}.jsonl"
    lines = read_text(folder / name).removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        parse(line, f"{name}: line {number}")
    try:
        found = records.read(folder / name)
    except (RecordError, RecursionError, OverflowError) as error:
        raise FolderError(" ".join(str(error).split())[:300]) from None
    if len(set(lines)) < len(lines):
        second = next(number for number, line in enumerate(lines, 1) if line in lines[: number - 1])
        raise FolderError(f"{name}: line {second} is there twice")
    for number, record in enumerate(found, 1):
        if why := _record_fault(record, found[0].host, chapter):
            raise FolderError(f"{name}: line {number}: {why}")
    return found


def _record_fault(record: Record, host: str, chapter: str) -> str | None:
    """What of a record cannot be, and would reach a page."""
    if not HOST_NAME.fullmatch(record.host):
        return f"host must be a name of letters, digits, '-', '_' or '.', got {record.host[:40]!r}"
    if record.host != host:
        return f"host must be one name in the whole file, {host[:64]!r}, got {record.host[:64]!r}"
    # Chapters of one run calibrate once: probes, and a library that could not be probed, may be another chapter's.
    probe = probing.kind(record) is not None or (record.status != "ok" and record.workload is None)
    shared = record.notebook in CHAPTERS and probe
    if record.notebook != chapter and not shared:
        return f"notebook is {record.notebook[:64]!r}, the file is {chapter!r}"
    for name, form in (("started", STARTED), ("commit", COMMIT), ("code_sha256", COMMIT), ("device", KIND)):
        value = getattr(record, name)
        if value is not None and not form.fullmatch(value):
            return f"{name} is not of its form, got {value[:40]!r}"
    return _samples_fault(record.timing.samples if record.timing else [])


def _samples_fault(samples: Sequence[records.Samples]) -> str | None:
    for series in samples:
        if series.steps < 1:
            return f"steps of a sample must be at least 1, got {series.steps}"
        kept = (series.seconds, series.ns, series.counts, series.shares)
        values = next((values for values in kept if values is not None), None)
        if values is None:
            return f"a series of the clock {series.clock[:20]!r} has neither seconds nor ns"
        least = min(values, default=0)
        if least < 0 or (series.clock == "wall" and values and least == 0):
            return f"samples of the clock {series.clock[:20]!r} must be above 0, got {least}"
    return None
