"""The kernel that makes a page: this Python, with nothing of the user's own settings, and no port on the network."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from overhead.machine import alone

LONGEST_SOCKET = 100  # bytes of a socket's path that every system takes


@contextmanager
def private(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of a kernel whose settings, sockets and start-up files are all in `folder`, which is ours.

    A `python3` of the user's in JUPYTER_PATH is another Python, perhaps one that is gone; a start-up file or a
    matplotlibrc of the user's would change the page.
    """
    kernels = folder / "jupyter" / "kernels" / "python3"
    kernels.mkdir(parents=True)
    # What goes wrong in a cell is told by its output; a kernel that is interrupted at its end would say so on stderr.
    command = [sys.executable, "-m", "overhead.book.kernel", "-f", "{connection_file}", "--log-level=CRITICAL"]
    (kernels / "kernel.json").write_text(
        json.dumps({"argv": command, "display_name": "Python 3", "language": "python"}), encoding="utf-8"
    )
    (folder / "matplotlibrc").touch()
    with tempfile.TemporaryDirectory(dir=_short(folder), prefix=alone.prefix()) as sockets:
        yield {
            "JUPYTER_PATH": str(folder / "jupyter"),
            "JUPYTER_RUNTIME_DIR": sockets,
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_DATA_DIR": str(folder / "data"),
            "IPYTHONDIR": str(folder / "ipython"),
            "MATPLOTLIBRC": str(folder / "matplotlibrc"),
            "MPLCONFIGDIR": str(folder / "mpl"),
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            "PYTHONUTF8": "1",
            "PYTHONIOENCODING": "utf-8",
        }


def _short(folder: Path) -> Path:
    """Where sockets go: in `folder`, or in the system's own temporary folder where that path is too long for one."""
    return folder if len(os.fsencode(folder)) < LONGEST_SOCKET - 60 else Path("/tmp")


def main() -> None:
    """ipykernel without the port on which it would take what forked children print; a page's cells fork none."""
    alone.die_with_parent()
    if os.getppid() != int(os.environ.get("JPY_PARENT_PID") or os.getppid()):
        return  # whoever started us has ended meanwhile, and taken our folder along
    kernelapp: Any = import_module("ipykernel.kernelapp")
    thread = kernelapp.IOPubThread
    kernelapp.IOPubThread = lambda socket, pipe=False, session=False: thread(socket, pipe=False, session=session)
    kernelapp.launch_new_instance()


if __name__ == "__main__":
    main()
