"""A contestant and its process: environment before any import, commands with time limits, stopped between turns."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from overhead.loops import FLOORS, LOOPS, MANY, LoopInfo
from overhead.machine import gpus, host

START_LIMIT_S = 180.0  # a first import of TensorFlow from a cold disk takes a minute and more
CALL_LIMIT_S = 600.0
# Of a contestant whose float32 products may be computed in TF32: for CUDA's libraries and TensorFlow, JAX, CuPy.
TF32 = (("NVIDIA_TF32_OVERRIDE", "1"), ("JAX_DEFAULT_MATMUL_PRECISION", "tensorfloat32"), ("CUPY_TF32", "1"))
ABSOLUTE = re.compile(r"(?<![\w./:~-])/(?:[\w.+@~-]+/)+|(?<=[a-z]:)/(?!/)(?:[\w.+@~-]+/)+")  # folders from the root
STOPPABLE = hasattr(signal, "SIGSTOP")


class WorkerFailed(RuntimeError):
    """A worker died, hung, ran out of memory or could not do what it was asked; carries status and reason."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


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


def environment(contestant: Contestant) -> dict[str, str]:
    """What a worker's environment adds to ours: threads of every pool, one device, quiet frameworks, no TF32."""
    threads = str(contestant.threads)
    env = {
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"), threads),
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": threads,
        "KERAS_HOME": str(Path(tempfile.gettempdir()) / "overhead-keras"),  # no settings of the user's own
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


class Worker:
    """A contestant's process. Between turns it is stopped, so that no spinning pool slows the next one."""

    def __init__(self, contestant: Contestant, limit_s: float = CALL_LIMIT_S) -> None:
        self.contestant = contestant
        self.limit_s = limit_s  # for any command but the first
        self.env = environment(contestant)
        self.ended: str | None = None  # why the process is no more
        self._cpu_s = 0.0
        self.faulted = False  # a command failed: memory or a device's context may be lost with it
        self.facts: dict[str, Any] = {}
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._said: deque[str] = deque(maxlen=40)
        module = "overhead.sweep.worker" if contestant.loop in MANY else "overhead.measure.worker"
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, contestant.loop, contestant.device],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            encoding="utf-8", errors="replace",  # a framework may print what it likes
            env={**os.environ, **self.env},
        )  # fmt: skip
        self._readers = [threading.Thread(target=t, daemon=True) for t in (self._read_answers, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            for line in errors:
                if line.strip():
                    self._said.append(line.rstrip())

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, limit_s: float | None = None, **arguments: Any) -> dict[str, Any]:
        """Send a command and wait for its answer. Raises `WorkerFailed` with the reason otherwise."""
        assert self._process.stdin is not None
        if self.ended:
            raise WorkerFailed("failed", self.ended)
        limit_s = self.limit_s if limit_s is None else limit_s
        self._signal("SIGCONT")
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=limit_s)
        except queue.Empty:
            self.kill()
            self.ended, self.faulted = f"no answer to {do!r} within {limit_s:g} s; killed", True
            raise WorkerFailed("failed", self.ended) from None
        except OSError:
            line = None
        if line is None:
            self.ended, self.faulted = self._why_dead(), True
            raise WorkerFailed("failed", self.ended)
        answer = json.loads(line)
        if "status" in answer:
            self.faulted = self.faulted or answer["status"] == "failed"
            raise WorkerFailed(answer["status"], without_paths(answer["reason"]))
        return answer

    def pause(self) -> None:
        """Stop the process until the next command."""
        self._signal("SIGSTOP")

    def close(self) -> None:
        """End the process; killed when it does not end by itself."""
        self._signal("SIGCONT")
        try:
            self._hang_up()
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._hang_up()

    def _hang_up(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # what was still to be written has nobody to read it
            self._process.stdin.close()

    def cpu_seconds(self) -> float:
        """Processor time of the process so far."""
        import psutil

        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.Error:
            return self._cpu_s  # of a process that has died, what it was last seen to have used
        self._cpu_s = max(self._cpu_s, times.user + times.system)
        return self._cpu_s

    def _signal(self, name: str) -> None:
        if STOPPABLE and self._process.poll() is None:
            self._process.send_signal(getattr(signal, name))

    def _why_dead(self) -> str:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:  # it closed its end and lives on
            self.kill()
            return "the worker stopped answering; killed"
        self._readers[1].join(timeout=10)  # its last words
        said = without_paths(self._said[-1]) if self._said else "it said nothing"
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return f"the worker was ended by {name}{hint}: {said}"
        return f"the worker exited with {code}: {said}"


def without_paths(text: str) -> str:
    """`text` on one line, its absolute paths cut to their last part, at most 300 characters."""
    return ABSOLUTE.sub("…/", " ".join(text.split()))[:300]
