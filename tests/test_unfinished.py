"""A run that was ended early, brought home: what it had finished becomes records there, and says that it is not all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from overhead.book import execute
from overhead.chapters import keeping, unfinished
from overhead.chapters.base import ParameterError
from overhead.chapters.batch_sweep.chapter import BatchSweep
from overhead.chapters.per_op.chapter import PerOp
from overhead.measure.case import Case
from overhead.measure.contestant import Contestant
from overhead.measure.finished import Finished
from overhead.measure.session import Session
from overhead.problem.workload import Workload
from overhead.records import record as records
from overhead.records.record import Record

NAME = PerOp.name
WORKLOAD = Workload(images=640)
ELSEWHERE = {"cpu_model": "of the other machine", "gpus": [{"name": "H200"}]}


class Killed(BaseException):
    """As a signal would, it comes at any moment and passes every `except Exception`."""


@pytest.fixture
def brought_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a host whose run was killed with one case of two finished, in both sets, and one step of two."""

    def take(chapter: PerOp, session: Session) -> list[Record]:
        done, begun = (Case(Contestant(name, "cpu", 2), WORKLOAD) for name in ("numpy", "jax-op-by-op"))
        assert session.journal is not None
        finished = Finished(session.journal, {(c.contestant, c.workload): c for c in (done, begun)})
        for process_set in (0, 1):
            done.keep("z1/op", 1, process_set, 0, [1000 + process_set])
            finished.keep(process_set, [done])
        session.once("probes", lambda: [Record(status="declined", reason="why", loop="cupy", device="gpu",
                                               **session.provenance)])  # fmt: skip
        begun.keep("z1/op", 1, 0, 0, [1])
        raise Killed

    monkeypatch.setattr(PerOp, "take", take)
    monkeypatch.setattr(keeping, "host_facts", lambda found: ELSEWHERE)
    there = tmp_path / "there" / "h200"
    there.mkdir(parents=True)
    with pytest.raises(Killed):
        keeping.measure(PerOp.checked(host="h200", steps=50), {"host": "h200", "steps": 50}, there)
    monkeypatch.undo()
    journal = keeping.journal_of(there, NAME)
    journal.write_bytes(journal.read_bytes() + b'{"step": "half of a li')
    return Path(shutil.copytree(tmp_path / "there", tmp_path / "results")) / "h200"


def test_finished_cases_become_records_with_all_their_processes_and_say_that_others_are_missing(brought_home):
    assert unfinished.has(brought_home, NAME)
    assert unfinished.settle(brought_home, NAME) == 2

    waiting = keeping.records_of(brought_home, NAME)
    declined, timed = records.read(waiting / f"{NAME}.jsonl")
    assert (declined.loop, declined.reason) == ("cupy", "why")
    assert (timed.loop, timed.op, timed.host, timed.notebook) == ("numpy", "z1", "h200", NAME)
    assert [s.ns for s in (timed.timing.samples if timed.timing else [])] == [[1000], [1001]]
    assert all(unfinished.EARLY in record.disturbed for record in (declined, timed))
    assert timed.code_sha256
    assert keeping.parameters_of(brought_home, NAME) == {"host": "h200", "steps": 50}
    facts = json.loads((waiting / "host.json").read_text())
    assert {key: facts[key] for key in ELSEWHERE} == ELSEWHERE  # and nothing of this machine
    assert execute.has_records(brought_home, NAME)
    assert not unfinished.has(brought_home, NAME)


def test_a_run_to_the_end_is_not_replaced_by_one_that_was_ended(brought_home):
    unfinished.settle(brought_home, NAME)
    keeping.journal_of(brought_home, NAME).write_text("{}\n")
    assert not unfinished.has(brought_home, NAME)


@pytest.mark.parametrize("text", ["", "{}\n", "[]\n", "no journal\n", '{"run": {}, "about": {}, "began": 0}\n'])
def test_what_is_no_journal_is_refused_in_a_line(brought_home, text):
    keeping.journal_of(brought_home, NAME).write_text(text)
    with pytest.raises(ParameterError, match=f"^{NAME}: its journal must be one that a run left"):
        unfinished.settle(brought_home, NAME)


def test_a_run_that_finished_nothing_leaves_nothing(brought_home):
    journal = keeping.journal_of(brought_home, NAME)
    journal.write_bytes(journal.read_bytes().partition(b"\n")[0] + b"\n")
    assert unfinished.settle(brought_home, NAME) == 0
    assert list(brought_home.iterdir()) == []


@pytest.mark.parametrize(
    ("contestant", "op"),
    [
        (Contestant("numpy", "cpu", 2), None),
        (Contestant("numpy", "cpu", 1), "anomaly"),  # one thread less: an arm
        (Contestant("numpy", "cpu", 2, (("MALLOC_TOP_PAD_", "1"),)), "anomaly"),
        (Contestant("numpy-chunked", "cpu", 2), "anomaly"),
        (Contestant("floor-numpy", "cpu", 2), None),
    ],
)
def test_a_loop_with_one_thing_switched_stays_out_of_the_sweep(contestant, op):
    case = Case(contestant, WORKLOAD)
    case.facts["cores_allowed"] = 2
    (found,) = BatchSweep.checked(loops=["numpy"]).records_of(case, {"host": "h", "notebook": BatchSweep.name})
    assert (found.op is None) == (op is None)
