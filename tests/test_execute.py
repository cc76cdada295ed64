"""Executing a notebook: what is put in place, and that a failure puts nothing in place."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from overhead.book import execute, executing
from overhead.book.execute import NotebookFailed, is_complete, pair_fault
from overhead.chapters import keeping
from overhead.chapters.base import ParameterError
from overhead.chapters.batch_sweep.chapter import BatchSweep
from overhead.machine import host
from overhead.machine.alone import Busy, measuring
from overhead.records import record as records

ROOT = Path(__file__).resolve().parents[1]
STEM = "05-batch-sweep"
OLD = Path(__file__).parent / "data" / "records-schema-1.jsonl"

# What a notebook does first: read what was measured before its kernel started.
READS = """
from overhead.chapters.batch_sweep.chapter import BatchSweep
print("read", len(BatchSweep.checked().measure()), "records")
"""
PARAMETERS = 'host: str = "local"  # folder\nbatch_sizes: list = [32]  # images per step'
LAST = "'the last cell'"


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a notebook of these cells under the name of a chapter; the folder that it is in."""
    monkeypatch.setattr(BatchSweep, "take", lambda *_: records.read(OLD))

    def write(*cells: str, kernel: str = "python3", tag: bool = True) -> Path:
        made = nbformat.v4.new_notebook(
            metadata={"kernelspec": {"name": kernel, "display_name": "Any", "language": "python"}}
        )
        made.cells = [nbformat.v4.new_code_cell(source) for source in (PARAMETERS, *cells)]
        made.cells[0].metadata["tags"] = ["parameters"]
        folder = tmp_path / "notebooks"
        folder.mkdir(exist_ok=True)
        nbformat.write(made, folder / f"{STEM}.ipynb")
        return folder

    return write


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder in which an earlier run left its pair."""
    folder = tmp_path / "results" / "local"
    folder.mkdir(parents=True)
    (folder / f"{STEM}.jsonl").write_text(OLD.read_text())
    of = hashlib.sha256(OLD.read_bytes()).hexdigest()
    (folder / f"{STEM}.ipynb").write_text(json.dumps({"metadata": {"overhead": {"records_sha256": of}}}))
    (folder / "host.json").write_text(json.dumps(host.facts()))
    return folder.parent


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


def run(results: Path, folder: Path, **parameters: Any) -> Path:
    return execute.run(STEM, {"host": "local", **parameters}, results, folder)


@pytest.mark.slow
def test_the_pair_is_put_in_place_together(notebook, results, capfd):
    path = run(results, notebook(READS, LAST, kernel="my-env"), batch_sizes=[64])

    assert path == results / "local" / f"{STEM}.ipynb"
    assert sorted(contents(results)) == [
        "local",
        *(f"local/{n}" for n in (f"{STEM}.ipynb", f"{STEM}.jsonl", "host.json")),
    ]
    assert is_complete(results, "local", [STEM])
    executed = nbformat.read(path, 4)
    nbformat.validate(executed)
    injected = next(cell for cell in executed.cells if "injected-parameters" in cell.metadata.get("tags", []))
    assert "batch_sizes = [64]" in injected.source
    assert executed.metadata.kernelspec.name == "python3"  # which it was run with, whatever the source said
    assert "read 10 records" in json.dumps(executed.cells)
    text = path.read_text()
    for absolute in (str(results), str(Path.home()) + "/", tempfile.gettempdir(), str(ROOT)):
        assert absolute not in text
    assert executed.metadata.papermill.input_path == f"notebooks/{STEM}.ipynb"
    assert executed.metadata.papermill.output_path == f"{STEM}.ipynb"
    assert capfd.readouterr() == ("", "")  # no bar and no warning where nobody watches


@pytest.mark.slow
def test_a_page_is_made_anew_from_its_records_with_the_parameters_that_it_had(notebook, results, monkeypatch):
    run(results, notebook(READS, LAST), batch_sizes=[64])
    before = (results / "local" / f"{STEM}.jsonl").read_bytes()
    monkeypatch.setattr(BatchSweep, "take", lambda *_: pytest.fail("measured"))

    path = execute.render(STEM, "local", results, notebook(READS, LAST))

    assert "batch_sizes = [64]" in path.read_text()
    assert (results / "local" / f"{STEM}.jsonl").read_bytes() == before
    assert is_complete(results, "local", [STEM])


def test_what_was_never_measured_has_no_page_to_make_anew(results):
    with pytest.raises(ParameterError, match="--from-records needs other/05-batch-sweep"):
        execute.render(STEM, "other", results)


def test_in_the_kernel_of_a_run_a_chapter_reads_its_records_and_measures_nothing(results, monkeypatch):
    monkeypatch.setenv("OVERHEAD_KEPT", str(results / "local"))
    monkeypatch.setattr(BatchSweep, "take", lambda *_: pytest.fail("measured"))

    assert BatchSweep.checked().measure() == records.read(OLD)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ([READS, "1 / 0", LAST], r"^05-batch-sweep: cell \d raised ZeroDivisionError: division by zero\n"),
        ([READS, "import os; os.kill(os.getpid(), 9)", LAST], "^05-batch-sweep: DeadKernelError: Kernel died"),
        ([READS, "import os; os._exit(0)", LAST], "^05-batch-sweep: DeadKernelError: Kernel died"),
        ([READS, "%%bash\nexit 3", LAST], "cell .* raised CalledProcessError: .*exit status 3"),
        (  # an error handler that swallows what it handles leaves no error behind
            [READS, "get_ipython().set_custom_exc((Exception,), lambda *_, **__: None)", "1 / 0", LAST],
            "cell 5 raised CellExecutionError: the notebook kept no more of it",
        ),
    ],
)
def test_a_page_that_fails_leaves_the_old_pair_and_keeps_what_was_measured(notebook, results, cells, says, monkeypatch):
    before = contents(results)
    with pytest.raises(NotebookFailed, match=says) as caught:
        run(results, notebook(*cells))

    told = str(caught.value).splitlines()
    assert told[1] == f"its records are kept: overhead run {STEM} --host local --from-records makes the page"
    assert {name: data for name, data in contents(results).items() if ".measured" not in name} == before
    assert is_complete(results, "local", [STEM])
    monkeypatch.setattr(BatchSweep, "take", lambda *_: pytest.fail("measured again"))
    execute.render(STEM, "local", results, notebook(READS, LAST))
    assert is_complete(results, "local", [STEM])
    assert not keeping.measured_folder(results / "local", STEM).exists()


def test_a_notebook_that_lost_its_tag_is_refused_before_anything_is_measured(tmp_path, results, monkeypatch):
    """Field case C4: papermill would run it with its defaults."""
    monkeypatch.setattr(BatchSweep, "take", lambda *_: pytest.fail("measured"))
    source = nbformat.read(ROOT / "notebooks" / f"{STEM}.ipynb", 4)
    for cell in source.cells:
        cell.metadata.pop("tags", None)
    (tmp_path / "stale").mkdir()
    nbformat.write(source, tmp_path / "stale" / f"{STEM}.ipynb")
    before = contents(results)

    with pytest.raises(ParameterError, match=r"notebooks/05-batch-sweep\.ipynb must have a cell tagged 'parameters'"):
        run(results, tmp_path / "stale", batch_sizes=[64])
    assert contents(results) == before


STALE = {"argv": ["/gone/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "Python 3"}
SURROUNDINGS = """
import sys, psutil, matplotlib
listens = [c for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN]
print("listens on", len(listens), "usetex", matplotlib.rcParams["text.usetex"], "started", "started" in globals())
"""


@pytest.mark.slow
def test_the_kernel_is_this_python_listens_on_no_port_and_has_none_of_the_users_settings(
    notebook, results, tmp_path, monkeypatch
):
    stale = tmp_path / "jupyter" / "kernels" / "python3"
    start_up = tmp_path / "ipython" / "profile_default" / "startup"
    for folder in (stale, start_up):
        folder.mkdir(parents=True)
    (stale / "kernel.json").write_text(json.dumps({**STALE, "language": "python"}))
    (start_up / "00.py").write_text("started = 1")
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MATPLOTLIBRC", str(tmp_path / "matplotlibrc"))

    path = run(results, notebook(READS, SURROUNDINGS))

    assert "listens on 0 usetex False started False" in path.read_text()


def test_of_two_runs_at_once_the_second_is_told_who_runs(results, tmp_path, monkeypatch):
    monkeypatch.setenv("OVERHEAD_LOCK", str(tmp_path / "lock"))
    before = contents(results)
    with (
        measuring(),
        pytest.raises(Busy, match=rf"is running on this host \(process {os.getpid()}, since \d\d:\d\d UTC"),
    ):
        run(results, ROOT / "notebooks", loops=["numpy"])
    left = {name: data for name, data in contents(results).items() if not name.endswith(".journal")}
    assert left == before


def test_everything_is_checked_before_a_kernel_starts(notebook, results, monkeypatch):
    def never(*_: Any) -> None:
        raise AssertionError("a kernel was started")

    monkeypatch.setattr(executing, "executed", never)
    folder, before = notebook(READS), contents(results)
    for parameters in ({"batch_sizes": [0]}, {"host": "../up"}, {"host": ""}, {"nonsense": 1}, {"learning_rate": 0}):
        with pytest.raises(ParameterError):
            run(results, folder, **parameters)
    with pytest.raises(ParameterError, match="notebook must be one of"):
        execute.run("99-nothing", {}, results, folder)
    with pytest.raises(ParameterError, match=r"notebooks/05-batch-sweep\.ipynb was not found"):
        execute.run(STEM, {}, results, results)
    for folder_or_file in (results / "local" / "host.json", results / "local" / f"{STEM}.jsonl" / "deeper"):
        with pytest.raises(NotebookFailed, match="results folder must be one that can be made"):
            execute.run(STEM, {}, folder_or_file, folder)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(NotebookFailed, match="results folder must be writable"):
        run(results, folder)
    assert contents(results) == before


def test_a_failed_rename_leaves_what_can_be_told_from_a_pair(notebook, results, monkeypatch):
    """Between the two renames of a pair a crash may come; the checksum in the notebook tells."""
    (results / "local" / f"{STEM}.jsonl").write_text("")
    assert pair_fault(results / "local", STEM) == (
        f"local/{STEM}.ipynb and {STEM}.jsonl are not of one run; run the notebook again"
    )
    assert not is_complete(results, "local", [STEM])


@pytest.mark.parametrize("name", [f"{STEM}.ipynb", f"{STEM}.jsonl"])
def test_half_a_pair_is_none(results, name):
    (results / "local" / name).unlink()
    assert pair_fault(results / "local", STEM) == f"local/{name} is missing"


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_a_broken_notebook_is_no_pair(results, text):
    (results / "local" / f"{STEM}.ipynb").write_text(text)
    assert pair_fault(results / "local", STEM) == f"local/{STEM}.ipynb is no notebook"
