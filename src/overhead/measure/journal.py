"""What a run has finished, kept on disk as it goes: a run that was ended early goes on where it stopped."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

OLDEST_S = 24 * 3600.0  # what a host did longer ago is not continued, but measured anew


class Journal:
    """Finished steps of one run, a line each, written through to the disk.

    `run` says what makes two runs the same (commit, preset, parameters): a file of another run, of one that began
    over a day ago, or any with `fresh`, is begun anew. What a kill left of the last line is cut. `about` is kept for
    whoever reads the file elsewhere.
    """

    def __init__(
        self, path: Path, run: Mapping[str, Any], *, fresh: bool = False, about: Mapping[str, Any] | None = None
    ) -> None:
        self.path = path
        self._run = json.loads(json.dumps(run))
        self._named: Counter[str] = Counter()
        self._done: dict[str, Any] = {} if fresh else self._read()
        self.continues = bool(self._done)
        if not self.continues:
            header = {"run": self._run, "began": time.time(), "about": about}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(header) + "\n", encoding="utf-8")
        self._file = path.open("ab", buffering=0)

    def _read(self) -> dict[str, Any]:
        """The steps of the whole lines of a file that is of this run; none where it is not."""
        found: dict[str, Any] = {}
        whole = 0
        try:
            with self.path.open("rb") as lines:
                header = json.loads(next(lines))
                if header["run"] != self._run or not 0 <= time.time() - header["began"] <= OLDEST_S:
                    return {}
                whole = lines.tell()
                for line in lines:
                    if not line.endswith(b"\n"):
                        break
                    step = json.loads(line)
                    found[step["step"]] = step["value"]
                    whole += len(line)
        except (OSError, ValueError, KeyError, TypeError, StopIteration):
            if not found:
                return {}
        os.truncate(self.path, whole)
        return found

    def numbered(self, name: str) -> str:
        """`name` with a number that tells apart the steps of one name, in the order in which they are asked for."""
        self._named[name] += 1
        return f"{name}/{self._named[name]}"

    def done(self, step: str) -> Any | None:
        """What a finished step gave; None for one that is not finished."""
        return self._done.get(step)

    def keep(self, step: str, value: Any) -> None:
        """Add a finished step. Raises `OSError` where the disk takes no more; what was kept before stays."""
        line = (json.dumps({"step": step, "value": value}, allow_nan=True) + "\n").encode()
        whole = self.path.stat().st_size
        try:
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.truncate(self.path, whole)
            raise OSError(error.errno, error.strerror, str(self.path)) from None

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make` gives (JSON's types), from the journal where this run has made it before."""
        step = self.numbered(name)
        if (value := self.done(step)) is None:
            value = make()
            self.keep(step, value)
        return value

    def close(self, *, complete: bool) -> None:
        """Let the file go; a run that is complete needs none."""
        self._file.close()
        if complete:
            self.path.unlink(missing_ok=True)
