"""Thread pools of BLAS and OpenMP: of this process, and as a fresh one would have them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def thread_pools() -> list[dict[str, Any]]:
    """BLAS and OpenMP pools of this process, without the paths of their files."""
    from threadpoolctl import threadpool_info

    keys = {
        "internal_api": "library",
        "version": "version",
        "architecture": "architecture",
        "num_threads": "threads",
    }
    return [{new: pool.get(old) for old, new in keys.items()} for pool in threadpool_info()]


def blas(env: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """NumPy's and SciPy's BLAS pools as a fresh process sees them: library, version, architecture, threads."""
    code = (
        "import json, numpy, numpy.linalg, scipy.linalg; from overhead.machine.pools import thread_pools; "
        "numpy.ones((64, 64)) @ numpy.ones((64, 64)); print(json.dumps(thread_pools()))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=120,
        env={**os.environ, **(env or {})},
    )
    # The last line: what a start-up file of the user's prints comes before it.
    return json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else []
