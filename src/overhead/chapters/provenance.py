"""Which code measured a record, and whether that code has changed since: what makes a page stale."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from overhead.chapters import CHAPTERS
from overhead.loops import FLOORS, LOOPS, MANY
from overhead.records.record import Record

PACKAGE = Path(__file__).resolve().parents[1]
# What measures, whichever the chapter: the seconds, the problem, what runs beside, and the contract of a loop.
ALWAYS = ("measure", "problem", "machine", "loops/base.py")
# Rooms that take the samples of one chapter.
ALSO = {
    "00-clocks": ("harness",),
    "04-profile": ("profiles",),
    "05-batch-sweep": ("sweep", "loops/many.py"),
    "07-learning-rate-sweep": ("sweep", "loops/many.py"),
    "08-crossover": ("model",),
    "09-under-the-floor": (
        "sweep",
        "loops/many.py",
        "loops/compiled.py",
        "loops/sparse.py",
        "loops/rows.py",
        "loops/rows_jax.py",
        "loops/rows_tensorflow.py",
        "loops/c/rows.c",
    ),
    "10-your-loop": ("diagnose",),
    "11-lab": ("lab", "model/gpus.py", "model/census.py"),
}
NOT_MEASURING = ("claims.py",)  # of a chapter's folder: what is said of records that exist


def checkout() -> Path | None:
    """The root of the source checkout that this package runs from; None when it is installed without one."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "notebooks").is_dir() and (root / "pyproject.toml").is_file() else None


def revision() -> tuple[str | None, bool | None]:
    """The checkout's commit, and whether `src/` or `notebooks/` differ from it; (None, None) elsewhere."""
    root = checkout()
    if root is None:
        return None, None

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=30,
            check=True,
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--", "src", "notebooks"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def measuring(chapter: str, loop: str, package: Path = PACKAGE) -> list[Path]:
    """The files that measure a loop in a chapter: the measuring rooms, the chapter's folder, the loop's own file.

    A name that is no loop of the tables (a library that was probed, a part of a sweep) has no file of its own.
    """
    info = LOOPS.get(loop) or FLOORS.get(loop) or MANY.get(loop)
    inside = loop.partition(":")[0].removeprefix("overhead.loops.") if loop.startswith("overhead.loops.") else None
    own = info.module if info else inside
    sources = [f"loops/{source}" for source in info.sources] if info else []
    folder = [f"chapters/{CHAPTERS[chapter].folder}"] if chapter in CHAPTERS else []
    found: set[Path] = set()
    for part in (*ALWAYS, *ALSO.get(chapter, ()), *folder, *([f"loops/{own}.py"] if own else []), *sources):
        path = package / part
        found.update(path.rglob("*.py") if path.is_dir() else [path] if path.exists() else [])
    return sorted(path for path in found if path.name not in NOT_MEASURING)


def code_sha256(chapter: str, loop: str, package: Path = PACKAGE) -> str:
    """A checksum of the files that measure a loop in a chapter. Neither prose nor other loops are part of it."""
    digest = hashlib.sha256()
    for path in measuring(chapter, loop, package):
        digest.update(path.relative_to(package).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def stamped(found: Iterable[Record]) -> list[Record]:
    """The records, each with the checksum of the code that measured it."""
    known: dict[tuple[str, str], str] = {}
    stamped = []
    for record in found:
        key = (record.notebook, record.loop)
        if key not in known:
            known[key] = code_sha256(*key)
        stamped.append(record.model_copy(update={"code_sha256": known[key]}))
    return stamped


def stale(found: Sequence[Record], package: Path = PACKAGE) -> str | None:
    """Why a page of these records is stale, in words without its date; None where today's code measured them all.

    A record of an earlier schema has a checksum of all the code there was, which no longer says what measured it.
    """
    known: dict[tuple[str, str], str] = {}
    changed: dict[str, None] = {}
    for record in found:
        key = (record.notebook, record.loop)
        if key not in known:
            known[key] = code_sha256(*key, package)
        if record.code_sha256 != known[key]:
            changed[record.loop] = None
    if not changed:
        return None
    everything = len(changed) == len({record.loop for record in found})
    whose = "its" if everything else f"{', '.join(changed)}: its"
    return f"measured by an earlier version; {whose} measuring code has changed since"
