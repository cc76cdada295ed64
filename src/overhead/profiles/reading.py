"""One entry for every kind of profile: what a file is shows in its first bytes, not in its name."""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path

from overhead.problem.files import check_regular
from overhead.profiles import limits
from overhead.profiles.events import Events
from overhead.profiles.nsys import read_sqlite
from overhead.profiles.nsys_csv import read_csv
from overhead.profiles.summarise import summarise
from overhead.profiles.summary import ProfileError, ProfileSummary
from overhead.profiles.xla import read_trace_json, read_xplane

RAW = {".nsys-rep", ".qdrep", ".qdstrm", ".nsys-streams"}
EXAMPLE = "nsys-export-h100.sqlite"


def example() -> Path:
    """The recorded example: one second of a PyTorch run in two processes on two H100s."""
    return Path(str(resources.files("overhead.profiles") / "example" / EXAMPLE))


def read_profile(path: str | Path) -> ProfileSummary:
    """The summary of an nsys export (SQLite), of `nsys stats` reports (CSV), or of a JAX trace.

    `path` is a file, a folder that `jax.profiler.trace` wrote, or a folder of CSV reports of one profile.
    Raises `ProfileError`, one line naming the file, for anything else.
    """
    path = Path(path)
    try:
        source = _recognise(path)
        if source is None:
            return read_csv(_text(path))
        return summarise(_read(*source))
    except ProfileError as error:
        raise ProfileError(f"{path.name}: {error}") from None
    except OSError as error:
        raise ProfileError(f"{path.name}: cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise ProfileError(f"{path.name}: too large for this machine's memory") from None


def read_events(path: str | Path) -> Events:
    """The single events of an export or a JAX trace, for timelines and histograms. Raises `ProfileError`."""
    path = Path(path)
    try:
        source = _recognise(path)
        if source is None:
            raise ProfileError("a summary of nsys stats holds no single events; read the SQLite export")
        return _read(*source)
    except ProfileError as error:
        raise ProfileError(f"{path.name}: {error}") from None
    except OSError as error:
        raise ProfileError(f"{path.name}: cannot be read: {error.strerror or error}") from None


def _read(kind: str, path: Path) -> Events:
    return {"sqlite": read_sqlite, "xplane": read_xplane, "json": read_trace_json}[kind](path)


def _recognise(path: Path) -> tuple[str, Path] | None:
    """What to read and how; None for text of `nsys stats`."""
    if path.is_dir():
        return _in_folder(path)
    if path.suffix.lower() in RAW:
        export = f"nsys export --type=sqlite --output={shlex.quote(path.stem + '.sqlite')} {shlex.quote(path.name)}"
        raise ProfileError(f"a raw report only nsys can read; export it first:\n  {export}")
    check_regular(path)
    with path.open("rb") as file:
        head = file.read(4096)
    if not head:
        raise ProfileError("the file is empty")
    if head.startswith(b"SQLite format 3\x00"):
        return "sqlite", path
    if head.startswith(b"\x1f\x8b") or head.lstrip()[:1] == b"{":
        return "json", path
    if path.name.endswith(".pb") or (b"/host:" in head and b"\x00" in head):
        return "xplane", path
    return None


def _in_folder(path: Path) -> tuple[str, Path] | None:
    for file in path.glob("*.csv"):
        check_regular(file)
    for kind, pattern in (("xplane", "*.xplane.pb"), ("json", "*.trace.json.gz")):
        runs = sorted(path.glob(f"plugins/profile/*/{pattern}")) or sorted(path.glob(pattern))
        newest = [run for run in runs if run.parent == runs[-1].parent]
        if len(newest) > 1:
            raise ProfileError(f"traces of {len(newest)} hosts in one folder; name one of the files")
        if newest:
            check_regular(newest[0])
            return kind, newest[0]
    if any(path.glob("*.csv")):
        return None
    raise ProfileError("no JAX trace (*.xplane.pb, *.trace.json.gz) and no CSV report in this folder")


def _text(path: Path) -> str:
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    limits.check("bytes of a summary", limits.LARGEST_CSV_BYTES, size)
    return "\n\n".join(_decode(file.read_bytes()) for file in files)


def _decode(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):  # redirected in PowerShell
        raw = raw.decode("utf-16", "replace").encode()
    if b"\x00" in raw:
        raise ProfileError("neither a profile that is read here nor text")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")
