"""A host that only measures needs few packages: every other import is blocked, in the command and in its workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from overhead.records import record as records

TESTS = Path(__file__).parent
ROOT = TESTS.parent
# What the kit asks of a machine, what these need themselves, and the frameworks.
NEEDED = {
    "numpy", "scipy", "pandas", "dateutil", "six", "pytz", "tzdata", "pydantic", "pydantic_core", "annotated_types",
    "typing_extensions", "typing_inspection", "click", "psutil", "threadpoolctl", "jax", "jaxlib", "ml_dtypes",
    "opt_einsum", "overhead",
}  # fmt: skip
BLOCKER = f"""
import importlib.machinery, sys
class Few(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        spec = super().find_spec(name, path, target)
        where = str(spec and (spec.origin or list(spec.submodule_search_locations or [""])[0]))
        return None if path is None and name not in {sorted(NEEDED)!r} and "site-packages" in where else spec
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Few
"""
CHAPTER = "01-per-op-breakdown"


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python without the other packages; its workers inherit it."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src"), str(TESTS)])
    return {**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)}


def run(bare: dict[str, str], *arguments: str, code: str = "import faults; faults.tiny()") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=bare, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


def test_the_other_packages_are_blocked(bare):
    for name in ("papermill", "matplotlib", "yaml", "rich", "keras"):
        status, _, said = run(bare, code=f"import {name}")
        assert status == 1
        assert f"No module named '{name}'" in said


def test_everything_that_measures_can_be_imported(bare):
    listed = "import json; from overhead.chapters import CHAPTERS, chapter_of; "
    code = f"import overhead.book.command; {listed} print(json.dumps([chapter_of(name).name for name in CHAPTERS]))"
    status, names, said = run(bare, code=code)
    assert status == 0, said
    assert CHAPTER in json.loads(names)


@pytest.mark.slow
def test_a_chapter_is_measured_into_records_without_a_page(bare, tmp_path):
    asked = ["run", CHAPTER, "--host", "bare", "--records-only", "--results", str(tmp_path / "results")]
    status, _, said = run(bare, *asked, "-p", "steps", "0x32")
    assert status == 2
    assert "-p steps: must be JSON where PyYAML is missing, got '0x32'" in said
    status, _, said = run(bare, *asked, "-p", "steps", "50")
    assert status == 0, said
    assert sorted(path.name for path in (tmp_path / "results" / "bare").iterdir()) == [f"{CHAPTER}.jsonl", "host.json"]
    found = records.read(tmp_path / "results" / "bare" / f"{CHAPTER}.jsonl")
    assert {record.loop for record in found if record.status == "ok"} == {"numpy", "jax-op-by-op"}
