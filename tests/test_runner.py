"""Rounds over workers: what becomes of each contestant, who runs when, and what a stop leaves behind."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from pathlib import Path
from statistics import median

import psutil
import pytest

import fake_loops
from fake_loops import contestant
from overhead.harness.fake_device import LATENCY_S
from overhead.machine.alone import Busy, measuring
from overhead.measure.contestant import Contestant
from overhead.measure.preparation import Turn
from overhead.measure.process import START_LIMIT_S, STOPPABLE, Process
from overhead.measure.rounds import FLOOR_TRIALS, run_cases, time_cases, time_epochs
from overhead.measure.session import FLOOR_PROCESSES, PRESETS, Preset, Session
from overhead.problem.workload import Workload
from overhead.records import record as records
from overhead.records.record import Record

TINY = Preset("tiny", 0.5, 20.0, 1, (2, 3))
PROVENANCE = {"host": "here", "notebook": "none"}
ODD = [
    "Steady", "Compiles", "Exits", "NoMemory", "Chatty", "LearnsSomethingElse",
    "ChangesItsData", "ChangesItsParameters", "Raises", "Declines",
]  # fmt: skip


def bench(**other) -> Session:
    return Session(TINY, PROVENANCE, **other)


@pytest.fixture(scope="module", autouse=True)
def own_lock(tmp_path_factory: pytest.TempPathFactory):
    """A measurement that runs on this machine does not refuse these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("tmp")))
        yield


@pytest.fixture(scope="module")
def small() -> list[Workload]:
    return [Workload(images=200, batch_size=32, remainder="keep"), Workload(images=200, batch_size=64)]


@pytest.fixture(scope="module")
def found(small: list[Workload]) -> dict[tuple[str, int], Record]:
    """One run of every odd loop together, on two workloads."""
    contestants = [contestant(name) for name in ODD] + [
        contestant("Steady", "gpu"),
        Contestant("overhead.harness.fake_device:Synchronised", "cpu", 1),
        Contestant("overhead.harness.fake_device:Unsynchronised", "cpu", 1),
        Contestant("numpy", "cpu", 1),
        Contestant("floor-numpy", "cpu", 1),
    ]
    kept = run_cases(contestants, small, bench())
    names = [f"{r.loop.rpartition(':')[2]}{'-gpu' if r.device == 'gpu' else ''}" for r in kept]
    table = {(name, r.trained.batch_size): r for name, r in zip(names, kept, strict=True)}
    assert len(table) == len(contestants) * len(small)  # one record a case, whatever happens to it
    return table


@pytest.mark.parametrize("name", ["Steady", "Chatty", "Compiles", "ChangesItsParameters", "numpy", "Synchronised"])
def test_who_learns_what_the_reference_learns_is_timed(found, name):
    for size, steps, seen in ((32, 7, 200), (64, 3, 192)):
        record = found[name, size]
        assert (record.status, record.reason) == ("ok", None)
        assert record.trained.steps == steps
        assert record.trained.images_seen == seen
        assert record.agreement is not None
        assert record.agreement["error"] < 1e-5
        assert len(record.epochs()) == 1
        assert len(record.epochs()[0]) >= TINY.rounds[0]
        assert all(0 < seconds < math.inf for seconds in record.epochs()[0])
        assert record.timing is not None
        assert {s.clock for s in record.timing.samples} == {"wall", "dispatch"}
        assert record.timing.stopped in ("target", "count", "budget")
        assert record.env["OMP_NUM_THREADS"] == "1"


def test_all_that_are_timed_have_learnt_the_same(found):
    for size in (32, 64):
        learnt = {r.loop: r.val_accuracy for (_, s), r in found.items() if s == size and r.val_accuracy}
        assert len(learnt) > 5
        for accuracy in (values[-1] for loop, values in learnt.items() if "SomethingElse" not in loop):
            assert accuracy == pytest.approx(learnt["numpy"][-1], abs=0.005)


def test_an_asynchronous_device_is_timed_until_it_is_done(found):
    for size in (32, 64):
        record = found["Synchronised", size]
        assert min(seconds for process in record.processes("wall") for seconds in process) >= LATENCY_S
        dispatch = [seconds for process in record.processes("dispatch") for seconds in process]
        assert median(dispatch) < LATENCY_S


def test_a_loop_that_does_not_wait_for_its_device_has_no_time(found):
    for size in (32, 64):
        record = found["Unsynchronised", size]
        assert (record.status, record.reason) == ("failed", "returned before the device was done")
        assert record.epochs() == []
        assert record.timing is None


def test_compilation_is_apart_from_the_samples(found):
    for size in (32, 64):
        timing = found["Compiles", size].timing
        assert timing is not None
        assert timing.first_s is not None
        assert timing.first_s >= fake_loops.Compiles.COMPILE_S
        assert median(found["Compiles", size].epochs()[0]) < fake_loops.Compiles.COMPILE_S


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("Exits", "failed", "the worker exited with 7: assertion failed in …/data.bin"),
        ("NoMemory", "failed", "out of memory: "),
        ("LearnsSomethingElse", "disagrees", "after 20 steps exceeds 1e-05 (norm-wise)"),
        ("ChangesItsData", "failed", "ValueError: output array is read-only"),
        ("Raises", "failed", "ValueError: cannot open '…/data.bin'"),
        ("Declines", "declined", "needs a batch of one"),
        ("Steady-gpu", "failed", "ran on cpu"),
    ],
)
def test_a_case_that_is_not_timed_says_why_and_the_others_go_on(found, name, status, reason):
    for size in (32, 64):
        record = found[name, size]
        assert record.status == status
        assert reason in record.reason
        assert record.epochs() == []


def test_a_device_that_was_not_used_is_not_named(found):
    assert found["Steady-gpu", 32].device == "gpu"  # as asked for; the reason says where it ran
    assert found["Steady-gpu", 32].device_name is None


def test_every_round_has_every_contestant_once_and_the_floor_three_processes(found):
    for (name, _), record in found.items():
        for samples in record.timing.samples if record.timing else []:
            assert samples.round == sorted(samples.round)
            assert set(samples.round) == set(range(max(samples.round) + 1))
            assert len(samples.round) == len(samples.values_s)
            if samples.clock == "dispatch":
                assert len(set(Counter(samples.round).values())) == 1  # as many in every round
        if name == "floor-numpy":
            assert len(record.epochs()) == FLOOR_PROCESSES


def test_records_of_a_run_hold_no_path_and_can_be_read(found, tmp_path):
    records.write(tmp_path / "all.jsonl", found.values())
    assert records.read(tmp_path / "all.jsonl")
    text = (tmp_path / "all.jsonl").read_text()
    for folder in ("/tmp", "/somewhere", str(Path(__file__).parent), tempfile.gettempdir()):
        assert folder not in text


def test_a_worker_that_is_killed_in_the_rounds_takes_nobody_along(small):
    def dies_when_timed(turn: Turn, round_: int) -> None:
        if "Killed" in turn.worker.contestant.loop and round_ == 1:
            turn.worker.ask("run", steps=1)
        time_epochs(turn, round_)

    cases = time_cases([contestant("KilledInTheRounds"), contestant("Steady")], small, bench(), dies_when_timed)
    assert [case.status for case in cases] == ["failed", "failed", "ok", "ok"]
    for case in cases[:2]:
        assert "ended by SIGKILL" in (case.reason or "")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("Transposes", "shapes"), ("LosesALayer", "shapes"), ("NewPrecision", "precision"), ("NotFinite", "finite")],
)
def test_a_loop_that_cannot_be_compared_disagrees_and_takes_nobody_along(name, reason):
    workload = Workload(images=200, batch_size=32, learning_rate=0.05)
    odd, steady = run_cases([contestant(name), contestant("Steady")], [workload], bench())

    assert (odd.status, odd.epochs(), steady.status) == ("disagrees", [], "ok")
    assert reason in (odd.reason or "")


def test_a_worker_that_died_keeps_its_processor_time():
    worker = Process(contestant("Steady"), 60.0)
    try:
        worker.ask("hello")
        used = worker.cpu_seconds()
    finally:
        worker.kill()

    assert worker.cpu_seconds() == used > 0


def test_a_worker_that_hangs_is_ended_at_the_limit(small):
    begun = time.monotonic()
    kept = run_cases([contestant("Hangs")], small, bench(limit_s=1.5))
    assert [record.status for record in kept] == ["failed", "failed"]
    assert all("within 1.5 s; killed" in (record.reason or "") for record in kept)
    assert time.monotonic() - begun < START_LIMIT_S


def test_only_the_floors_that_may_be_the_fastest_go_on(small):
    seconds = {0: 0.020, 1: 0.021, 2: 0.030}  # by process; the last is more than a tenth behind
    preset = TINY._replace(target=1e-9, rounds=(2, 5))

    def made_up(turn: Turn, round_: int) -> None:
        slower = (1.0 if turn.case.contestant.is_floor else 100.0) * (1 + 0.01 * round_)
        turn.case.keep("wall", turn.steps, turn.process, round_, [round(slower * seconds[turn.process] * 1e9)])

    who = [Contestant("floor-numpy", "cpu", 1), contestant("Steady")]
    floor, loop = time_cases(who, small[:1], Session(preset, PROVENANCE), made_up)

    assert {p: len(s) for p, s in floor.epochs_by_process().items()} == {0: 5, 1: 5, 2: FLOOR_TRIALS}
    assert len(loop.epochs_by_process()[0]) == 5  # a loop is never dropped, however slow


@pytest.mark.skipif(not STOPPABLE or sys.platform != "linux", reason="needs SIGSTOP and /proc")
def test_during_a_turn_everybody_else_is_stopped(small):
    running: list[list[str]] = []
    workers: set[int] = set()

    def watched(turn: Turn, round_: int) -> None:
        workers.add(turn.worker.pid)
        time_epochs(turn, round_)
        others = [psutil.Process(pid) for pid in workers - {turn.worker.pid}]
        running.append([p.status() for p in others if p.status() != psutil.STATUS_STOPPED])

    contestants = [contestant("Spins"), contestant("Spins", threads=2), contestant("Steady")]
    cases = time_cases(contestants, small[:1], bench(), watched)

    assert len(workers) == 3
    assert len(running) >= 3 * TINY.rounds[0]
    assert not any(running)
    assert {case.status for case in cases} == {"ok"}


@pytest.mark.skipif(not STOPPABLE, reason="needs SIGSTOP")
def test_a_contestant_beside_spinning_ones_takes_as_long_as_alone(small):
    def seconds(*others: Contestant) -> list[float]:
        case, *_ = time_cases([contestant("Steady"), *others], small[:1], bench())
        return case.epochs()[0]

    # A shared machine may slow either; that it slows the same one three times is unlikely.
    for _ in range(3):
        alone, beside = seconds(), seconds(contestant("Spins"), contestant("Spins", threads=2))
        if median(beside) <= 1.5 * median(alone):
            return
    pytest.fail(f"{median(beside):.3g} s beside spinning processes, {median(alone):.3g} s alone")


def test_of_two_measurements_the_second_is_refused(small):
    with measuring() as shared:
        assert not shared
        with pytest.raises(Busy, match="another overhead measurement is running on this host"):
            run_cases([contestant("Steady")], small, bench())
        kept = run_cases([contestant("Steady")], small[:1], bench(force=True))
    assert kept[0].status == "ok"
    assert "another measurement ran at the same time (--force)" in kept[0].disturbed
    with measuring() as shared:  # and it is free again
        assert not shared


def test_a_rate_at_which_training_diverges_is_a_status_of_its_own():
    kept = run_cases([Contestant("numpy", "cpu", 1)], [Workload(images=640, learning_rate=1e4)], bench())
    assert kept[0].status == "diverged"
    assert "learning rate 10000" in (kept[0].reason or "")
    assert kept[0].epochs() == []


@pytest.mark.parametrize("name", ["Hangs", "NeverSaysHello"])
def test_an_interrupt_ends_every_worker(name, tmp_path):
    code = f"""
        import sys, time, fake_loops
        from overhead.measure.session import Session, PRESETS
        from overhead.measure.rounds import run_cases
        from overhead.problem.workload import Workload
        who = [fake_loops.contestant("Steady"), fake_loops.contestant("{name}")]
        print("begins", flush=True)
        run_cases(who, [Workload(images=200)], Session(PRESETS["quick"], {PROVENANCE!r}))
    """
    if name == "NeverSaysHello":  # the interrupt comes while workers are being started
        (tmp_path / "numpy").mkdir()
        code = code.replace('fake_loops.contestant("NeverSaysHello")', "sleeper").replace(
            "who =", f"sleeper = fake_loops.contestant('Steady', PYTHONPATH={str(tmp_path)!r}); who ="
        )
        (tmp_path / "numpy" / "__init__.py").write_text("import time; time.sleep(600)")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    ) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "begins\n"
            workers = _children_once_busy(parent)
            parent.send_signal(signal.SIGINT)
            _, said = parent.communicate(timeout=60)
        finally:
            parent.kill()
    assert "KeyboardInterrupt" in said
    assert len(workers) == 2
    for process in workers:
        assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert list(tmp_path.glob("overhead-*/*")) == []  # the copies of the images


def _children_once_busy(parent: subprocess.Popen[str]) -> list[psutil.Process]:
    """Both workers, a while after the second was started."""
    for _ in range(600):
        children = psutil.Process(parent.pid).children()
        if len(children) == 2 and all(time.time() - child.create_time() > 3 for child in children):
            return children
        assert parent.poll() is None
        time.sleep(0.1)
    raise AssertionError("the workers were not started")


def test_a_preset_changes_how_often_and_never_what():
    names = [preset.name for preset in PRESETS.values()]
    assert names == list(PRESETS)
    targets = [preset.target for preset in PRESETS.values()]
    assert targets == sorted(targets, reverse=True)
    assert PRESETS["full"].processes >= 5
    assert json.loads(json.dumps(PRESETS["quick"]._asdict()))["processes"] == 3
