"""The two first chapters by the plain `papermill` command, from a folder that is no checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest

from overhead.chapters import CHAPTERS, chapter_of
from overhead.chapters.base import ParameterError, injected_values
from overhead.records import record as records

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
# Of the kernel and of its workers: the frameworks that take long to import are hidden as if they were not
# installed, and one core is allowed, so that half as many floors are measured and no pool spins beside another.
HIDES = """
import importlib.machinery, os, sys

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

class Hides(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in {"jax", "jaxlib", "tensorflow", "keras", "cupy"}:
            return super().find_spec(name, path, target)

sys.meta_path = [Hides if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
"""


def papermill(stem: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`papermill NOTEBOOK out.ipynb …` in `cwd`, with a lock of its own and NumPy as the only framework."""
    (cwd / "hides").mkdir(exist_ok=True)
    (cwd / "hides" / "sitecustomize.py").write_text(HIDES)
    env = {**os.environ, "PYTHONPATH": str(cwd / "hides"), "TMPDIR": str(cwd)}
    env.pop("OVERHEAD_RESULTS", None)
    return subprocess.run(
        [sys.executable, "-m", "papermill", str(NOTEBOOKS / f"{stem}.ipynb"), "out.ipynb", *arguments],
        capture_output=True, text=True, timeout=570, cwd=cwd, env=env,
    )  # fmt: skip


def shown(path: Path) -> str:
    """What a reader of an executed notebook sees, and its sources."""
    cells = nbformat.read(path, 4).cells
    return json.dumps([[cell.source, cell.get("outputs", [])] for cell in cells], ensure_ascii=False)


@pytest.mark.long
def test_the_sweep_without_frameworks_says_why_rows_are_missing(tmp_path):
    rest = "{learning_rate: 5e-2, loops: [numpy, keras-fit, jax-step]}"
    quiet = ("--log-output", "--no-progress-bar")
    done = papermill("05-batch-sweep", "-p", "batch_sizes", "[4096]", "-y", rest, *quiet, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]

    kept = records.read(tmp_path / "results" / "local" / "papermill" / "05-batch-sweep.jsonl")
    of_sweep = [r for r in kept if r.op is None and r.member is None and r.workload and r.workload.remainder == "drop"]
    rows = {record.loop: record for record in of_sweep}
    assert rows["numpy"].status == "ok"
    assert (rows["keras-fit"].status, rows["keras-fit"].reason) == ("declined", "keras is not installed")
    assert (rows["jax-step"].status, rows["jax-step"].reason) == ("declined", "jax is not installed")
    assert (rows["floor-xla"].status, rows["floor-xla"].reason) == ("declined", "jax is not installed")
    for record in of_sweep:
        workload = record.trained
        assert (workload.batch_size, workload.learning_rate) == (4096, 0.05)  # 5e-2 is a text in YAML
        assert (workload.steps, workload.images_seen) == (11, 45_056)
        assert record.data == "mnist@ba8910" or record.status != "ok"
    assert json.loads((tmp_path / "results" / "local" / "papermill" / "host.json").read_text())["cores_allowed"] >= 1

    page = shown(tmp_path / "out.ipynb")
    assert "declined: keras is not installed" in page  # which comes with TensorFlow
    assert "declined: jax is not installed" in page
    for absolute in (str(tmp_path), str(ROOT), str(Path.home()) + "/", tempfile.gettempdir()):
        assert absolute not in page
    code = [cell for cell in nbformat.read(tmp_path / "out.ipynb", 4).cells if cell.cell_type == "code"]
    assert len(done.stderr.splitlines()) < 10 * len(code)  # no flood: papermill itself says two lines a cell and more
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_ops_without_frameworks_are_those_of_numpy(tmp_path):
    done = papermill("01-per-op-breakdown", "-p", "steps", "50", "--no-progress-bar", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]

    kept = records.read(tmp_path / "results" / "local" / "papermill" / "01-per-op-breakdown.jsonl")
    ops = {record.op for record in kept if record.loop == "numpy"}
    assert {"z1", "a1", "z2", "softmax", "dz2", "dw2", "da1", "dz1", "dw1", "w1", "b1", "w2", "b2"} <= ops
    others = {record.loop: (record.status, record.reason) for record in kept if record.loop != "numpy"}
    assert others["tf-eager"] == ("declined", "tensorflow is not installed")
    assert "tensorflow is not installed" in shown(tmp_path / "out.ipynb")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-p", "batch_sizes", "big"], r"ParameterError: batch_sizes must be a list such as \[32, 128\].*, got 'big'"),
        (["-p", "batch_size", "256"], "ParameterError: 05-batch-sweep has no parameter batch_size; it has host, "),
    ],
)
def test_what_cannot_be_used_stops_papermill_at_the_first_cell(tmp_path, arguments, says):
    (tmp_path / "results" / "local").mkdir(parents=True)
    (tmp_path / "results" / "local" / "05-batch-sweep.jsonl").write_text("kept")
    done = papermill("05-batch-sweep", *arguments, "--no-progress-bar", cwd=tmp_path)

    assert done.returncode == 1
    last = [line for line in done.stderr.splitlines() if line.strip()][-1]
    assert re.match(says, last), last
    assert [path.name for path in (tmp_path / "results" / "local").iterdir()] == ["05-batch-sweep.jsonl"]
    assert (tmp_path / "results" / "local" / "05-batch-sweep.jsonl").read_text() == "kept"


# The same check without a kernel: what papermill injects is a cell, and a notebook's names are its globals.


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OVERHEAD_RESULTS", raising=False)


def as_injected(stem: str, **injected: Any) -> Any:
    """The chapter of a notebook with `injected` below its parameters, as papermill writes them."""
    source = nbformat.read(NOTEBOOKS / f"{stem}.ipynb", 4)
    (tagged,) = [cell for cell in source.cells if "parameters" in cell.metadata.get("tags", [])]
    cell = "# Parameters\n" + "".join(f"{name} = {_literal(value)}\n" for name, value in injected.items())
    namespace: dict[str, Any] = {"In": ["", tagged.source, cell, "from overhead import chapters"]}
    exec(tagged.source, namespace)
    exec(cell, namespace)
    return chapter_of(stem).from_notebook(namespace)


def _literal(value: Any) -> str:
    return f"float('{value}')" if isinstance(value, float) and value != value else repr(value)


@pytest.mark.parametrize("stem", CHAPTERS)
def test_a_notebook_declares_what_its_chapter_takes_with_the_same_defaults(stem, nowhere):
    given = as_injected(stem)
    assert given == chapter_of(stem).checked()
    for name in chapter_of(stem).model_fields:  # every declared name once: no false alarm
        assert as_injected(stem, **{name: getattr(given, name)}) == given


@pytest.mark.parametrize(
    ("injected", "says"),
    [
        ({"batch_sizes": 32}, r"^batch_sizes must be a list such as \[32, 128\].*, got 32$"),
        ({"batch_sizes": "32, 128"}, "^batch_sizes must be a list .*, got '32, 128'$"),
        ({"batch_sizes": [0]}, r"^batch_sizes must be whole numbers between 1 and 48000 .*, got 0$"),
        ({"batch_sizes": [65_536]}, "^batch_sizes must be .*, got 65536$"),
        ({"batch_sizes": ["32"]}, "^batch_sizes must be whole numbers .*, got '32'$"),
        ({"batch_sizes": [True]}, "^batch_sizes must be whole numbers .*, got True$"),
        ({"loops": "jax"}, "^loops must be a list .*, got 'jax'$"),
        ({"devices": ["tpu"]}, "^devices must be of auto, cpu, gpu, got 'tpu'$"),
        ({"learning_rate": float("nan")}, "^learning_rate must be a finite number above 0, got nan$"),
        ({"learning_rate": "abc"}, "^learning_rate must be a finite number above 0, got 'abc'$"),
        ({"host": "a/../b"}, "^host must be 1 to 64 letters, .*, got 'a/../b'$"),
        ({"epochs": 3}, "^05-batch-sweep has no parameter epochs; it has host, "),
        ({"batch_sise": [32], "epochs": 3}, "^05-batch-sweep has no parameter batch_sise, epochs; it has "),
    ],
)
def test_an_injected_parameter_is_checked(injected, says, nowhere):
    with pytest.raises(ParameterError, match=says):
        as_injected("05-batch-sweep", **injected)


@pytest.mark.parametrize(
    ("injected", "becomes"),
    [
        ({"batch_sizes": "[32,128]"}, {"batch_sizes": [32, 128]}),
        ({"loops": "numpy"}, {"loops": ["numpy"]}),
        ({"loops": '["numpy"]'}, {"loops": ["numpy"]}),
        ({"devices": "cpu"}, {"devices": ["cpu"]}),
        ({"learning_rate": "1e-3"}, {"learning_rate": 0.001}),
        ({"learning_rate": 1}, {"learning_rate": 1.0}),
    ],
)
def test_what_papermill_gives_as_text_is_read(injected, becomes, nowhere):
    found = as_injected("05-batch-sweep", **injected)
    for name, value in becomes.items():
        assert getattr(found, name) == value
        assert type(getattr(found, name)) is type(value)


def test_only_what_papermill_injected_counts_as_injected():
    assert injected_values("# parameters\nhost: str = 'x'") == {}
    assert injected_values("x = 1") == {}
    assert injected_values("# Parameters\na = [1]\nb = float('nan')\nc = 'x'\n") == {"a": [1], "b": None, "c": "x"}
