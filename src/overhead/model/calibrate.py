"""`overhead calibrate`: the constants of this host in about a minute, from probes and small steps."""

from __future__ import annotations

import datetime
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from overhead.machine import host as hosts
from overhead.machine.alone import measuring
from overhead.measure.contestant import Contestant
from overhead.measure.process import START_LIMIT_S, Process, WorkerFailed
from overhead.model.census import CENSUS
from overhead.model.constants import Constants, Curve, Library
from overhead.model.frames import frame_of
from overhead.model.products import LAYOUTS, Timed, fit_layout, leave_out, rivals
from overhead.model.replay import parts
from overhead.problem import data, mlp
from overhead.problem.data import Split
from overhead.problem.stored import save_split
from overhead.problem.workload import Workload
from overhead.records.headline import decile

# (batch, inputs, outputs) of layers whose products are timed. Half are those of networks for MNIST's shape.
SHAPES = (
    (1, 784, 128), (4, 784, 32), (8, 784, 300), (16, 784, 64), (24, 784, 1000), (32, 784, 128), (48, 784, 24),
    (64, 784, 512), (128, 784, 96), (200, 784, 256), (512, 784, 128), (700, 784, 20), (1024, 784, 400), (2600, 784, 48),
    (4096, 784, 128), (1, 64, 10), (2, 700, 500), (6, 200, 10), (10, 128, 10), (16, 900, 900), (20, 64, 64),
    (32, 512, 10), (32, 256, 256), (40, 100, 30), (64, 20, 400), (96, 1000, 10), (128, 400, 100), (256, 128, 10),
    (300, 48, 48), (400, 600, 700), (600, 24, 10), (900, 200, 200), (1500, 16, 128), (2048, 64, 10), (3000, 300, 32),
    (4096, 128, 10),
)  # fmt: skip
# In XLA each shape is compiled, which takes longer than to time it.
SHAPES_COMPILED, SHAPES_AGAIN = SHAPES[::2], SHAPES[::3]
# (layers, batch size, steps of an epoch): what is left of their time when products and passes are taken off is a
# call's, an operator's, a logit's and an epoch's. The short epoch tells the cost of an epoch from that of a step.
STEPS = (
    ((8, 10), 1, 300), ((8, 16, 16, 16, 10), 4, 200), ((8, 10), 1, 20), ((784, 10), 16, 250), ((784, 24, 10), 32, 250),
    ((784, 100, 10), 16, 200), ((784, 160, 10), 60, 100), ((784, 10), 700, 12), ((784, 96, 10), 256, 40),
    ((784, 700, 10), 24, 60), ((784, 300, 10), 700, 8), ((784, 32, 10), 1500, 10), ((784, 192, 10), 3000, 5),
    ((784, 80, 80, 10), 40, 150), ((784, 40, 40, 40, 10), 100, 60), ((784, 800, 200, 10), 200, 10),
)  # fmt: skip
SLOW_TO_START = ("keras-fit", "keras-fit-tuned")  # seconds a network: every second of `STEPS`
SAMPLES, BLOCK_S = 5, 0.003
FEW_SAMPLES = 4  # of a step: epochs of tens of milliseconds
Shapes = Sequence[tuple[int, int, int]]


class Asked(NamedTuple):
    """What one framework's process is asked: it starts once, as the loop whose environment suits all of them."""

    products: dict[str, tuple[str, Shapes]]  # by library: the kind of probe, and its shapes
    loops: tuple[str, ...]  # whose small steps are timed


PROBED = {  # by the loop that its process starts as
    "numpy": Asked({"numpy": ("shape", SHAPES)}, ("numpy",)),
    "jax-step": Asked(
        {"xla": ("shape", SHAPES_COMPILED), "xla-tuned": ("shape-tuned", SHAPES_AGAIN)}, ("jax-step", "jax-epoch")
    ),
    "keras-fit": Asked(
        {"tensorflow": ("shape", SHAPES)}, ("tf-step", "tf-epoch", "keras-fit", "keras-fit-tuned")
    ),
}  # fmt: skip
LEAST_FAR_BYTES = 1 << 22

Say = Callable[[str], None]


class Measured(NamedTuple):
    """Seconds an epoch of a loop on a workload."""

    workload: Workload
    seconds: float


@contextmanager
def worker(loop: str, threads: int, versions: dict[str, str]) -> Iterator[Process]:
    """A process of its own, closed in the end. Raises `WorkerFailed` where its framework is missing."""
    made = Process(Contestant(loop, "cpu", threads))
    try:
        versions |= made.ask("hello", START_LIMIT_S)["versions"]
        yield made
    finally:
        made.close()


def probed(asked: Process, kind: str, workload: Workload) -> list[dict[str, Any]]:
    """The probes of a kind: name, flops, bytes and seconds a call, undisturbed."""
    answer = asked.ask(
        "probe", kind=kind, workload=workload.model_dump(mode="json"), block_s=BLOCK_S, samples=SAMPLES, clocks=["end"]
    )
    return [{**p, "seconds": undisturbed_s(p["end_ns"]) / p["calls"]} for p in answer["probes"]]


def timed_products(asked: Process, kind: str, shapes: Shapes) -> list[Timed]:
    """Every product of layers of these shapes."""
    found = []
    for batch, inputs, outputs in shapes:
        by_layout = {"nn": (batch, outputs, inputs), "tn": (inputs, outputs, batch), "nt": (batch, inputs, outputs)}
        workload = Workload(layers=(inputs, outputs), batch_size=batch)
        for probe in probed(asked, kind, workload):
            m, n, k = by_layout[probe["name"]]
            found.append(Timed(probe["name"], m, n, k, probe["seconds"] * 2 * m * n * k / probe["flops"]))
    return found


def library(timed: Sequence[Timed], threads: int) -> Library:
    """The fits of a library's products, and how good they are beside simpler ways."""
    of = {layout: [x for x in timed if x.layout == layout] for layout in LAYOUTS}
    left = [float(x) for layout in LAYOUTS for x in leave_out(of[layout], threads)]
    fits = {layout: fit_layout(of[layout], threads) for layout in LAYOUTS}
    return Library(fits=fits, residuals=left, rivals={"formula": float(np.median(np.abs(left))), **rivals(timed)})


def curves(probes: Sequence[dict[str, Any]]) -> tuple[Curve, Curve]:
    """Seconds a byte by array size: of passes over arrays that are there, and what a new array costs on top.

    What the smallest array takes is a call, and no cost of bytes.
    """
    by: dict[str, dict[float, dict[str, Any]]] = {}
    for probe in probes:
        how, size = probe["name"].split()
        by.setdefault(how, {})[float(size)] = probe
    call_s = min(p["seconds"] for p in by["into"].values())
    there = [(s, max(p["seconds"] - call_s, 0.0) / p["bytes"]) for s, p in sorted(by["into"].items())][1:]
    new = by.get("new", by["into"])
    fresh = [(s, max(p["seconds"] - by["into"][s]["seconds"], 0.0) / s) for s, p in sorted(new.items())][1:]
    return there, fresh


def small_steps(asked: Process, loop: str, given: Sequence[tuple[Workload, Path]]) -> list[Measured]:
    """Epochs of the workloads in their folders by a loop in the worker, by the headline's estimator."""
    asked.ask("become", loop=loop)
    below = CENSUS[loop].below_batch or math.inf
    chosen = given[::2] if loop in SLOW_TO_START else given
    return [Measured(w, timed_s(asked, w, folder)) for w, folder in chosen if w.batch_size < below]


def prepared(folder: Path) -> list[tuple[Workload, Path]]:
    """`STEPS` with their images, which are made up, and parameters: each in a folder of its own."""
    found = []
    for layers, batch, steps in STEPS:
        workload = Workload(layers=layers, batch_size=batch, images=batch * steps)
        own = folder / str(len(found))
        own.mkdir()
        save(own, workload, data.synthetic(workload))
        found.append((workload, own))
    return found


def epoch_s(asked: Process, workload: Workload, folder: Path) -> float:
    """Place `workload` and time whole epochs, warm, by the headline's estimator."""
    save(folder, workload, data.for_workload(workload))
    return timed_s(asked, workload, folder)


def timed_s(asked: Process, workload: Workload, folder: Path, samples: int = FEW_SAMPLES) -> float:
    """Time whole epochs of what `save` left in `folder`."""
    place(asked, workload, folder)
    ns = asked.ask("run", steps=workload.steps, repeats=samples)["wall_ns"]
    return undisturbed_s(ns)


def undisturbed_s(ns: Sequence[int]) -> float:
    """Seconds by the estimator of the headline, each sample a turn: what is predicted is the undisturbed time."""
    return decile(ns) * 1e-9


def save(folder: Path, workload: Workload, split: Split) -> None:
    """Images and first parameters for `place`."""
    save_split(folder, split)
    np.savez(folder / "params.npz", *mlp.flat(mlp.init(workload)))


def place(asked: Process, workload: Workload, folder: Path) -> None:
    """Data and parameters for `workload` from `folder`, and two epochs to warm up."""
    asked.ask("place", data=str(folder), params=str(folder / "params.npz"), workload=workload.model_dump(mode="json"))
    asked.ask("run", steps=workload.steps, repeats=2)


class Raw(NamedTuple):
    """What was timed, before anything is fitted."""

    threads: int
    products: dict[str, dict[int, list[Timed]]]  # by library, by number of threads
    passes: dict[str, Curve]
    fresh: Curve
    steps: dict[str, list[Measured]]  # by loop
    versions: dict[str, str]
    seconds: float


def measure(say: Say = lambda line: None, force: bool = False, threads: int | None = None) -> Raw:
    """Time probes and small steps; a framework that is missing is left out, and what says so is said.

    Raises `Busy` when another measurement holds the host.
    """
    began, threads = time.monotonic(), threads or hosts.cores_allowed()
    raw = Raw(threads, {}, {}, [(1.0, 0.0), (2.0, 0.0)], {}, {}, 0.0)
    with measuring(force), tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        given = prepared(Path(folder))
        for loop, own in [(loop, own) for own in sorted({threads, 1}, reverse=True) for loop in PROBED]:
            try:
                with worker(loop, own, raw.versions) as asked:
                    raw = _probe(raw, asked, own)
                    for name in PROBED[loop].loops if own == threads else ():
                        raw.steps[name] = small_steps(asked, name, given)
                        say(f"{name}: {time.monotonic() - began:.0f} s")
            except WorkerFailed as failure:
                say(f"no constants of {loop} with {own} threads: {failure.reason}")
            say(f"{loop}, {own} {'thread' if own == 1 else 'threads'}: {time.monotonic() - began:.0f} s")
    return raw._replace(seconds=time.monotonic() - began)


def _probe(raw: Raw, asked: Process, threads: int) -> Raw:
    """`raw` with the products and, with all threads, the passes of a worker's framework."""
    loop = asked.contestant.loop
    for called, (kind, shapes) in PROBED[loop].products.items():
        if kind == "shape-tuned" and threads != raw.threads:
            continue
        raw.products.setdefault(called, {})[threads] = timed_products(asked, kind, shapes)
    if threads == raw.threads:
        framework = CENSUS[loop].framework
        raw.passes[framework], new = curves(probed(asked, "pass", Workload()))
        if framework == "numpy":
            raw = raw._replace(fresh=new)
    return raw


def fitted(raw: Raw, name: str) -> Constants:
    """The constants that `raw` gives, under a host's name."""
    facts = hosts.facts()
    made = Constants(
        name=name, host={key: facts[key] for key in (*hosts.SAME_HOST, "memory_bytes", "gpus")},
        versions=raw.versions, started=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=raw.seconds, threads=raw.threads,
        far_bytes=max(facts["caches_bytes"].get("L3", 0), LEAST_FAR_BYTES),
        products={
            called: {str(threads): library(timed, threads) for threads, timed in by.items()}
            for called, by in raw.products.items()
        },
        passes=raw.passes, fresh=raw.fresh, frames={},
    )  # fmt: skip
    frames = {}
    for loop, epochs in raw.steps.items():
        if CENSUS[loop].library in made.products:
            rows = [parts(CENSUS[loop], m.workload, made, raw.threads) for m in epochs]
            frames[loop] = frame_of(rows, [m.workload for m in epochs], [m.seconds for m in epochs])
    return made.model_copy(update={"frames": frames})
