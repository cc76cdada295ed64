"""Files that somebody hands in: only regular ones are opened, since a pipe waits and a device may never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
         stat.S_IFSOCK: "a socket"}  # fmt: skip


def check_regular(path: Path) -> None:
    """Raise `OSError`, its `strerror` a sentence, for what is no regular file (links are followed) or is not there."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise OSError(0, f"it must be a file, got {KINDS.get(stat.S_IFMT(mode), 'something else')}", str(path))
