"""A disk that takes no more, in each phase of a run and in the book: one line, and nothing lost.

A limit on the size of any file stands in for the full disk, set in the command's own process and inherited by what it
starts: the write that would pass it fails as on a full disk.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sample_book
from overhead.book import execute
from overhead.book.execute import NotebookFailed
from overhead.chapters import keeping
from overhead.chapters.batch_sweep.chapter import BatchSweep
from overhead.records import record as records

pytest.importorskip("resource", reason="native Windows measures nothing")
STEM = sample_book.SWEEP
OLD = Path(__file__).parent / "data" / "records-schema-1.jsonl"
# The command with a limit of so many bytes a file, and a chapter that is measured in two steps of so many characters.
LIMITED = """
import resource, sys
from pathlib import Path
from overhead.chapters.batch_sweep.chapter import BatchSweep
from overhead.cli import main
from overhead.records import record as records
limit, step, old, sys.argv = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), ["overhead", *sys.argv[4:]]
def take(chapter, session):
    session.journal.once("small", lambda: 1)
    session.journal.once("large", lambda: "x" * step)
    return records.read(old)
BatchSweep.take = take
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
main()
"""


def limited(cwd: Path, limit: int, step: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command under a limit of `limit` bytes a file, 0 for none; whatever it says is on `stderr`."""
    env = {**os.environ, "OVERHEAD_LOCK": str(cwd / "lock"), "XDG_CACHE_HOME": str(cwd), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), str(step), str(OLD), *arguments],
        capture_output=True, text=True, cwd=cwd, env=env, timeout=300,
    )  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder with an earlier run of this host."""
    from overhead.machine import host

    folder = sample_book.write_host(tmp_path / "results", "local", sample_book.sweep(host="local"))
    (folder / "host.json").write_text(json.dumps(host.facts()))
    return folder.parent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "step", "says", "kept"),
    [
        (4_000, 20_000, "File too large: .05-batch-sweep.journal", {".05-batch-sweep.journal"}),
        (8_000, 100, "File too large", {".05-batch-sweep.journal"}),
        (20_000, 100, "OSError", {f".05-batch-sweep.measured/{name}" for name in ("05-batch-sweep.jsonl", "run.json")}),
    ],
    ids=["the journal", "the records", "the page"],
)
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, results, limit, step, says, kept):
    before = contents(results / "local")
    arguments = ("run", STEM, "--results", str(results))

    done = limited(tmp_path, limit, step, *arguments)

    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if not line.startswith(f"{STEM}: ")]
    assert "Traceback" not in done.stderr
    assert says in done.stderr
    assert len(told) <= 2
    after = contents(results / "local")
    assert {name: after.get(name) for name in before} == before
    assert kept <= set(after)
    journal = results / "local" / f".{STEM}.journal"
    if journal.exists():
        assert [json.loads(line)["step"] for line in journal.read_text().splitlines()[1:]][:1] == ["small/1"]
        again = limited(tmp_path, 0, step, *arguments, "-p", "loops", "nonsense")  # refused, and touches nothing
        assert (again.returncode, journal.exists()) == (2, True)


@pytest.mark.slow
def test_a_full_disk_leaves_the_old_book(tmp_path, results):
    out = tmp_path / "out"
    (out / "html").mkdir(parents=True)
    (out / "html" / "index.html").write_text("the old book")

    done = limited(tmp_path, 3_000, 0, "book", "--results", str(results), "--out", str(out))

    assert done.returncode == 1
    assert done.stderr.startswith("overhead: File too large")
    assert len(done.stderr.splitlines()) == 1
    assert contents(out / "html") == {"index.html": b"the old book"}


def test_results_on_a_read_only_disk_are_refused_before_anything_is_measured(tmp_path, results, monkeypatch):
    """Root may write what nobody may; a read-only disk stops root as well."""
    monkeypatch.setattr(BatchSweep, "take", lambda *_: pytest.fail("measured"))
    before = contents(results)

    def read_only(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(NotebookFailed, match=r"must be one that can be made, got .*: Read-only file system"):
        execute.run(STEM, {"host": "local"}, results)
    monkeypatch.undo()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(NotebookFailed, match="results folder must be writable"):
        execute.run(STEM, {"host": "local"}, results)
    assert contents(results) == before


def test_records_that_cannot_be_put_in_place_stay_where_they_wait(results, monkeypatch):
    """The disk turns read-only between measuring and the page: the measurement waits, whole, for the next try."""
    monkeypatch.setattr(BatchSweep, "take", lambda *_: records.read(OLD))
    before = contents(results / "local")
    kept = keeping.measure(BatchSweep.checked(host="local"), {"host": "local"}, results / "local", say=lambda _: None)
    (kept / f"{STEM}.ipynb").write_text("{}")

    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "replace", read_only)
    with pytest.raises(OSError, match="Read-only"):
        keeping.settle(results / "local", STEM)
    monkeypatch.undo()
    after = contents(results / "local")
    assert {name: after[name] for name in before} == before
    assert keeping.settle(results / "local", STEM)
    placed = [record.timing for record in records.read(results / "local" / f"{STEM}.jsonl")]
    assert placed == [record.timing for record in records.read(OLD)]


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    """A container's user may have neither HOME nor a line in the password file."""
    from overhead.loops import compiled
    from overhead.sweep import journal

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    with pytest.raises(OSError, match="this user has no home folder; set XDG_CACHE_HOME"):
        journal.folder()
    assert compiled.cache_folder() is None  # compiled into a temporary folder then
