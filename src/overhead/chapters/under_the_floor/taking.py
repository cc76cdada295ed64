"""What the page counts, and the commands that it times from their start."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from overhead.loops.sparse import BLOCK
from overhead.machine.alone import measuring
from overhead.measure.probes import rows as row_probes
from overhead.measure.session import Session
from overhead.problem import data, nonzeros, words
from overhead.problem.workload import Workload
from overhead.records.record import Record

LIMIT_S = 300  # of a command
IMPORT = "import keras"


def _record(session: Session, part: str, loop: str, **fields: Any) -> Record:
    return Record(**{"status": "ok", "device": "cpu", **session.provenance, "part": part, "loop": loop, **fields})


def digits(batch_sizes: Sequence[int], session: Session) -> Record:
    """The non-zero pixels of the training images: by pixel, of an image, of batches and of their blocks."""
    sizes = sorted({*batch_sizes, *(min(size, BLOCK) for size in batch_sizes)})
    split = data.for_workload(Workload())
    found = {size: nonzeros.count(split.x, Workload(batch_size=size)) for size in sizes}
    every = found[sizes[0]]
    cost = {
        "by_pixel": every.by_pixel.tolist(),
        "images": every.images,
        "used": every.ever_used,
        "rows": {str(size): count.rows for size, count in found.items()},
    }
    return _record(session, "digits", "digits", cost=cost, data=split.name)


def touched(session: Session) -> list[Record]:
    """What batches of word pairs touch; a record that says why where this Python has no help texts."""
    try:
        distinct = words.distinct()
    except ImportError:
        return [_record(session, "words", "words", status="declined", reason="this Python has no pydoc_data")]
    found = []
    for vocabulary in row_probes.vocabularies():
        text = f"help texts of Python {platform.python_version()}"
        for pairs in row_probes.PAIRS:
            amount = words.counts(words.batches(vocabulary, pairs), vocabulary)
            cost = {
                "vocabulary": vocabulary,
                "pairs": pairs,
                "source": text if vocabulary <= distinct else "Zipf's law, drawn",
                **amount._asdict(),
            }
            found.append(_record(session, "words", "words", cost=cost))
    return found


def race(times: int, session: Session) -> list[Record]:
    """Seconds from a command to 97 %, and from another to the end of `import keras`."""
    with measuring(session.force):
        return [_raced(times, session), _imported(times, session)]


def _raced(times: int, session: Session) -> Record:
    walls, told = [], {}
    for _ in range(times):
        wall_s, code, said = _command(["-m", "overhead.chapters.under_the_floor.race"])
        told = json.loads(said.splitlines()[-1]) if code == 0 and said else {"declined": f"exit status {code}"}
        if "declined" in told:
            return _record(session, "race", "sparse", status="declined", reason=told["declined"])
        walls.append(wall_s)
    return _record(session, "race", "sparse", cost={"wall_s": walls, **told})


def _imported(times: int, session: Session) -> Record:
    walls = []
    for _ in range(times):
        wall_s, code, _ = _command(["-c", IMPORT])
        if code:
            return _record(session, "race", "keras", status="declined", reason="keras is not installed")
        walls.append(wall_s)
    return _record(session, "race", "keras", cost={"wall_s": walls})


def _command(arguments: list[str]) -> tuple[float, int, str]:
    """Seconds from starting a Python to its end, its exit status, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, encoding="utf-8", errors="replace", timeout=LIMIT_S
    )
    return time.perf_counter() - start, done.returncode, done.stdout
