"""A session of measuring: how long and how often, on a host that measures one thing at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from overhead.measure.case import Case
from overhead.measure.contestant import Contestant
from overhead.measure.journal import Journal
from overhead.measure.process import CALL_LIMIT_S, Process
from overhead.problem.workload import Workload
from overhead.records.record import Record


class Preset(NamedTuple):
    """How long and how often; never what is measured."""

    name: str
    target: float  # half-width of the median's 95 % interval, relative
    budget_s: float  # seconds of rounds for one workload in one set of fresh processes
    processes: int  # fresh processes a contestant
    rounds: tuple[int, int]  # least and most rounds in one process


PRESETS = {
    "quick": Preset("quick", 0.08, 19.0, 3, (6, 28)),
    "workshop": Preset("workshop", 0.05, 10.0, 3, (5, 30)),
    "full": Preset("full", 0.02, 15.0, 5, (5, 30)),
}
ONE_PROCESS = Preset("quick", 0.10, 8.0, 1, (5, 15))  # of chapters whose verdicts are not between processes
FLOOR_PROCESSES = 3  # the floor is the best of at least this many fresh processes


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
    brief: Callable[[Contestant], bool] = lambda contestant: False  # who is in the first set of processes only
    learns: bool = True  # whether an epoch at the workload's own rate is trained and its accuracy kept
    journal: Journal | None = None  # where finished steps are kept

    def once(self, name: str, make: Callable[[], list[Record]]) -> list[Record]:
        """The records that `make` gives, from the journal where this run has made them before."""
        if self.journal is None:
            return make()
        found = self.journal.once(name, lambda: [record.as_json() for record in make()])
        return [Record.model_validate(fields) for fields in found]
