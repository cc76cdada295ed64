"""Which cases have had their rounds, in which set of fresh processes: kept in the journal, taken up by the next run."""

from __future__ import annotations

import json
from typing import Any

from overhead.measure.agreement import Agreement
from overhead.measure.case import Case, Cases
from overhead.measure.contestant import Contestant
from overhead.measure.journal import Journal
from overhead.problem.workload import Workload


class Finished:
    """The finished cases of one call of `rounds.time_cases`; without a journal none ever is."""

    def __init__(self, journal: Journal | None, cases: Cases) -> None:
        self._journal, self._cases = journal, cases
        self._name = journal.numbered("cases") if journal else ""
        self._done: set[tuple[int, Contestant, Workload]] = set()
        by_name = {_name(case): case for case in cases.values()}
        while journal and (kept := journal.done(f"{self._name}/{len(self._done)}")):
            case = by_name[kept["case"]]
            restore(case, kept["found"])
            self._done.add((kept["set"], case.contestant, case.workload))

    def pending(self, process_set: int, contestant: Contestant, workload: Workload) -> bool:
        """Whether a case has still to have its rounds in this set of processes."""
        return (process_set, contestant, workload) not in self._done

    def waits(self, process_set: int, contestant: Contestant) -> bool:
        """Whether any case of a contestant has still to have its rounds in this set of processes."""
        return any(self.pending(process_set, c, w) for c, w in self._cases if c == contestant)

    def keep(self, process_set: int, cases: list[Case]) -> None:
        """Add cases that have had their rounds in this set of processes, with all that was found out so far."""
        for case in cases:
            key = (process_set, case.contestant, case.workload)
            if self._journal and key not in self._done:
                step = {"set": process_set, "case": _name(case), "found": found(case)}
                self._journal.keep(f"{self._name}/{len(self._done)}", step)
                self._done.add(key)


def _name(case: Case) -> str:
    return json.dumps([*case.contestant, case.workload.model_dump(mode="json")])


def found(case: Case) -> dict[str, Any]:
    """All that was found out about a case, in JSON's types."""
    series = {
        kind: [[what, steps, process, *both] for (what, steps, process), both in getattr(case, kind).items()]
        for kind in SERIES
    }
    plain = {name: getattr(case, name) for name in PLAIN}
    return {**plain, **series, "agreement": case.agreement, "disturbed": sorted(case.disturbed)}


def restore(case: Case, kept: dict[str, Any]) -> None:
    """Give a case back what `found` told of it."""
    for name in PLAIN:
        setattr(case, name, kept[name])
    for kind in SERIES:
        series = {(what, steps, process): (rounds, values) for what, steps, process, rounds, values in kept[kind]}
        setattr(case, kind, series)
    case.agreement = Agreement(*kept["agreement"]) if kept["agreement"] else None
    case.disturbed = set(kept["disturbed"])


SERIES = ("samples", "counts", "shares")
PLAIN = ("status", "reason", "facts", "first_s", "val_accuracy", "peak_rss_bytes", "stopped")
