"""An answer against the student's own records: right or not, in one sentence, with a hint in steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from overhead.book import folder
from overhead.book.folder import FolderError
from overhead.chapters import provenance
from overhead.chapters.base import HOST_NAME, results_folder
from overhead.classroom.answers import Exercise, MissingRecord, Records
from overhead.classroom.exercises import EXERCISES
from overhead.records.stats import Interval
from overhead.showing import tables

NEAR = 0.1  # of a trap's value: an answer so near fell into it


class AnswerError(ValueError):
    """An answer that cannot be judged: the exercise, what it takes and what it got, in one sentence."""


class Checked(NamedTuple):
    """Whether an answer is right, and the sentence that says so."""

    right: bool
    says: str


def exercise_of(name: str) -> Exercise:
    """An exercise by its name. Raises `AnswerError` for a name that is none."""
    if name not in EXERCISES:
        of = [known for known in EXERCISES if known.partition("-")[0] == str(name).partition("-")[0]]
        raise AnswerError(f"exercise must be one of {', '.join(of or EXERCISES)}, got {str(name)[:60]!r}")
    return EXERCISES[name]


def check(name: str, *answer: Any, host: str = "local", results: Path | None = None) -> Checked:
    """Judge an answer on the records of `host`.

    Raises `AnswerError` for an unknown exercise, an empty answer or one of the wrong type, and `MissingRecord` where
    the host's records do not have what the exercise asks for.
    """
    exercise = exercise_of(name)
    given = _word(exercise, answer) if exercise.words else _number(exercise, answer)
    records = own_records(exercise.chapter, host, results)
    truth = answered(exercise, records)
    if not isinstance(truth, Interval):
        right = given in truth
        others = "" if len(truth) < 2 else f" ({' or '.join(truth)}: your intervals do not decide)"
        return Checked(right, f"{name}: {'right' if right else 'not what your records say'}{others if right else ''}.")
    assert isinstance(given, float)
    if _inside(given, truth, exercise.within):
        return Checked(True, f"{name}: right; your records say {_shown(truth)} {exercise.takes}.")
    for trap in exercise.traps:
        if abs(given - (value := _value(trap.value, records))) <= NEAR * abs(value):
            return Checked(False, f"{name}: not yet: {trap.says}.")
    side = "more" if given > truth.median else "less"
    return Checked(False, f"{name}: not yet: {given:g} {exercise.takes} is {side} than your records say.")


def hint(name: str, step: int = 1) -> str:
    """The hint of a step, from 1. Raises `AnswerError` for an unknown exercise or a step that is not there."""
    exercise = exercise_of(name)
    if isinstance(step, bool) or not isinstance(step, int) or not 1 <= step <= len(exercise.hints):
        raise AnswerError(f"{name} has hints 1 to {len(exercise.hints)}, got {step!r}")
    return f"{name}, hint {step} of {len(exercise.hints)}: {exercise.hints[step - 1]}"


def answered(exercise: Exercise, records: Records) -> Interval | tuple[str, ...]:
    """What the records say. Raises `MissingRecord` where they lack it."""
    try:
        truth = exercise.truth(records)
    except MissingRecord as missing:
        raise MissingRecord(f"{exercise.name}: your records of {exercise.chapter} lack {missing}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"what this exercise asks for ({type(error).__name__})"
        raise MissingRecord(f"{exercise.name}: your records of {exercise.chapter} lack {what}") from None
    if isinstance(truth, Interval) and not math.isfinite(truth.median):
        raise MissingRecord(f"{exercise.name}: your records of {exercise.chapter} share no turn to compare")
    return truth


def own_records(chapter: str, host: str = "local", results: Path | None = None) -> Records:
    """The student's records of a chapter. Raises `MissingRecord` where they are not there or cannot be read."""
    if not isinstance(host, str) or not HOST_NAME.fullmatch(host):
        raise AnswerError(f"host must be 1 to 64 letters, digits, '-' or '_', got {str(host)[:60]!r}")
    at = (results or own_results()) / host
    if not (at / f"{chapter}.jsonl").exists():
        raise MissingRecord(f"{chapter}.jsonl is not in results/{host} yet; measure it: overhead run {chapter}")
    try:
        return folder.read_records(at, chapter)
    except FolderError as error:
        raise MissingRecord(f"results/{host}: {error}") from None


def own_results() -> Path:
    """The results folder of this class: the usual one where it exists, else that of the checkout (a notebook in it)."""
    usual, root = results_folder(), provenance.checkout()
    return usual if usual.is_dir() or root is None else root / "results"


def _number(exercise: Exercise, answer: Sequence[Any]) -> float:
    takes = f"{exercise.name} takes one number ({exercise.takes})"
    given: Any = answer[0] if answer else None
    if len(answer) > 1:
        raise AnswerError(f"{takes}, got {len(answer)} answers")
    if _is_empty(given):
        raise AnswerError(f"{takes}; the answer is empty")
    if isinstance(given, str):
        try:
            given = float(given.strip().replace(",", "") if _thousands(given.strip()) else given)
        except ValueError:
            raise AnswerError(f"{takes}, such as 12.5, got {given[:40]!r}") from None
    try:
        value = float(given)
    except (TypeError, ValueError, OverflowError):
        raise AnswerError(f"{takes}, got a {type(given).__name__}") from None
    if isinstance(given, bool) or not math.isfinite(value):
        raise AnswerError(f"{takes}, got {given!r}")
    return value


def _thousands(text: str) -> bool:
    """Whether commas part thousands, as the book's tables print them."""
    whole, *groups = text.partition(".")[0].split(",")
    return whole.isdigit() and len(whole) <= 3 and all(len(group) == 3 and group.isdigit() for group in groups)


def _word(exercise: Exercise, answer: Sequence[Any]) -> str:
    takes = f"{exercise.name} takes one of: {', '.join(exercise.words)}"
    if not answer or all(_is_empty(part) for part in answer):
        raise AnswerError(f"{takes}; the answer is empty")
    if not all(isinstance(part, str) for part in answer):
        kind = next(type(part).__name__ for part in answer if not isinstance(part, str))
        raise AnswerError(f"{takes}, got a {kind}")
    given = " ".join(" ".join(answer).lower().split())
    if given not in exercise.words:
        raise AnswerError(f"{takes}, got {given[:40]!r}")
    return given


def _is_empty(given: Any) -> bool:
    return (
        given is None
        or given is ...
        or (isinstance(given, str | list | tuple | dict) and not len(given))
        or (isinstance(given, str) and not given.strip())
    )


def _inside(given: float, truth: Interval, within: float) -> bool:
    slack = within * abs(truth.median) + 1e-9 * abs(truth.median)
    return truth.low - slack <= given <= truth.high + slack


def _value(value: Any, records: Records) -> float:
    """What a trap would have shown; nan where the records lack it, which no answer is near."""
    try:
        return float(value(records))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return math.nan


def _shown(truth: Interval) -> str:
    return f"{truth.median:,g}" if truth.low == truth.high else tables.interval(truth)
