"""What an exercise is, and what it says of an answer's form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from overhead.records.record import Record
from overhead.records.stats import Interval

Records = Sequence[Record]


class MissingRecord(LookupError):
    """What an exercise needs and the student's records lack, in words."""


class Trap(NamedTuple):
    """A wrong answer that is easy to come to: the value that the records give for it, and what went wrong."""

    value: Callable[[Records], float]
    says: str


class Exercise(NamedTuple):
    """A question of a student notebook, without its text: what it takes, and what the records answer.

    `truth` gives the interval of a number, or the words that are right (several where the records do not decide). It
    raises `MissingRecord` where the records lack what it needs.
    """

    name: str
    chapter: str
    takes: str  # a number's unit
    truth: Callable[[Records], Interval | tuple[str, ...]]
    hints: tuple[str, ...]  # in steps: the last one says how
    words: tuple[str, ...] = ()  # the answers to choose from; empty: a number
    within: float = 0.05  # how far outside the interval an answer may lie, as a share: what is read off is rounded
    trap: str = ""  # what the notebook's own code does wrong, where it is a trap
    traps: tuple[Trap, ...] = ()


def exact(value: float) -> Interval:
    """A count, which has no spread."""
    return Interval(value, value, value, 1)


def need(found: object, what: str) -> None:
    """Raise `MissingRecord` where nothing was found."""
    if not found:
        raise MissingRecord(what)
