"""A session of measuring: how long and how often, on a host that measures one thing at a time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from overhead.measure.case import Case
from overhead.measure.contestant import Contestant
from overhead.measure.process import CALL_LIMIT_S, Process
from overhead.problem.workload import Workload


class Busy(RuntimeError):
    """Another measurement is running on this host."""


class Preset(NamedTuple):
    """How long and how often; never what is measured."""

    name: str
    target: float  # half-width of the median's 95 % interval, relative
    budget_s: float  # seconds of rounds for one workload in one set of fresh processes
    processes: int  # fresh processes a contestant
    rounds: tuple[int, int]  # least and most rounds in one process


PRESETS = {
    "quick": Preset("quick", 0.10, 8.0, 1, (5, 15)),
    "workshop": Preset("workshop", 0.05, 10.0, 3, (5, 30)),
    "full": Preset("full", 0.02, 15.0, 5, (5, 30)),
}
FLOOR_PROCESSES = 3  # the floor is the best of at least this many fresh processes


@contextmanager
def measuring(force: bool = False) -> Iterator[bool]:
    """Hold the host's one measurement. Raises `Busy` when another holds it, unless `force`; yields whether shared."""
    import fcntl

    path = Path(tempfile.gettempdir()) / f"overhead-measuring-{os.getuid()}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shared = False
        except OSError:
            if not force:
                raise Busy(
                    "another overhead measurement is running on this host; wait for it, or use --force"
                ) from None
            shared = True
        yield shared


class Session(NamedTuple):
    """How a run of cases goes, besides the cases."""

    preset: Preset
    provenance: dict[str, Any]  # fields of every record: host, notebook, started, commit …
    say: Callable[[str], None] = lambda line: None
    seed: int = 0
    force: bool = False
    limit_s: float = CALL_LIMIT_S  # of one command to a worker; a longer one is ended
    afterwards: Callable[[Process, Case], None] | None = None  # asked of each worker once its rounds are over
    wanted: Callable[[Contestant, Workload], bool] = lambda contestant, workload: True  # cases that are timed
    learns: bool = True  # whether an epoch at the workload's own rate is trained and its accuracy kept
