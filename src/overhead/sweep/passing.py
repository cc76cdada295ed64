"""What it costs to get the images into a worker: by pickle as the article's sketch, from the package, or mapped.

`python -m overhead.sweep.passing HOW [FOLDER]` is the worker: it prints the seconds and its peak memory as JSON.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from overhead.machine.alone import scratch
from overhead.machine.usage import peak_rss_bytes
from overhead.problem import data
from overhead.problem.stored import load_split, save_split
from overhead.problem.workload import Workload

WAYS = {
    "pickle": "the caller sends them to each task by pickle, as the article's sketch does",
    "package": "each worker unpacks them from its own package",
    "map": "the caller writes them once, each worker maps the file and copies what it needs",
}


def measure() -> list[dict[str, Any]]:
    """Of each way: seconds from the request to images in the worker's memory, bytes sent, the worker's peak memory.

    The worker has started and imported NumPy before the clock does. `once_s` is paid once a sweep, by the caller.
    A way whose worker ends early has `failed`, the reason, instead.
    """
    split = data.for_workload(Workload())
    arrays = (split.x, split.y, split.x_val, split.y_val)
    found = []
    with scratch(data.stored_bytes(Workload())) as folder:
        start = time.perf_counter()
        save_split(folder, split)
        once_s = {"map": time.perf_counter() - start}
        for how in WAYS:
            command = [sys.executable, "-m", "overhead.sweep.passing", how, str(folder)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                try:
                    process.stdout.readline()  # ready
                    start = time.perf_counter()
                    sent = pickle.dumps(arrays, protocol=pickle.HIGHEST_PROTOCOL) if how == "pickle" else b""
                    process.stdin.write(sent)
                    process.stdin.close()
                    answer = json.loads(process.stdout.readline())
                    seconds = time.perf_counter() - start
                except (OSError, ValueError) as error:
                    found.append({"how": how, "failed": f"the worker ended early: {error}"})
                    continue
            found.append(
                {"how": how, "seconds": seconds, "once_s": once_s.get(how, 0.0), "sent_bytes": len(sent), **answer}
            )
    return found


def receive(how: str, folder: str) -> int:
    """Get the images in the way `how`; their bytes, all of them touched."""
    if how == "pickle":
        arrays = pickle.load(sys.stdin.buffer)
    elif how == "package":
        arrays = data.for_workload(Workload())[:4]
    else:
        arrays = [np.array(array) for array in load_split(Path(folder))[:4]]
    return sum(array.nbytes for array in arrays)


if __name__ == "__main__":
    print("ready", flush=True)
    got = receive(sys.argv[1], sys.argv[2])
    print(json.dumps({"images_bytes": got, "peak_rss_bytes": peak_rss_bytes()}), flush=True)
