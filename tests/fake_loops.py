"""Loops that misbehave in one way each, named `fake_loops:Class`; they learn what NumPy learns unless they say so."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from overhead.loops.base import Declined, Loop
from overhead.loops.numpy_ import NumpyLoop
from overhead.measure.contestant import Contestant
from overhead.problem.data import Split
from overhead.problem.mlp import Params
from overhead.problem.workload import Workload

AT_IMPORT = {name: os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "FAKE")}
SEEN_PATH = "/somewhere/private/data.bin"


def contestant(name: str, device: str = "cpu", threads: int = 1, **env: str) -> Contestant:
    """A loop of this module as a contestant; its worker finds this folder."""
    here = str(Path(__file__).parent)
    return Contestant(f"fake_loops:{name}", device, threads, (("PYTHONPATH", here), *env.items()))


class Steady(Loop):
    """NumPy under another name."""

    framework = "numpy"

    def place(self, params: Params, data: Split, workload: Workload) -> Any:
        self.numpy = NumpyLoop("cpu")
        return self.numpy.place(params, data, workload)

    def run(self, state: Any, steps: int) -> Any:
        return self.numpy.run(state, steps)

    def block(self, state: Any) -> None:
        pass

    def fetch(self, state: Any) -> Params:
        return self.numpy.fetch(state)

    def placed_on(self, state: Any) -> tuple[str, str]:
        return "cpu", "pretended"

    def settings(self, state: Any) -> dict[str, str]:
        return AT_IMPORT


class Transposes(Steady):
    """Returns weights as (out, in)."""

    def fetch(self, state: Any) -> Params:
        return tuple(layer._replace(w=layer.w.T) for layer in super().fetch(state))


class LosesALayer(Steady):
    """Returns the first layer only."""

    def fetch(self, state: Any) -> Params:
        return super().fetch(state)[:1]


class NewPrecision(Steady):
    """Names a precision that has no tolerance."""

    def settings(self, state: Any) -> dict[str, str]:
        return {"matmul_precision": "float8"}


class NotFinite(Steady):
    """Learns nan at any rate that is not one of agreement's."""

    def place(self, params: Params, data: Split, workload: Workload) -> Any:
        self.lost = workload.learning_rate == 0.05
        return super().place(params, data, workload)

    def fetch(self, state: Any) -> Params:
        return tuple(layer._replace(w=layer.w * (np.nan if self.lost else 1)) for layer in super().fetch(state))


class Compiles(Steady):
    """Its first run after each placement takes long."""

    COMPILE_S = 0.25

    def place(self, params: Params, data: Split, workload: Workload) -> Any:
        self.compiled = False
        return super().place(params, data, workload)

    def run(self, state: Any, steps: int) -> Any:
        if not self.compiled:
            time.sleep(self.COMPILE_S)
            self.compiled = True
        return super().run(state, steps)


class Exits(Steady):
    """Ends its process while it trains, with last words."""

    def run(self, state: Any, steps: int) -> Any:
        print("assertion failed in", SEEN_PATH, file=sys.stderr, flush=True)
        os._exit(7)


class KilledInTheRounds(Steady):
    """Gets through everything that precedes timing, and is then killed."""

    def run(self, state: Any, steps: int) -> Any:
        if steps == 1:  # only a turn of `dies_when_timed` asks for one step
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(state, steps)


class Hangs(Steady):
    """Never returns."""

    def run(self, state: Any, steps: int) -> Any:
        while True:
            time.sleep(1)


class NoMemory(Steady):
    """Asks for more memory than there is."""

    def place(self, params: Params, data: Split, workload: Workload) -> Any:
        return np.ones((10**9, 10**9), np.float32)


class Chatty(Steady):
    """Prints wherever it can, more than a pipe holds, and what is no UTF-8."""

    def place(self, params: Params, data: Split, workload: Workload) -> Any:
        print("on stdout")
        print("on stderr", file=sys.stderr)
        sys.stdout.flush()
        subprocess.run([sys.executable, "-S", "-c", "print('of a child')"], check=True)
        return super().place(params, data, workload)

    def run(self, state: Any, steps: int) -> Any:
        for descriptor in (1, 2):
            os.write(descriptor, b'\xff\xfe {"wall_ns": [0]}\n\r')
            os.write(descriptor, b"warning: a line of a framework's log\n" * 5000)
        return super().run(state, steps)


class LearnsSomethingElse(Steady):
    """Trains at half the rate that was asked for."""

    def place(self, params: Params, data: Split, workload: Workload) -> Any:
        half = workload.model_copy(update={"learning_rate": workload.learning_rate / 2})
        return super().place(params, data, half)


class ChangesItsData(Steady):
    """Scales the training images in place, which are everybody's."""

    def place(self, params: Params, data: Split, workload: Workload) -> Any:
        data.x[:] *= 2
        return super().place(params, data, workload)


class ChangesItsParameters(Steady):
    """Trains in place on the parameters that it was given."""

    def place(self, params: Params, data: Split, workload: Workload) -> Any:
        state = super().place(params, data, workload)
        for layer in params:
            layer.w[:] = np.nan
        return state


class Raises(Steady):
    """Fails with a message that names a path."""

    def run(self, state: Any, steps: int) -> Any:
        raise ValueError(f"cannot open {SEEN_PATH!r}: no such file\nsecond line")


class Declines(Steady):
    """Cannot run the case."""

    def place(self, params: Params, data: Split, workload: Workload) -> Any:
        raise Declined("needs a batch of one")


class Spins(Steady):
    """Keeps a core busy between its turns, as a spinning thread pool does (without Python's lock)."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        threading.Thread(target=self.spin, daemon=True).start()

    def spin(self) -> None:
        while True:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000)


class NotALoop:
    """Names a class, but no loop."""
