"""What makes a page stale: a change of what measured it, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from overhead.chapters import CHAPTERS, provenance
from overhead.chapters.provenance import PACKAGE, code_sha256, measuring, stale, stamped
from overhead.records.record import Record

SWEEP = "05-batch-sweep"


def record(loop: str = "numpy", **more: object) -> Record:
    fields = {"host": "made-up", "notebook": SWEEP, "status": "ok", "loop": loop, "device": "cpu"}
    return Record.model_validate({**fields, **more})


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package's source that a test may change."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "overhead", ignore=shutil.ignore_patterns("__pycache__")))


def change(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")


def test_records_that_were_just_stamped_are_fresh():
    assert stale(stamped([record(), record("jax-epoch"), record("floor-xla")])) is None


@pytest.mark.parametrize(
    "changed",
    ["measure/clock.py", "problem/mlp.py", "loops/numpy_.py", "loops/base.py", "chapters/batch_sweep/chapter.py"],
)
def test_a_change_of_what_measures_makes_a_page_stale(package, changed):
    found = stamped([record()])

    assert stale(found, package) is None
    change(package / changed)
    assert "its measuring code has changed since" in (stale(found, package) or "")


@pytest.mark.parametrize(
    "changed",
    [
        "loops/jax_.py", "loops/numpy_many.py", "chapters/ladder/chapter.py", "showing/tables.py", "book/build.py",
        "chapters/batch_sweep/claims.py", "cli.py",
    ],
)  # fmt: skip
def test_prose_and_other_loops_and_chapters_do_not(package, changed):
    found = stamped([record()])
    change(package / changed)

    assert stale(found, package) is None


def test_only_the_loop_that_changed_is_named(package):
    found = stamped([record(), record("jax-epoch")])
    change(package / "loops" / "jax_.py")

    assert stale(found, package) == "measured by an earlier version; jax-epoch: its measuring code has changed since"


def test_a_record_with_a_checksum_of_everything_or_none_is_of_an_earlier_version():
    for checksum in ("f" * 64, None):
        assert "earlier version" in (stale([record(code_sha256=checksum)]) or "")


def test_a_loop_by_its_class_has_the_file_that_it_stands_in():
    found = measuring(SWEEP, "overhead.loops.keras_xla:KerasFitXlaLoop")
    files = {path.relative_to(PACKAGE).as_posix() for path in found}

    assert "loops/keras_xla.py" in files
    assert "loops/numpy_.py" not in files


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_chapter_s_folder_is_part_of_what_measures(chapter):
    folder = PACKAGE / "chapters" / CHAPTERS[chapter].folder
    files = measuring(chapter, "numpy")

    assert folder / "chapter.py" in files
    assert len(code_sha256(chapter, "numpy")) == 64
    assert not any(path.name in provenance.NOT_MEASURING for path in files)
