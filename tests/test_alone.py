"""One measurement at a time on a host, and nothing left by the dead."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from overhead.machine.alone import Busy, measuring, scratch

HOLDS = """
import sys
from overhead.machine.alone import measuring
with measuring():
    print("holds", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OVERHEAD_LOCK", str(tmp_path / "lock"))
    return tmp_path / "lock"


@pytest.mark.slow
def test_the_second_is_told_who_measures_and_the_lock_of_the_dead_does_not_hold(lock):
    holder = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    assert holder.stdout.readline() == "holds\n"
    with pytest.raises(Busy, match=rf"\(process {holder.pid}, since \d\d:\d\d UTC\)"), measuring():
        pass
    with measuring(force=True) as shared:
        assert shared
    holder.kill()
    holder.communicate()
    with measuring() as shared:
        assert not shared


def test_a_link_in_its_place_is_neither_followed_nor_emptied(lock):
    precious = lock.with_name("precious")
    precious.write_text("kept")
    lock.symlink_to(precious)
    with pytest.raises(Busy, match="lock in the system's temporary folder must be a regular file"), measuring():
        pass
    assert precious.read_text() == "kept"


@pytest.mark.timeout(20)
def test_a_fifo_in_its_place_hangs_nobody(lock):
    os.mkfifo(lock)
    with pytest.raises(Busy, match="must be a regular file"), measuring():
        pass


def test_the_folders_of_dead_runs_are_removed_and_those_of_the_living_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    for name in (f"overhead-{int(dead.stdout)}-x", f"overhead-{os.getppid()}-x", "overhead-notes", "other"):
        (tmp_path / name).mkdir()
    with scratch() as folder:
        assert folder.parent == tmp_path
        (folder / "file").touch()
    assert {path.name for path in tmp_path.iterdir()} == {f"overhead-{os.getppid()}-x", "overhead-notes", "other"}


def test_a_temporary_folder_that_is_too_small_is_named_before_anything_is_written():
    with (
        pytest.raises(OSError, match=r"^the temporary folder needs 1,000,000,000 MB, .* MB are free; set TMPDIR$"),
        scratch(10**15),
    ):
        pass
