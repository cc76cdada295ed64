"""Every table, figure and sentence of every chapter, of records that lack what it is about."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from overhead.chapters import CHAPTERS, chapter_of
from overhead.chapters.pages import Html, Markdown
from overhead.loops import frameworks
from overhead.loops.base import STEP_OPS
from overhead.records import record as records
from overhead.records.record import Record
from overhead.showing.figures import Figure

ROOT = Path(__file__).resolve().parents[1]
HOST, NOTEBOOKS = ROOT / "results" / "epyc-2core", ROOT / "notebooks"
RESULTS = (
    "timing", "agreement", "val_accuracy", "census", "page_faults", "probe", "cost", "profile", "timeline", "timer",
    "model",
)  # fmt: skip
WHY = "the process died: out of memory"
OF_AN_OP = {*STEP_OPS, "step", "empty"}  # a case that failed has one record, and it is of no op
LIBRARIES = {"numpy": {"numpy"}, "jax": {"jax"}, "tensorflow": {"tensorflow", "keras"}}  # Keras comes with TensorFlow


@cache
def measured(stem: str) -> tuple[Record, ...]:
    """What a host with two cores and no GPU measured for a chapter; nothing where it has yet to."""
    if not (HOST / f"{stem}.jsonl").exists():
        return ()
    return tuple(records.read(HOST / f"{stem}.jsonl"))


def without_result(record: Record, status: str, reason: str) -> Record:
    """The record that this case has where it could not be measured."""
    member = record.member
    if member and "own_weights" in member:
        member = {**member, "loss": [], "val_accuracy": [], "diverged_at": None}
    elif member:
        member = {"part": member["part"]}
    keeps_op = record.op not in OF_AN_OP and record.probe is None
    nothing: dict[str, Any] = dict.fromkeys(RESULTS)
    told: dict[str, Any] = {"status": status, "reason": reason, "member": member, "settings": {}, "notes": []}
    return record.model_copy(update={**nothing, **told, "op": record.op if keeps_op else None})


def sampled(record: Record, most: int) -> Record:
    """The record with at most so many samples of each series of its first process."""
    if record.timing is None or not record.timing.samples:
        return record
    first = min(s.process for s in record.timing.samples)
    kept = [
        s.model_copy(
            update={
                "round": s.round[:most],
                "seconds": s.seconds and s.seconds[:most],
                "ns": s.ns and s.ns[:most],
            }
        )
        for s in record.timing.samples
        if s.process == first
    ]
    return record.model_copy(update={"timing": record.timing.model_copy(update={"samples": kept})})


def on_one_core(found: Sequence[Record]) -> list[Record]:
    """What a host with one core has: nothing with two threads, and no case with one thread beside it."""
    alone = [r.model_copy(update={"threads": 1 if r.threads else r.threads, "cores_allowed": 1}) for r in found]
    pairs = zip(alone, found, strict=True)
    doubled = {_case(r) for r, was in pairs if was.threads != 1}
    pairs = zip(alone, found, strict=True)
    return [r for r, was in pairs if was.threads != 1 or _case(r) not in doubled]


def _case(record: Record) -> tuple[Any, ...]:
    return record.loop, record.device, record.op, str(record.workload), str(record.env), str(record.probe)


def without(name: str) -> Callable[[Sequence[Record]], list[Record]]:
    """What a host has where a framework is not installed."""

    def reduced(found: Sequence[Record]) -> list[Record]:
        return [
            without_result(r, "declined", f"{name} is not installed")
            if frameworks.of_loop(r.loop).name in LIBRARIES[name]
            else r
            for r in found
        ]

    return reduced


CASES: dict[str, Callable[[Sequence[Record]], list[Record]]] = {
    "no record": lambda found: [],
    "only failed records": lambda found: [without_result(r, "failed", WHY) for r in found],
    "one sample": lambda found: [sampled(r, 1) for r in found],
    "one process": lambda found: [sampled(r, 10**6) for r in found],
    "one core": on_one_core,
    **{f"no {name}": without(name) for name in LIBRARIES},
}


def shown_by(stem: str) -> list[str]:
    """Public methods of a chapter that take its records and nothing else: its tables, figures, sentences, frames."""
    found = inspect.getmembers(chapter_of(stem), inspect.isfunction)
    return [
        name for name, method in found
        if not name.startswith("_") and list(inspect.signature(method).parameters) == ["self", "records"]
    ]  # fmt: skip


def _draws(stem: str, name: str) -> bool:
    return "Figure" in str(get_type_hints(getattr(chapter_of(stem), name))["return"])


EVERY = [
    pytest.param(stem, name, case, marks=[pytest.mark.slow] if _draws(stem, name) else [])
    for stem in CHAPTERS
    for name in shown_by(stem)
    for case in CASES
]


@pytest.mark.parametrize(("stem", "name", "case"), EVERY)
def test_what_is_missing_is_said_and_the_rest_is_shown(stem: str, name: str, case: str) -> None:
    shown = getattr(chapter_of(stem)(), name)(CASES[case](measured(stem)))

    if isinstance(shown, Markdown):
        assert shown.text.strip()
    elif isinstance(shown, Html):
        assert "<td" in shown.text or re.fullmatch(r"<p>.+\.</p>", shown.text)  # no head over nothing
    elif isinstance(shown, Figure):
        assert shown.alt.strip()
        assert b"<svg" in shown._render(False, "svg")
    if isinstance(shown, Markdown | Html):
        assert not re.search(r"\bnan\b|\bNone\b(?! of)", shown.text)


PLANTED = "<img src=x onerror=alert(1)> [x](javascript:alert(1)) {{ x }}"
PLANTING: dict[str, Callable[[Record], Record]] = {
    "failed": lambda r: without_result(r, "failed", PLANTED),
    "measured": lambda r: r.model_copy(
        update={"notes": [PLANTED], "device_name": PLANTED, "disturbed": [PLANTED]}
        | ({"tool": PLANTED} if r.tool else {})
    ),
}


@pytest.mark.parametrize("stem", CHAPTERS)
@pytest.mark.parametrize("planting", PLANTING.values(), ids=PLANTING)
def test_what_a_record_says_is_shown_letter_by_letter(stem: str, planting: Callable[[Record], Record]) -> None:
    """Reasons, tools and notes come from frameworks and profiles, and reach executed notebooks as well as the book."""
    found = [planting(record) for record in measured(stem)]
    for name in shown_by(stem):
        if not _draws(stem, name):
            shown = getattr(chapter_of(stem)(), name)(found)
            if isinstance(shown, Markdown):
                assert not re.search(r"(?<!\\)(<img src=x|\]\(javascript|\{\{)", shown.text), (name, shown.text)
            if isinstance(shown, Html):
                assert "<img src=x" not in shown.text, name


def test_every_table_and_figure_of_the_notebooks_is_among_them() -> None:
    """What a notebook calls with records is tried above, unless it needs none."""
    for stem in CHAPTERS:
        cells = json.loads((NOTEBOOKS / f"{stem}.ipynb").read_text())["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        assert set(re.findall(r"chapter\.(\w+)\(records\)", code)) <= set(shown_by(stem))
