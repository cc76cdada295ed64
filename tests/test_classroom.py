"""Exercises: student files without solutions, checks that fail unsolved and pass solved, sentences for the rest."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from overhead.chapters import CHAPTERS
from overhead.classroom import judging, student
from overhead.classroom.answers import MissingRecord
from overhead.classroom.desk import Desk
from overhead.classroom.exercises import EXERCISES
from overhead.classroom.judging import AnswerError
from overhead.cli import cli
from overhead.problem.workload import Workload
from overhead.records import record as records
from overhead.records.record import Record, Samples, Timing
from overhead.records.stats import Interval

ROOT = Path(__file__).resolve().parents[1]
INSTRUCTOR = sorted((ROOT / student.ROOM / "instructor").glob("*.ipynb"))
STUDENT = sorted((ROOT / student.ROOM / "student").glob("*.ipynb"))
REFERENCE = "epyc-2core"
LOOP = "10-your-loop"


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def cells_run(notebook: dict[str, Any], host: str) -> dict[str, Any]:
    """The names of a notebook whose code cells were run from top to bottom, with another host."""
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
        if "parameters" in cell["metadata"].get("tags", []):
            names["host"] = host
    return names


def your_loop() -> list[Record]:
    """A diagnosis and two pitfalls, as chapter 10 keeps them."""
    about: dict[str, Any] = {"host": REFERENCE, "notebook": LOOP, "device": "cpu", "loop": "numpy", "status": "ok"}
    said = {"verdict": "mixed: dispatch or memory", "certain": False, "shares": [], "advice": None}
    found = [Record(**about, workload=Workload(), diagnosis=said)]
    for name, times in (("float64", 1.6), ("one-image-at-a-time", 7.0)):
        series = {"plain": [100_000, 101_000, 99_000] * 3, "pitfall": [round(times * 1e5 + i) for i in range(9)]}
        samples = [
            Samples(clock=clock, steps=1, process=0, round=list(range(9)), ns=ns) for clock, ns in series.items()
        ]
        found.append(Record(**about, op=name, workload=Workload(), timing=Timing(samples=samples)))
    return found


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference host's records, with a made-up chapter where it has none yet."""
    at = tmp_path_factory.mktemp("results")
    (at / REFERENCE).mkdir()
    for chapter in CHAPTERS:
        path = ROOT / "results" / REFERENCE / f"{chapter}.jsonl"
        if path.exists():
            (at / REFERENCE / path.name).write_bytes(path.read_bytes())
    if not (at / REFERENCE / f"{LOOP}.jsonl").exists():
        records.write(at / REFERENCE / f"{LOOP}.jsonl", your_loop())
    return at


@pytest.fixture
def as_class(results: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OVERHEAD_RESULTS", str(results))
    return results


# Student files


def test_there_are_eight_student_notebooks_and_a_sheet_for_each():
    assert len(STUDENT) >= 8
    assert [path.stem for path in STUDENT] == [path.stem for path in INSTRUCTOR]
    assert all(path.with_suffix(".md").exists() for path in STUDENT)


def test_student_files_are_those_that_the_instructor_s_notebooks_make():
    made = student.generated(ROOT)
    there = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / student.ROOM / "student").iterdir()}

    assert there == made  # else: python -m overhead.classroom.student


@pytest.mark.parametrize("path", INSTRUCTOR, ids=lambda path: path.stem)
def test_a_student_file_holds_no_line_of_a_solution(path):
    lines = student.solutions(read(path))
    kept = {student.YOURS} | {
        line.strip()
        for cell in student.student_version(read(path))["cells"]
        if cell["cell_type"] == "code"
        for line in "".join(cell["source"]).splitlines()
        if "import" in line or line.startswith(("frame =", "rows =", "budget =", "terms ="))
    }  # what a trap's own cell needs as well
    assert len(lines) >= 6
    for name in (path.name, f"{path.stem}.md"):
        text = (path.parents[1] / "student" / name).read_text(encoding="utf-8")
        plain = "\n".join(strings(json.loads(text))) if name.endswith(".ipynb") else text
        assert "SOLUTION" not in text
        assert "What to say" not in text
        assert [line for line in lines if line not in kept and line in plain] == []
        assert not re.search(r"answer = (?!\.\.\.)", plain)


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for item in inner for text in strings(item)]


@pytest.mark.parametrize("source", ["# BEGIN SOLUTION\nanswer = 1", "# END SOLUTION", "# BEGIN SOLUTION\n" * 2])
def test_marks_that_do_not_match_are_refused(source):
    with pytest.raises(ValueError, match="SOLUTION"):
        student.without_solution(source)


def test_a_marked_stretch_becomes_one_place_to_fill_in():
    source = "a = 1\n# BEGIN SOLUTION\nsecret = 2\nanswer = secret\n# END SOLUTION\ncheck(answer)"

    assert student.without_solution(source) == f"a = 1\n{student.YOURS}\ncheck(answer)"


# Exercises


def test_a_chapter_has_three_exercises_of_which_one_is_a_trap():
    chapters = {path.stem for path in INSTRUCTOR}
    counts = Counter(exercise.chapter for exercise in EXERCISES.values())
    traps = Counter(exercise.chapter for exercise in EXERCISES.values() if exercise.trap)

    assert chapters == set(counts) <= set(CHAPTERS)
    assert len(chapters) >= 9
    assert all(counts[chapter] >= 3 and traps[chapter] >= 1 for chapter in chapters)
    kinds = {exercise.trap for exercise in EXERCISES.values()}
    assert kinds >= {
        "an unsynchronised timing", "a float64 by accident", "a dropped batch", "a noisy neighbour",
        "a mean of a blocking API time",
    }  # fmt: skip


@pytest.mark.parametrize("path", INSTRUCTOR, ids=lambda path: path.stem)
def test_an_instructor_s_notebook_runs_from_top_to_bottom_and_every_check_passes(path, as_class, capsys):
    names = cells_run(read(path), REFERENCE)

    asked = {name for name, exercise in EXERCISES.items() if exercise.chapter == path.stem}
    assert names["desk"].done == dict.fromkeys(asked, True), capsys.readouterr().out


@pytest.mark.parametrize("path", STUDENT, ids=lambda path: path.stem)
def test_an_unsolved_notebook_runs_and_every_check_fails_with_a_sentence(path, as_class, capsys):
    names = cells_run(read(path), REFERENCE)

    asked = {name for name, exercise in EXERCISES.items() if exercise.chapter == path.stem}
    assert names["desk"].done == dict.fromkeys(asked, False)
    said = capsys.readouterr().out
    assert said.count("the answer is empty") == len(asked)


@pytest.mark.parametrize("name", EXERCISES)
def test_a_check_passes_on_the_record_s_own_answer_and_not_on_another(name, as_class):
    exercise = EXERCISES[name]
    truth = judging.answered(exercise, judging.own_records(exercise.chapter, REFERENCE))
    if not isinstance(truth, Interval):
        wrong = next(word for word in exercise.words if word not in truth)
        assert all(judging.check(name, word, host=REFERENCE).right for word in truth)
        assert not judging.check(name, wrong, host=REFERENCE).right
        return
    assert judging.check(name, truth.median, host=REFERENCE).right
    assert judging.check(name, f"{truth.low:.9g}", host=REFERENCE).right
    for wrong in (truth.low / 4, truth.high * 4):
        found = judging.check(name, wrong, host=REFERENCE)
        assert not found.right
        assert "\n" not in found.says


@pytest.mark.parametrize("name", [name for name, exercise in EXERCISES.items() if exercise.trap])
def test_the_answer_of_a_trap_is_called_by_its_name(name, as_class):
    exercise = EXERCISES[name]
    trap = exercise.traps[0]
    value = trap.value(judging.own_records(exercise.chapter, REFERENCE))

    found = judging.check(name, value, host=REFERENCE)

    truth = judging.answered(exercise, judging.own_records(exercise.chapter, REFERENCE))
    if isinstance(truth, Interval) and truth.low * (1 - exercise.within) <= value <= truth.high * (1 + exercise.within):
        assert found.right, "on a noisy host the record's own interval may hold the trap's value"
        return
    assert found == (False, f"{name}: not yet: {trap.says}.")


@pytest.mark.parametrize("name", EXERCISES)
def test_hints_come_in_steps(name):
    hints = EXERCISES[name].hints
    assert len(hints) >= 2
    assert [judging.hint(name, step).rpartition(": ")[2] for step in range(1, len(hints) + 1)]
    for step in (0, len(hints) + 1, True, "1"):
        with pytest.raises(AnswerError, match=f"{name} has hints 1 to {len(hints)}, got"):
            judging.hint(name, step)  # type: ignore[arg-type]


# One sentence for what cannot be judged


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("sweep-dropped", (), "the answer is empty"),
        ("sweep-dropped", (None,), "the answer is empty"),
        ("sweep-dropped", (...,), "the answer is empty"),
        ("sweep-dropped", ("  ",), "the answer is empty"),
        ("sweep-dropped", ([],), "the answer is empty"),
        ("sweep-dropped", ("many",), "such as 12.5, got 'many'"),
        ("sweep-dropped", ("nan",), "got nan"),
        ("sweep-dropped", (float("inf"),), "got inf"),
        ("sweep-dropped", (True,), "got True"),
        ("sweep-dropped", ([45_056],), "got a list"),
        ("sweep-dropped", ("4", "5"), "got 2 answers"),
        ("sweep-dropped", (10**400,), "got a int"),
        ("budget-closes", (), "the answer is empty"),
        ("budget-closes", (1.0,), "got a float"),
        ("budget-closes", ("perhaps",), "got 'perhaps'"),
        ("no-such", (1,), "exercise must be one of"),
    ],
)
def test_an_answer_that_cannot_be_judged_gets_one_sentence(name, answer, says, as_class):
    with pytest.raises(AnswerError) as raised:
        judging.check(name, *answer, host=REFERENCE)

    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "right"),
    [("45056", True), ("45,056", True), (" 45056.0 ", True), (45_056, True), ("48,000", False), ("4,5056", None)],
)
def test_a_number_is_read_as_the_book_prints_it(answer, right, as_class):
    if right is None:
        with pytest.raises(AnswerError, match="got '4,5056'"):
            judging.check("sweep-dropped", answer, host=REFERENCE)
    else:
        assert judging.check("sweep-dropped", answer, host=REFERENCE).right is right


def test_a_missing_record_is_named_with_what_would_measure_it(tmp_path):
    with pytest.raises(MissingRecord, match="overhead run 05-batch-sweep"):
        judging.check("sweep-dropped", 1, results=tmp_path)


@pytest.mark.parametrize("name", EXERCISES)
def test_a_chapter_without_what_is_asked_gets_one_sentence(name, tmp_path):
    exercise = EXERCISES[name]
    other = Record(
        host="local", notebook=exercise.chapter, status="failed", reason="no such framework", loop="x", device="cpu"
    )
    records.write(tmp_path / "local" / f"{exercise.chapter}.jsonl", [other])

    with pytest.raises(MissingRecord, match=rf"^{name}: your records of {exercise.chapter} (lack|share) [^\n]+$"):
        judging.check(name, exercise.words[0] if exercise.words else 1.0, results=tmp_path)


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "05-batch-sweep.jsonl").write_text("{")

    with pytest.raises(MissingRecord, match=r"^results/local: 05-batch-sweep.jsonl: line 1"):
        judging.check("sweep-dropped", 1, results=tmp_path)


def test_the_notebook_s_desk_prints_and_never_raises(tmp_path, capsys):
    desk = Desk("05-batch-sweep", results=tmp_path)
    desk.check("sweep-dropped", 1)
    desk.check("no-such", 1)
    desk.check("sweep-dropped")
    desk.hint("sweep-dropped", 1)
    desk.hint("sweep-dropped", 9)

    assert len(capsys.readouterr().out.splitlines()) == 6
    assert desk.done == {"sweep-dropped": False, "no-such": False}


# The command


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["sweep-dropped", "45056"], 0, "sweep-dropped: right; your records say 45,056 images.\n"),
        (["sweep-dropped", "48000"], 1, "that many are there; the last, partial batch was dropped"),
        (["budget-closes", "does", "not", "close"], None, "budget-closes: "),
        (["sweep-dropped", "--hint", "1"], 0, "hint 1 of 3: Divide 48,000"),
        (["sweep-dropped"], 2, "the answer is empty"),
        (["sweep-dropped", "x"], 2, "got 'x'"),
        (["sweep-dropped", "1", "--host", "nobody"], 1, "is not in results/nobody yet"),
        (["sweep-dropped", "1", "--host", "../x"], 2, "host must be"),
    ],
)
def test_the_command_says_it_in_one_sentence(arguments, status, says, as_class):
    host = [] if "--host" in arguments else ["--host", REFERENCE]
    done = CliRunner().invoke(cli, ["check", *arguments, *host])

    assert says in done.output
    assert "Traceback" not in done.output
    assert status is None or done.exit_code == status
