"""A run that was ended early, as far as it got: the finished steps of its journal become records, on any machine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from overhead.chapters import chapter_of, keeping, provenance
from overhead.chapters.base import ParameterError
from overhead.machine.environment import telling_environment
from overhead.measure import finished
from overhead.measure.case import Case
from overhead.measure.contestant import Contestant
from overhead.problem.workload import Workload
from overhead.records.record import Record

EARLY = "the run was ended early: other cases, or further processes of this one, are missing"


def has(host_folder: Path, name: str) -> bool:
    """Whether a run of this chapter was ended early, and nothing that was measured to its end lies in its place."""
    measured = keeping.waiting(keeping.measured_folder(host_folder, name)) is not None
    return not measured and keeping.journal_of(host_folder, name).exists()


def settle(host_folder: Path, name: str) -> int:
    """Put the records of what was finished where those of a whole run would wait for their page; the journal goes.

    Returns how many there are, 0 of a run that finished nothing. Each says under `disturbed` that the run was ended
    early. Raises `ParameterError` for a journal that cannot be read.
    """
    path = keeping.journal_of(host_folder, name)
    try:
        header, steps = _read(path)
        run, about = header["run"], header["about"]
        chapter = chapter_of(name).checked(**run["parameters"])
        fields = {
            **chapter.provenance(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(header["began"])),
            "commit": run["commit"],
            "dirty": run["dirty"],
        }
        found = _made_once(steps)
        for case in _cases(steps):
            env = telling_environment(dict(case.contestant.env))  # that of this machine says nothing of the other
            found += [record.model_copy(update={"env": env}) for record in chapter.records_of(case, fields)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParameterError(f"{name}: its journal must be one that a run left, got {type(error).__name__}") from None
    if not found:
        path.unlink()
        return 0
    told = [record.model_copy(update={"disturbed": sorted({*record.disturbed, EARLY})}) for record in found]
    kept = {"run": run, "given": about["given"], "began": header["began"], "seconds": None}
    folder = keeping.measured_folder(host_folder, name)
    keeping.put(folder, provenance.stamped(told), kept, name, facts=about["facts"])
    path.unlink()
    return len(told)


def _read(path: Path) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """The journal's first line, and its whole lines after it: (name of the step, what it gave)."""
    first, *lines = path.read_bytes().split(b"\n")
    steps = []
    for line in lines[:-1]:  # after the last newline stands what a kill left of a line
        step = json.loads(line)
        steps.append((step["step"], step["value"]))
    return json.loads(first), steps


def _made_once(steps: list[tuple[str, Any]]) -> list[Record]:
    """The records of steps that give records."""
    return [
        Record.model_validate(fields)
        for _, value in steps
        if isinstance(value, list)
        for fields in value
        if isinstance(fields, dict) and "schema" in fields
    ]


def _cases(steps: list[tuple[str, Any]]) -> list[Case]:
    """The finished cases, each as its last set of processes left it."""
    found: dict[tuple[str, str], Case] = {}
    for step, value in steps:
        if isinstance(value, dict) and "found" in value:
            *contestant, workload = json.loads(value["case"])
            loop, device, threads, env = contestant
            who = Contestant(loop, device, threads, tuple((key, text) for key, text in env))
            case = Case(who, Workload.model_validate({**workload, "layers": tuple(workload["layers"])}))
            finished.restore(case, value["found"])
            found[step.rpartition("/")[0], value["case"]] = case
    return list(found.values())
