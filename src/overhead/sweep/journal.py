"""What a sweep has finished, kept on disk until it is complete, so that an interrupted one goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from overhead.sweep.train import Trained


class JournalBusy(RuntimeError):
    """The same sweep is running already."""


def folder() -> Path:
    """Where journals lie: `XDG_CACHE_HOME`, else `~/.cache`, and there `overhead/sweeps`. Raises `OSError`."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "overhead" / "sweeps"
    except RuntimeError:  # neither HOME nor a line in the password file
        raise OSError(0, "this user has no home folder; set XDG_CACHE_HOME") from None


class Journal:
    """Finished tasks of one sweep, a line each, written through to the disk. `key`: what makes two sweeps the same."""

    def __init__(self, key: Mapping[str, Any]) -> None:
        import fcntl

        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        self.path = folder() / f"{name}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise JournalBusy("this sweep is running already; wait for it, or change a parameter") from None
        self.done = self._read()

    def _read(self) -> list[Trained]:
        """The whole lines; what a kill left of the last one is cut off."""
        self._file.seek(0)
        found, whole = [], 0
        for line in self._file.read().splitlines(keepends=True):
            try:
                positions, rows, cost = json.loads(line)
            except ValueError:
                break
            if not line.endswith("\n"):
                break
            found.append(Trained(tuple(positions), rows, cost))
            whole += len(line.encode())
        self._file.truncate(whole)
        return found

    def keep(self, trained: Trained) -> None:
        """Add a finished task."""
        self._file.write(json.dumps(trained) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self, *, complete: bool) -> None:
        """Let the journal go; a complete sweep needs none and is measured anew when it is asked for again."""
        if complete or self._file.seek(0, os.SEEK_END) == 0:
            self.path.unlink(missing_ok=True)
        self._file.close()
