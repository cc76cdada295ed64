"""One measurement at a time on a host, and folders that outlive no run: who holds the host, and what the dead left."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

# Of the whole machine, not of a user or of a temporary folder of one's own: two measurements disturb each other anyway.
# OVERHEAD_LOCK names another file, for tests of the package that run beside a measurement.
LOCK = Path("/tmp/overhead-measuring.lock")
OURS = re.compile(r"overhead-(\d+)-")  # a folder of a run, with the number of its process


class Busy(RuntimeError):
    """Another measurement is running on this host; says which process, and since when."""


@contextmanager
def measuring(force: bool = False) -> Iterator[bool]:
    """Hold the host's one measurement. Raises `Busy` when another holds it, unless `force`; yields whether shared.

    The lock ends with the process that holds it, however it ends. The file is not followed where it is a link.
    """
    import fcntl

    descriptor = _opened(Path(os.environ.get("OVERHEAD_LOCK") or LOCK))
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if not force:
                raise Busy(f"another overhead measurement is running on this host ({_holder(descriptor)})") from None
            yield True
            return
        since = datetime.now(UTC).strftime("%H:%M UTC")
        with suppress(OSError):  # another user's file is locked, but not written
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()}, since {since}\n".encode(), 0)
        yield False
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    """A descriptor of the lock's file, made if need be. Raises `Busy` for what is no regular file."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for how in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
        try:
            descriptor = os.open(path, how | flags, 0o666)
        except OSError:
            continue
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            break
        if how & os.O_CREAT:
            os.fchmod(descriptor, 0o666)  # whatever the umask: other users lock it too
        return descriptor
    raise Busy(f"{path.name} in the system's temporary folder must be a regular file that can be opened; remove it")


def _holder(descriptor: int) -> str:
    said = os.pread(descriptor, 80, 0).decode(errors="replace").strip()
    return said if re.fullmatch(r"process \d+, since \d\d:\d\d UTC", said) else "its process is unknown"


def prefix() -> str:
    """How the name of a temporary folder of this run begins; what runs that were killed left there is removed."""
    sweep(Path(tempfile.gettempdir()), "")
    return f"overhead-{os.getpid()}-"


@contextmanager
def scratch(needs_bytes: int = 0) -> Iterator[Path]:
    """A private temporary folder of this run. What runs that were killed left is removed first.

    Raises `OSError` where the temporary folder has not `needs_bytes` free, before anything is written.
    """
    name = prefix()
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < needs_bytes:
        raise OSError(
            f"the temporary folder needs {needs_bytes / 1e6:,.0f} MB, {free / 1e6:,.0f} MB are free; set TMPDIR"
        )
    with tempfile.TemporaryDirectory(prefix=name, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def sweep(folder: Path, before: str) -> None:
    """Remove the folders in `folder` whose name is `before` and that of a run, where its process is no more."""
    if os.name == "nt":  # it measures nothing there, and has no way of asking whose process lives
        return
    for path in folder.glob(f"{before}overhead-*"):
        found = OURS.match(path.name.removeprefix(before))
        if found and not _lives(int(found[1])) and path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                if path.stat().st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)


def die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends, even while it is stopped between turns."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is another user's
    return True
