"""A run that was ended early goes on with the cases that it had not finished, and keeps what the others found."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_loops import contestant
from overhead.measure import rounds
from overhead.measure.case import Case
from overhead.measure.contestant import Contestant
from overhead.measure.finished import found, restore
from overhead.measure.journal import Journal
from overhead.measure.session import Preset, Session
from overhead.problem.workload import Workload

TWO_SETS = Preset("tiny", 0.5, 20.0, 2, (2, 2))
WORKLOADS = [Workload(images=200, batch_size=32), Workload(images=200, batch_size=64)]


class Killed(BaseException):
    """As a signal would, it comes at any moment and passes every `except Exception`."""


def measured(path: Path, killed_after: int | None = None) -> tuple[list[Case], int]:
    """The cases of a run with a journal, and how many turns it took; killed after so many of them."""
    turns = 0

    def take_turn(turn, round_):
        nonlocal turns
        turns += 1
        if killed_after is not None and turns > killed_after:
            raise Killed
        rounds.time_epochs(turn, round_)

    journal = Journal(path, {"commit": "abc"})
    who = [contestant("Steady"), contestant("Raises"), Contestant("floor-numpy", "cpu", 1)]
    session = Session(TWO_SETS, {"host": "here", "notebook": "none"}, journal=journal)
    try:
        return rounds.time_cases(who, WORKLOADS, session, take_turn), turns
    except Killed:
        return [], turns
    finally:
        journal.close(complete=False)


@pytest.mark.slow
def test_finished_cases_are_not_measured_again_and_nothing_is_counted_twice(tmp_path):
    whole, turns = measured(tmp_path / "whole")
    _, before = measured(tmp_path / "journal", killed_after=turns // 2 + 1)  # within the second set of processes
    cases, after = measured(tmp_path / "journal")

    assert 0 < after < turns  # what was finished before is taken over; the case that was interrupted is done anew
    assert before + after >= turns
    for case, alike in zip(cases, whole, strict=True):
        assert (case.status, case.reason) == (alike.status, alike.reason)
        assert {key[0::2] for key in case.samples} == {key[0::2] for key in alike.samples}  # clock and process
        assert [set(rounds) for rounds, _ in case.samples.values()] == [set(rs) for rs, _ in alike.samples.values()]
    again, none = measured(tmp_path / "journal")
    assert none == 0
    assert [found(case) for case in again] == [found(case) for case in cases]


def test_a_case_is_given_back_what_was_found_out(tmp_path):
    case = Case(Contestant("numpy", "cpu", 1), WORKLOADS[0])
    case.keep("wall", 6, 0, 3, [5, 7])
    case.first_s.append(0.5)
    case.facts["pools"] = [{"library": "openblas"}]
    case.disturbed.add("a load")
    case.fail("failed", "why")
    journal = Journal(tmp_path / "j", {})
    journal.keep("case", found(case))
    journal.close(complete=False)

    other = Case(case.contestant, case.workload)
    again = Journal(tmp_path / "j", {})
    restore(other, again.done("case"))
    again.close(complete=True)
    assert other == case
