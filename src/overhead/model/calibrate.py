"""`overhead calibrate`: the constants of this host in about a minute and a half, from probes and small steps."""

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
from scipy.optimize import lsq_linear

from overhead.machine import host as hosts
from overhead.machine.alone import measuring
from overhead.measure.contestant import Contestant
from overhead.measure.process import START_LIMIT_S, Process, WorkerFailed
from overhead.model.census import CALIBRATED, CENSUS
from overhead.model.constants import TERMS, Constants, Curve, Frame, Library
from overhead.model.products import LAYOUTS, Timed, fit_layout, leave_out, rivals
from overhead.model.replay import DRAWS, Parts, framed, parts
from overhead.problem import data, mlp
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
SHAPES_COMPILED = SHAPES[::2] + SHAPES[5::10]
# (layers, batch size, steps of an epoch): what is left of their time when products and passes are taken off is a
# call's, an operator's, a logit's and an epoch's. The short epoch tells the cost of an epoch from that of a step.
STEPS = (
    ((8, 10), 1, 400), ((8, 10), 1, 20), ((8, 16, 16, 16, 10), 1, 300), ((8, 16, 10), 512, 60), ((8, 10), 3000, 20),
    ((768, 24, 10), 32, 700), ((16, 300, 300, 10), 200, 30), ((768, 100, 10), 48, 150), ((768, 600, 10), 12, 80),
    ((64, 96, 96, 10), 1500, 12), ((768, 128, 10), 700, 16),
)  # fmt: skip
SAMPLES, BLOCK_S = 5, 0.003
FEW_SAMPLES = 4  # of a step: epochs of tens of milliseconds
FACTOR_BOUNDS = ((0.6, 4.0), (0.1, 8.0))  # of products and of passes in a step, against themselves alone
PRIOR = 0.05  # weight of "the factors are 1" beside one step
EFFECTIVE = 4  # constants that a frame's steps really decide, of six: two are held near 1
PROBED = {  # loop whose worker is asked → library → kind of probe and shapes
    "numpy": {"numpy": ("shape", SHAPES)},
    "jax-step": {"xla": ("shape", SHAPES_COMPILED), "xla-tuned": ("shape-tuned", SHAPES_COMPILED)},
    "tf-step": {"tensorflow": ("shape", SHAPES)},
}
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


def timed_products(asked: Process, kind: str, shapes: Sequence[tuple[int, int, int]]) -> list[Timed]:
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


def small_steps(asked: Process, folder: Path) -> list[Measured]:
    """Epochs of `STEPS` by the worker's loop, by the headline's estimator."""
    found = []
    for layers, batch, steps in STEPS:
        workload = Workload(layers=layers, batch_size=batch, images=batch * steps)
        found.append(Measured(workload, epoch_s(asked, workload, folder)))
    return found


def epoch_s(asked: Process, workload: Workload, folder: Path, samples: int = FEW_SAMPLES) -> float:
    """Place `workload` and time whole epochs, warm, by the headline's estimator."""
    place(asked, workload, folder)
    ns = asked.ask("run", steps=workload.steps, repeats=samples)["wall_ns"]
    return undisturbed_s(ns)


def undisturbed_s(ns: Sequence[int]) -> float:
    """Seconds by the estimator of the headline, each sample a turn: what is predicted is the undisturbed time."""
    return decile(ns) * 1e-9


def place(asked: Process, workload: Workload, folder: Path) -> None:
    """Data and parameters for `workload`, and two epochs to warm up."""
    save_split(folder, data.for_workload(workload))
    np.savez(folder / "params.npz", *mlp.flat(mlp.init(workload)))
    asked.ask("place", data=str(folder), params=str(folder / "params.npz"), workload=workload.model_dump(mode="json"))
    asked.ask("run", steps=workload.steps, repeats=2)


def solve(rows: Sequence[Parts], steps: Sequence[int], seconds: Sequence[float]) -> tuple[float, ...]:
    """A frame's constants (as `TERMS`) by bounded least squares of relative errors."""
    columns = [_column(row, count) for row, count in zip(rows, steps, strict=True)]
    matrix = np.array(columns) / np.array(seconds)[:, None]
    scale = np.maximum(matrix.max(axis=0), 1e-12)
    prior = PRIOR * np.eye(6)[4:]
    low = np.array([0, 0, 0, 0, FACTOR_BOUNDS[0][0], FACTOR_BOUNDS[1][0]])
    high = np.array([np.inf, np.inf, np.inf, np.inf, FACTOR_BOUNDS[0][1], FACTOR_BOUNDS[1][1]])
    # Robust: a step that was disturbed must not move the constants of all the others.
    weights, found = np.ones(len(rows)), np.zeros(6)
    for _ in range(5):
        a = np.vstack([weights[:, None] * matrix / scale, prior / scale])
        b = np.concatenate([weights, np.full(2, PRIOR)])
        found = lsq_linear(a, b, bounds=(low * scale, high * scale)).x / scale
        off = np.abs(matrix @ found - 1)
        weights = np.minimum(1.0, 0.15 / np.maximum(off, 1e-9)) ** 0.5
    return tuple(float(x) for x in np.clip(found, low, high))


def _column(row: Parts, steps: int) -> list[float]:
    return [1.0, steps, steps * row.ops, steps * row.logits, steps * sum(row.arithmetic_s), steps * row.memory_s]


def frame_of(rows: Sequence[Parts], steps: Sequence[int], seconds: Sequence[float], seed: int = 0) -> Frame:
    """The constants of a loop, with draws from resampled leftovers and its leftovers, widened."""
    best = solve(rows, steps, seconds)
    predicted = [framed(row, count, best).total_s for row, count in zip(rows, steps, strict=True)]
    inside = np.log(np.array(seconds) / np.array(predicted))
    # Constants that were fitted make leftovers small: they are widened as for so many degrees of freedom.
    residuals = inside * (len(rows) / max(len(rows) - EFFECTIVE, 1)) ** 0.5
    rng, draws = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        drawn = np.array(predicted) * np.exp(rng.choice(inside, len(inside)))
        draws.append(solve(rows, steps, drawn.tolist()))
    return Frame(**dict(zip(TERMS, best, strict=True)), draws=draws, residuals=residuals.tolist())


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
        for loop, own in [(loop, own) for own in sorted({threads, 1}, reverse=True) for loop in PROBED]:
            try:
                with worker(loop, own, raw.versions) as asked:
                    raw = _probe(raw, asked, own)
                    if own == threads and loop in CALIBRATED:
                        raw.steps[loop] = small_steps(asked, Path(folder))
            except WorkerFailed as failure:
                say(f"no constants of {loop} with {own} threads: {failure.reason}")
            say(f"{loop}, {own} {'thread' if own == 1 else 'threads'}: {time.monotonic() - began:.0f} s")
        for loop in [name for name in CALIBRATED if name not in PROBED]:
            try:
                with worker(loop, threads, raw.versions) as asked:
                    raw.steps[loop] = small_steps(asked, Path(folder))
            except WorkerFailed as failure:
                say(f"no constants of {loop}: {failure.reason}")
            say(f"{loop}: {time.monotonic() - began:.0f} s")
    return raw._replace(seconds=time.monotonic() - began)


def _probe(raw: Raw, asked: Process, threads: int) -> Raw:
    """`raw` with the products and, with all threads, the passes of a worker's framework."""
    loop = asked.contestant.loop
    for called, (kind, shapes) in PROBED[loop].items():
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
            below = CENSUS[loop].below_batch or math.inf
            epochs = [m for m in epochs if m.workload.batch_size < below]
            rows = [parts(CENSUS[loop], m.workload, made, raw.threads) for m in epochs]
            frames[loop] = frame_of(rows, [m.workload.steps for m in epochs], [m.seconds for m in epochs])
    return made.model_copy(update={"frames": frames})
