"""A contestant: a loop on a device, with threads and an environment that are set before anything is imported."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from overhead.loops import FLOORS, LOOPS, MANY, LoopInfo
from overhead.machine import alone, gpus, host

# Of a contestant whose float32 products may be computed in TF32: for CUDA's libraries and TensorFlow, JAX, CuPy.
TF32 = (("NVIDIA_TF32_OVERRIDE", "1"), ("JAX_DEFAULT_MATMUL_PRECISION", "tensorfloat32"), ("CUPY_TF32", "1"))


class Contestant(NamedTuple):
    """Who is timed: a loop on a device, with a number of threads and an environment of its own."""

    loop: str
    device: str = "cpu"
    threads: int = 0  # 0: as many as cores are allowed
    env: tuple[tuple[str, str], ...] = ()

    @property
    def is_floor(self) -> bool:
        return self.loop in FLOORS

    @property
    def info(self) -> LoopInfo | None:
        return LOOPS.get(self.loop) or FLOORS.get(self.loop) or MANY.get(self.loop)

    def resolved(self) -> Contestant:
        """With the number of threads that 0 stands for."""
        return self._replace(threads=self.threads or host.cores_allowed())


def floors(devices: Sequence[str]) -> list[Contestant]:
    """The floor's contestants: every library on each of `devices`, with one and with all threads."""
    threads = sorted({1, host.cores_allowed()})
    return [
        Contestant(name, device, count)
        for name, info in FLOORS.items()
        for device in devices
        if device in info.devices
        for count in (threads if device == "cpu" else threads[-1:])
    ]


_MAKING = threading.Lock()


def environment(contestant: Contestant) -> dict[str, str]:
    """What a worker's environment adds to ours: threads of every pool, one device, quiet frameworks, no TF32."""
    threads = str(contestant.threads)
    env = {
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"), threads),
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": threads,
        "KERAS_HOME": _home(),  # no settings of the user's own, nor of another user's
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": os.environ.get("PYTHONNOUSERSITE", ""),
    }
    if contestant.device == "cpu":
        # Keras turns XLA on by itself where TensorFlow finds a GPU, and JAX starts on one that it finds.
        env |= {"JAX_PLATFORMS": "cpu", gpus.VISIBLE: "-1"}
    else:
        env |= {
            gpus.VISIBLE: gpus.first_visible(os.environ),  # JAX would take every card, and memory on each
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # nvidia-smi's, so that its numbers are ours
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
            "JAX_DEFAULT_MATMUL_PRECISION": "highest",  # JAX's own choice on NVIDIA GPUs is TF32
            "NVIDIA_TF32_OVERRIDE": "0",  # cuBLAS never uses it then, whoever asks
            "CUPY_TF32": "0",
        }
    return {**env, **dict(contestant.info.env if contestant.info else ()), **dict(contestant.env)}


def _home() -> str:
    """A private folder of this run, empty; removed when this process ends."""
    with _MAKING:  # threads start workers side by side, and a second folder would be removed at once
        return _home_of_this_run().name


@cache
def _home_of_this_run() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=alone.prefix(), ignore_cleanup_errors=True)
