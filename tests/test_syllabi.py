"""The plans of a workshop: what they run exists and is there in time, and a rehearsal with a clock says where not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from overhead.book.syllabi import FOUR_HOURS, SYLLABI, TWO_HOURS, Slot, Syllabus, chapters_of, table
from overhead.chapters import CHAPTERS
from overhead.cli import cli

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def rehearse() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rehearse", ROOT / "scripts" / "rehearse.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rehearse"] = module
    spec.loader.exec_module(module)
    return module


def about(command: str) -> float:
    """Seconds of a command by the table of chapters, in the quick preset, and a minute for any other."""
    return sum(CHAPTERS[chapter].seconds[0] for chapter in chapters_of(command)) or 60.0


@pytest.mark.parametrize(("plan", "minutes"), [(TWO_HOURS, 120), (FOUR_HOURS, 240)])
def test_a_plan_lasts_as_long_as_its_name_says_and_is_there_in_time(
    plan: Syllabus, minutes: int, rehearse: ModuleType
) -> None:
    assert plan.minutes == minutes
    rows, late = rehearse.played(plan, about)
    assert late == []
    assert len(rows) == len(plan.slots)


@pytest.mark.parametrize("plan", SYLLABI.values(), ids=list(SYLLABI))
def test_every_command_of_a_plan_exists_and_every_page_is_measured_before_it_is_read(plan: Syllabus) -> None:
    there: set[str] = set()
    for slot in plan.slots:
        assert set(slot.needs) <= there, slot.title
        for command in slot.runs:
            program, name, *rest = command.split()
            assert program == "overhead"
            assert name in cli.list_commands(click.Context(cli))
            assert CliRunner().invoke(cli, [name, "--help"]).exit_code == 0
            assert set(chapters_of(command)) == {word for word in rest if not word.startswith("-")} & set(CHAPTERS)
            there |= set(chapters_of(command))


def test_a_page_that_comes_late_or_never_is_named_with_its_minute(rehearse: ModuleType) -> None:
    slow = Slot(5, "First", "", runs=("overhead run 01-per-op-breakdown",))
    plan = Syllabus("plan", "Plan", (slow, Slot(5, "Second", "", needs=("01-per-op-breakdown", "04-profile"))))

    _, late = rehearse.played(plan, lambda command: 420.0)

    assert late == [
        "Second (minute 5): 01-per-op-breakdown is there at minute 7.0", "Second (minute 5): 04-profile is there never",
    ]  # fmt: skip
    assert rehearse.played(plan._replace(slots=plan.slots[:1]), lambda command: 420.0)[1] == []


def test_commands_wait_for_the_one_before_them(rehearse: ModuleType) -> None:
    first = Slot(5, "First", "", runs=("overhead run 01-per-op-breakdown", "overhead run 05-batch-sweep"))
    plan = Syllabus("plan", "Plan", (first, Slot(5, "Second", "", needs=("05-batch-sweep",))))

    _, late = rehearse.played(plan, lambda command: 180.0)

    assert late == ["Second (minute 5): 05-batch-sweep is there at minute 6.0"]


def test_the_table_says_whose_minutes_they_are() -> None:
    took = {chapter: (float(info.seconds[0]), "about") for chapter, info in CHAPTERS.items()}
    text = table(TWO_HOURS, took | {"06-overhead-ladder": (186.0, "epyc-2core, quick")})

    assert "| 40-60 | **The batch sweep.**" in text
    assert "3.1 (epyc-2core, quick)" in text
    assert text.count("To expect:") == sum(bool(slot.wrong) for slot in TWO_HOURS.slots)
