"""Every source notebook, measured and executed on a setting of the tests' own: seconds long, and nothing to believe."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest

import overhead.chapters.batch_sweep.chapter as sweep
import overhead.chapters.ladder.chapter as ladder
from overhead.book import execute
from overhead.chapters import CHAPTERS, chapter_of
from overhead.chapters.batch_sweep import axes, quality
from overhead.chapters.clocks import chapter as clocks
from overhead.harness.experiments import Sizes
from overhead.measure import probing
from overhead.measure.session import Preset
from overhead.records import record as records
from test_notebooks import HIDES

TINY = Preset("quick", 0.5, 0.1, 1, (2, 2))
# Parameters and seconds that make a chapter short; every chapter has them, so that a new one is executed too.
ASKED: dict[str, dict[str, object]] = {
    "01-per-op-breakdown": {"steps": 50},
    "03-where-time-goes": {"batch_size": 4096},
    "05-batch-sweep": {"batch_sizes": [4096], "loops": ["numpy", "jax-step"]},
    "06-overhead-ladder": {"batch_size": 4096},
    "07-learning-rate-sweep": {"learning_rates": [0.1, 10.0], "epochs": 1, "batch_size": 4096, "models": [1]},
}


@pytest.fixture
def numpy_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers find no framework but NumPy, so that none of them takes long to start."""
    (tmp_path / "hides").mkdir()
    (tmp_path / "hides" / "sitecustomize.py").write_text(HIDES)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "hides"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setitem(probing.ROUNDS, "quick", 1)
    monkeypatch.setitem(quality.PLANS, "quick", quality.Plan((4096,), (0.1,), 1, 1, 1))
    monkeypatch.setitem(clocks.SIZES, "quick", Sizes(comparisons=20, fresh=2, trials=1, trial_s=0.2, loads=1, fakes=1))
    monkeypatch.setattr(ladder, "RUNGS", [rung for rung in ladder.RUNGS if "per-image" not in rung.loop])
    monkeypatch.setattr(sweep, "AXES", {**sweep.AXES, "quick": axes.Axes((4096,), ("numpy",))})


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAPTERS)
def test_a_source_notebook_is_measured_executed_and_shows_no_error(name, tmp_path, numpy_alone, monkeypatch):
    monkeypatch.setattr(chapter_of(name), "presets", {"quick": TINY})

    path = execute.run(name, {"host": "tiny", **ASKED.get(name, {})}, tmp_path / "results")

    cells = nbformat.read(path, 4).cells
    assert all(cell.execution_count for cell in cells if cell.cell_type == "code" and cell.source.strip())
    assert execute.is_complete(tmp_path / "results", "tiny", [name])
    kept = records.read(path.with_suffix(".jsonl"))
    assert kept
    assert {r.host for r in kept} == {"tiny"}
    assert all(r.status == "ok" or r.reason for r in kept)
