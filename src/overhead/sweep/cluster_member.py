"""Loaded by each process of a cluster of ours before it starts: it ends with its caller and serves no page."""

from __future__ import annotations

import os
import sys
from typing import Any

from distributed.node import ServerNode

from overhead.machine.alone import die_with_parent

CALLER = "OVERHEAD_CLUSTER_OF"  # the number of the process that the cluster belongs to


def _serve_nothing(self: ServerNode, *_: object, **__: object) -> None:
    """In the place of the HTTP server that every scheduler and worker opens, asked for or not."""


ServerNode.start_http_server = _serve_nothing  # type: ignore[method-assign]


def dask_setup(service: Any) -> None:
    """Tie the scheduler and the keepers of workers to our process; a worker ends with its keeper by itself."""
    if type(service).__name__ == "Worker":
        return
    die_with_parent()
    if sys.platform == "linux" and os.getppid() != int(os.environ.get(CALLER) or os.getppid()):
        os._exit(1)  # our caller has ended meanwhile
