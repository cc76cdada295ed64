"""`overhead diagnose` on files as readers write them: what it says, what it refuses, that nothing is left running."""

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from overhead.cli import cli
from overhead.diagnose.competitor import Competitor
from overhead.diagnose.interventions import Condition
from overhead.diagnose.session import MOST_PRINTED, Failed, Session, Target
from overhead.diagnose.subject import Subject
from overhead.diagnose.templates import TEMPLATES
from overhead.loops import Declined
from overhead.machine import host

READER = f"""
import subprocess, time
import numpy as np

w = np.zeros((64, 8))

def make_batch(n):
    return np.ones((n, 64))

def step(x):
    w[:] += x.T @ (x @ w + 1) * 1e-6
    return w

def raises(x):
    raise ValueError("bad\\nnumbers")

def leaves(x):
    raise SystemExit(3)

def generates(x):
    yield 1

def never_ends(x):
    subprocess.Popen(["sleep", "987654"])
    time.sleep(1000)

def prints(x):
    print("x" * {3 * MOST_PRINTED})
    return step(x)

def changes_nothing(x):
    return x.sum()

def ignores_n(n):
    return np.ones((7, 64))

def batch_raises(n):
    raise KeyError("k")

not_a_function = 3
"""


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(READER)
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["diagnose", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("mine.py", "must be FILE:FUNCTION"),
        ("none.py:step", "there is none called none.py"),
        ("mine.txt:step", "there is none called mine.txt"),
    ],
)
def test_wrong_use_is_refused_before_anything_starts(reader, step, said):
    code, out, err = run(reader.parent / step)

    assert code == 2
    assert said in err
    assert out == ""


@pytest.mark.parametrize("arguments", [[], ["--self-check", "--template", "jax"], ["a.py:step", "--template", "jax"]])
def test_one_of_the_three_things_is_asked_for(arguments):
    assert run(*arguments)[0] == 2


@pytest.mark.parametrize(
    ("function", "make", "said"),
    [
        ("nothing", "make_batch", "mine.py must have a function 'nothing' (mine.py:nothing names it), got none"),
        ("not_a_function", "make_batch", "got int"),
        ("step", "nothing", "must have a function 'nothing' (give its name with --make)"),
        ("raises", "make_batch", "raises raised ValueError: bad numbers (mine.py, line "),
        ("leaves", "make_batch", "leaves raised SystemExit: 3"),
        ("generates", "make_batch", "got generator, which cannot be waited for"),
        ("prints", "make_batch", "prints must print at most 1,000,000 characters a step"),
        ("step", "ignores_n", "ignores_n(n) must give n examples, got 7 for n = 32 and for n = 64"),
        ("step", "batch_raises", "batch_raises(32) raised KeyError: 'k' (mine.py, line "),
    ],
)
def test_what_cannot_be_diagnosed_is_told_in_a_line(reader, function, make, said):
    code, out, err = run(f"{reader}:{function}", "--make", make, "--seconds", 20)

    assert code == 1
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert str(reader.parent) not in err
    assert out == ""
    assert not children()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def step(:", "mine.py cannot be imported: SyntaxError"),
        ("import no_such_module", "mine.py cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("import os; os._exit(3)", "the worker exited with 3"),
    ],
)
def test_a_file_that_does_not_load_is_told_in_a_line(reader, text, said):
    reader.write_text(text)

    code, _, err = run(f"{reader}:step")

    assert code == 1
    assert said in err
    assert not children()


def test_a_step_that_never_ends_is_ended_with_what_it_started(reader):
    code, _, err = run(f"{reader}:never_ends", "--seconds", 5)

    assert code == 1
    assert "never_ends did not end within 5 s; killed" in err
    assert not children()
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "987654"]]


def children() -> list[psutil.Process]:
    return [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def test_the_document_has_its_keys(reader):
    code, out, err = run(f"{reader}:step", "--seconds", 6, "--json")

    assert code == 0, err
    found = json.loads(out)
    assert {"verdict", "certain", "elasticities", "step_us", "advice", "warnings"} <= set(found)
    assert {"intervention", "median", "low", "high"} == set(found["elasticities"][0])
    assert {"median", "low", "high"} == set(found["step_us"])
    assert found["advice"] is None or {"change", "gain", "low", "high"} == set(found["advice"])
    assert not children()


def test_a_producer_that_sleeps_is_found_and_made_ready_ahead(reader):
    reader.write_text(
        READER + "\ndef sleeps(x):\n    time.sleep(0.01)\n    return step(x)\n"
        "\ndef batches():\n    while True:\n        time.sleep(0.03)\n        yield make_batch(32)\n"
    )

    code, out, err = run(f"{reader}:sleeps", "--seconds", 20, "--try", "--json")

    assert code == 0, err
    found = json.loads(out)
    assert found["verdict"] == "input-bound"
    assert found["advice"]["change"].startswith("batches made ready by a thread")
    assert found["tried"]["gain"] == pytest.approx(found["advice"]["gain"], rel=0.15)


def test_a_step_that_changes_nothing_gets_a_warning(reader):
    with Session(Target(reader, "changes_nothing"), 60) as session:
        session.ask("hello")
        warnings = session.ask("first", n=32)["warnings"]
    with Session(Target(reader), 60) as session:
        session.ask("hello")
        assert session.ask("first", n=32)["warnings"] == []

    assert warnings == ["no array of mine.py was seen to change in a step: is it a training step?"]


def test_each_condition_does_what_it_says(reader):
    reader.write_text(
        READER + "\ndef batches():\n    while True:\n        time.sleep(0.02)\n        yield make_batch(32)\n"
        "\ndef sleeps(x):\n    time.sleep(0.01)\n    return step(x)\n"
    )

    def take(session: Session, **condition: object) -> dict[str, int]:
        return session.ask("sample", n=32, steps=3, condition=Condition(**condition)._asdict())

    with Session(Target(reader, "sleeps"), 60) as session:
        session.ask("hello")
        plain, piped, ahead = take(session), take(session, pipeline=True), take(session, pipeline=True, prefetch=True)
        spun, hooked = take(session, spin_ns=5_000_000), take(session, hook_ns=1_000_000)
        counted = session.ask("census", n=32)

    assert plain["ns"] > 3 * 10e6
    assert plain["cpu_ns"] < plain["ns"] / 2  # it sleeps
    assert piped["ns"] >= 3 * 30e6
    assert ahead["ns"] < piped["ns"]
    assert spun["spun_ns"] >= 3 * 5_000_000
    assert hooked["spun_ns"] >= 3 * 1_000_000
    assert counted["calls"] > 1
    assert counted["beyond_ns"] > 9e6


@pytest.mark.skipif(host.cores_allowed() < 2, reason="a competitor has a core of its own")
def test_a_competitor_works_only_when_asked():
    competitor = Competitor("registers", 0)
    try:
        assert competitor.works
        process = psutil.Process(competitor._process.pid)
        until = time.monotonic() + 10
        while process.status() != psutil.STATUS_STOPPED and time.monotonic() < until:
            time.sleep(0.01)  # the signal is on its way
        used = competitor.cpu_seconds()
        time.sleep(0.2)
        assert competitor.cpu_seconds() == used
        competitor.go()
        while competitor.cpu_seconds() == used and time.monotonic() < until:
            time.sleep(0.05)
        assert competitor.cpu_seconds() > used
    finally:
        competitor.close()
    assert not children()


def test_a_batch_without_a_length_is_no_fault(tmp_path):
    (tmp_path / "bare.py").write_text("def make_batch(n):\n    return n\ndef step(n):\n    return n\n")

    assert "was not checked" in Subject(tmp_path / "bare.py", "step", "make_batch").check_batches(4)[0]


def test_queued_work_that_cannot_be_waited_for_is_refused(tmp_path, monkeypatch):
    (tmp_path / "queued.py").write_text("def make_batch(n):\n    return [0] * n\ndef step(n):\n    return None\n")
    for framework in ("jax", "tensorflow", "torch", "cupy"):  # what other tests have imported
        monkeypatch.delitem(sys.modules, framework, raising=False)
    subject = Subject(tmp_path / "queued.py", "step", "make_batch")
    subject.wait(None)
    monkeypatch.setitem(sys.modules, "cupy", sys)

    with pytest.raises(Declined, match="must return what can be waited for"):
        subject.wait(None)


def test_a_session_that_fails_says_why(reader):
    with Session(Target(reader, "raises"), 30) as session, pytest.raises(Failed, match="raises raised ValueError"):
        session.take()


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_a_file_with_a_step(name):
    code, out, _ = run("--template", name)

    assert code == 0
    compile(out, name, "exec")
    assert "def step(batch):" in out
    assert "def make_batch(n):" in out


@pytest.mark.long
@pytest.mark.parametrize("name", ["numpy", "jax", "keras", "tf"])
def test_a_template_runs_as_it_is(name, tmp_path):
    pytest.importorskip({"tf": "tensorflow"}.get(name, name))
    path = tmp_path / "mine.py"
    path.write_text(TEMPLATES[name])

    done = subprocess.run(
        [sys.executable, "-m", "overhead", "diagnose", f"{path}:step", "--seconds", "30", "--json"],
        capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "no array" not in " ".join(found["warnings"])
    assert found["step_us"]["low"] > 0
