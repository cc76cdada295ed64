"""A GPU host without a GPU: a loop that works on another thread with a memory of its own, and a driver that answers.

The loops are named `fake_gpu:FakeGpu` and so on; `install_driver` writes an `nvidia-smi` that tells what it is told.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from overhead.chapters import pages
from overhead.chapters.base import Chapter
from overhead.loops.base import Loop
from overhead.loops.numpy_ import NumpyLoop
from overhead.measure.contestant import Contestant
from overhead.measure.rounds import run_cases
from overhead.measure.session import Session
from overhead.problem.data import Split
from overhead.problem.mlp import Params
from overhead.problem.workload import Workload
from overhead.records.record import Record
from overhead.showing import figures, tables

NAME = "Made-Up GPU 9000"
STEP_S = 20e-6  # the device sleeps as long for each step
MEMORY_BYTES = 100_000_000  # a batch of 4096 and its 48,000 images do not fit
LIMIT = "FAKE_GPU_MEMORY"


def contestant(name: str = "FakeGpu", device: str = "gpu", **env: str) -> Contestant:
    """A loop of this module as a contestant; its worker finds this folder."""
    return Contestant(f"fake_gpu:{name}", device, 1, (("PYTHONPATH", str(Path(__file__).parent)), *env.items()))


class FakeGpu(Loop):
    """NumPy on a thread that also sleeps for each step, whose arrays count against a memory of its own."""

    framework = "numpy"

    def place(self, params: Params, data: Split, workload: Workload) -> Future[Any]:
        limit = int(os.environ.get(LIMIT, MEMORY_BYTES))
        if (asked := self.bytes_of(data, workload)) > limit:
            raise RuntimeError(f"RESOURCE_EXHAUSTED: Out of memory while trying to allocate {asked} bytes.")
        self.numpy, self.queue = NumpyLoop("cpu"), ThreadPoolExecutor(max_workers=1)
        return self.queue.submit(self.numpy.place, params, data, workload)

    @staticmethod
    def bytes_of(data: Split, workload: Workload) -> int:
        return data.x.nbytes + 4 * workload.batch_size * sum(workload.layers)

    def run(self, state: Future[Any], steps: int) -> Future[Any]:
        def work() -> Any:
            done = self.numpy.run(state.result(), steps)
            time.sleep(steps * STEP_S)
            return done

        return self.queue.submit(work)

    def block(self, state: Future[Any]) -> None:
        state.result()

    def fetch(self, state: Future[Any]) -> Params:
        return self.numpy.fetch(state.result())

    def placed_on(self, state: Future[Any]) -> tuple[str, str]:
        return self.device, NAME

    def settings(self, state: Future[Any]) -> dict[str, str]:
        tf32 = os.environ.get("NVIDIA_TF32_OVERRIDE") == "1"
        return {"matmul_precision": "tf32" if tf32 else "float32"}


class FallsBack(FakeGpu):
    """Finds no GPU, says nothing, and computes on the CPU."""

    def placed_on(self, state: Future[Any]) -> tuple[str, str]:
        return "cpu", "host memory"


class NeedsMemory(FakeGpu):
    """Fits at small batches only, and never again in a process in which it once did not: a context that is broken."""

    broken = False

    def place(self, params: Params, data: Split, workload: Workload) -> Future[Any]:
        if NeedsMemory.broken or workload.batch_size > 32:
            NeedsMemory.broken = True
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 99 bytes.")
        return super().place(params, data, workload)


class PlacesSlowly(FakeGpu):
    """Its `place` returns while the images are on their way."""

    COPY_S = 0.3

    def place(self, params: Params, data: Split, workload: Workload) -> Future[Any]:
        placed = super().place(params, data, workload)

        def copied() -> Any:
            time.sleep(self.COPY_S)
            return placed.result()

        return self.queue.submit(copied)


class LeavesItsPid(FakeGpu):
    """Writes its process's number where the driver finds it, so that it knows whether the GPU is at rest."""

    def place(self, params: Params, data: Split, workload: Workload) -> Future[Any]:
        Path(os.environ["PID_FILE"]).write_text(str(os.getpid()))
        return super().place(params, data, workload)


class Disappears(FakeGpu):
    """Its process dies with its GPU while it trains large batches."""

    def run(self, state: Future[Any], steps: int) -> Future[Any]:
        if self.numpy_batches(state) > 32:
            print("F0000 cuda_driver: CUDA_ERROR_DEVICE_UNAVAILABLE: GPU is lost", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGABRT)
        return super().run(state, steps)

    def place(self, params: Params, data: Split, workload: Workload) -> Future[Any]:
        self.size = workload.batch_size
        return super().place(params, data, workload)

    def numpy_batches(self, state: Future[Any]) -> int:
        return self.size


class Says(FakeGpu):
    """Fails with the words in SAYS, as a framework would."""

    def place(self, params: Params, data: Split, workload: Workload) -> Future[Any]:
        raise RuntimeError(os.environ["SAYS"])


class ShowsEnvironment(FakeGpu):
    """Tells the environment that its framework would have found."""

    def settings(self, state: Future[Any]) -> dict[str, str]:
        names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_TF32_OVERRIDE", "CUPY_TF32")
        return {name: os.environ.get(name, "(not set)") for name in names}


class Rounded(FakeGpu):
    """Learns what TF32 would have learnt: its parameters are right to three parts in ten thousand."""

    def fetch(self, state: Future[Any]) -> Params:
        return tuple(layer._replace(w=layer.w * 1.0003) for layer in super().fetch(state))


class FakeSweep(Chapter, frozen=True, strict=True, extra="forbid"):
    """A chapter with the pretended GPU beside a loop on the CPU."""

    name: ClassVar[str] = "05-batch-sweep"

    def take(self, bench: Session) -> list[Record]:
        tiny = bench._replace(preset=bench.preset._replace(rounds=(2, 3), budget_s=5.0, target=0.5))
        loops = [
            Contestant("numpy", "cpu", 1),
            contestant("FakeGpu"),
            contestant("FallsBack"),
            contestant("NeedsMemory"),
        ]
        wanted = [c for c in loops if c.device in self.usable_devices()]
        return run_cases(wanted, [Workload(images=640), Workload(images=640, batch_size=64)], tiny)

    def table(self, records: Sequence[Record]) -> pages.Html:
        frame = tables.epochs_frame(records)
        shown = frame[["loop", "device", "batch_size", "epoch_s", "status", "reason", "disturbed"]]
        return pages.Html(tables.as_html(shown, pages.caption(records, self.settings)))

    def figure(self, records: Sequence[Record]) -> figures.Figure:
        frame = tables.epochs_frame(records)
        timed = frame[frame["status"] == "ok"]
        return figures.against_batch_size(timed, pd.DataFrame(), "epoch_s", "seconds per epoch", "the pretended GPU")


# The driver

CARD = {
    "name": NAME, "driver_version": "555.42.02", "memory.total": "81559", "power.limit": "700.00",
    "clocks.max.sm": "1980", "clocks.max.memory": "3201", "utilization.gpu": "0", "memory.used": "3",
    "clocks.sm": "1980", "temperature.gpu": "41", "power.draw": "98.5",
    "clocks_event_reasons.active": "0x0000000000000001",
}  # fmt: skip
UUID = "GPU-0000000{index}-1111-2222-3333-444444444444"
DRIVER = """#!{python} -SE
import json, pathlib, sys
state = json.loads((pathlib.Path(__file__).parent / "driver.json").read_text())
if "says" in state:
    sys.exit(print(state["says"]) or 9)
pid = pathlib.Path(__file__).parent / "pid"
if "at_rest" in state and pid.exists():
    if pathlib.Path(f"/proc/{{pid.read_text()}}/stat").read_text().rpartition(")")[2].split()[0] in "Tt":
        state["cards"] = [card | state["at_rest"] for card in state["cards"]]  # its worker is stopped
cards, options = state["cards"], dict(part.partition("=")[::2] for part in sys.argv[1:])
if "-L" in options:
    for index, card in enumerate(cards):
        print(f"GPU {{index}}: {{card['name']}} (UUID: {uuid})")
    sys.exit()
chosen = range(len(cards)) if "--id" not in options else [int(options["--id"])]
for index in chosen:
    if "--query-compute-apps" in options:
        print("".join(f"{{pid}}\\n" for pid in state["pids"].get(str(index), [])), end="")
        continue
    fields = options["--query-gpu"].split(",")
    if unknown := [name for name in fields if name not in cards[index]]:
        sys.exit(print(f'Field "{{unknown[0]}}" is not a valid field to query.') or 2)
    print(", ".join(cards[index][name] for name in fields))
"""


def install_driver(folder: Path) -> Path:
    """Write `nvidia-smi` into `folder`, which belongs first on the PATH; `tell` says what it answers."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "nvidia-smi"
    script.write_text(DRIVER.format(python=sys.executable, uuid=UUID))
    script.chmod(0o755)
    tell(folder)
    return folder


def tell(
    folder: Path, *cards: dict[str, str], pids: dict[str, list[int]] | None = None, says: str | None = None
) -> None:
    """The cards that the driver knows (by default one), as changes of `CARD`; processes by card; or its last words."""
    state: dict[str, Any] = {"cards": [{**CARD, **card} for card in cards or ({},)], "pids": pids or {}}
    (folder / "driver.json").write_text(json.dumps(state | ({"says": says} if says else {})))
