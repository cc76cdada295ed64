"""What an exercise's notebook calls: a student's desk for one chapter. It prints sentences and raises nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from overhead.chapters import chapter_of
from overhead.chapters.base import Chapter
from overhead.classroom import judging
from overhead.classroom.answers import MissingRecord, Records
from overhead.classroom.judging import AnswerError


class Desk:
    """`desk.records` of one chapter, `desk.chapter` to show them, `desk.check(NAME, ANSWER)`, `desk.hint(NAME, 1)`."""

    def __init__(self, name: str, host: str = "local", results: Path | None = None) -> None:
        self.name, self.host, self.results = name, host, results
        self.chapter: Chapter = chapter_of(name).checked(host=host)
        self.done: dict[str, bool] = {}
        self.records: Records = ()
        try:
            self.records = judging.own_records(name, host, results)
        except (AnswerError, MissingRecord) as missing:
            print(missing)

    def check(self, name: str, *answer: Any) -> None:
        """Print whether the answer is right by the records of this host; `done` keeps it."""
        self.done[name] = False
        try:
            found = judging.check(name, *answer, host=self.host, results=self.results)
        except (AnswerError, MissingRecord) as fault:
            print(fault)
            return
        self.done[name] = found.right
        print(found.says)

    def hint(self, name: str, step: int = 1) -> None:
        """Print the hint of a step, from 1."""
        try:
            print(judging.hint(name, step))
        except AnswerError as fault:
            print(fault)
