"""Members of a sweep in one process: `python -m overhead.sweep.worker ENGINE DEVICE`, with any worker's verbs too."""

from __future__ import annotations

import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.loops.many import ManyLoop
from overhead.machine.usage import peak_rss_bytes
from overhead.measure import agreement
from overhead.measure import clock as timing
from overhead.measure.worker import Worker, serve
from overhead.problem import data, mlp
from overhead.problem.stored import load_split
from overhead.problem.workload import Workload


class Members(Worker):
    """The models of this process, trained an epoch at a time."""

    loop: ManyLoop
    first: NDArray[np.float64] | None = None  # losses of the very first step, (models,)

    def models(self, count: int) -> dict[str, Any]:
        """Train `count` equal models through the verbs of any worker."""
        self.loop.models = count
        return {}

    def place_members(self, images: str | None, workload: dict[str, Any], members: list[Any]) -> dict[str, Any]:
        """Place a model for each (rate, seed) of `members`; seconds to load the images, to place all, and to compile.

        `images` is a folder of `save_split`; without one they come from the package.
        """
        self.state = self.first = None
        gc.collect()
        self.workload = Workload(**workload)
        seeds = {seed: mlp.init(self.workload.model_copy(update={"seed": seed})) for _, seed in members}
        params, rates = [seeds[seed] for _, seed in members], [rate for rate, _ in members]
        held = data.VALIDATION_IMAGES if self.workload.is_mnist else 0
        with ThreadPoolExecutor(1) as compiler:  # beside the images, on another core
            compiled_s = self.loop.compile_s
            prepared = compiler.submit(self.loop.prepare, params, self.workload, held)
            start = time.perf_counter()
            split = load_split(Path(images)) if images else data.for_workload(self.workload)
            loaded = time.perf_counter()
            self.state = self.loop.place_many(params, rates, split, self.workload)
            self.loop.block(self.state)
            placed = time.perf_counter()
            prepared.result()
        device, name = self.loop.placed_on(self.state)
        return {
            "load_s": loaded - start,
            "placed_s": placed - loaded,
            "compile_s": self.loop.compile_s - compiled_s,
            "device": device,
            "device_name": name,
            "settings": self.loop.settings(self.state),
            "data": split.name,
        }

    def epoch(self) -> dict[str, Any]:
        """Train an epoch: seconds, and of each model its mean loss, the step it diverged at, and its accuracy."""
        assert self.workload is not None
        compiled_s = self.loop.compile_s
        self.state, sample = timing.measure(self.loop, self.state, self.workload.steps)
        compile_s = self.loop.compile_s - compiled_s
        start = time.perf_counter()
        losses = np.asarray(self.loop.losses(self.state), np.float64)  # (steps, models)
        accuracy, finite = self.loop.judge(self.state)
        first = self.first
        if first is None:  # a loop that tells an epoch's mean only does not know where it began
            first = self.first = losses[0] if len(losses) > 1 else np.full(losses.shape[1], np.nan)
        classes = self.workload.layers[-1]
        steps = [
            agreement.diverged_step(of_one.tolist(), classes, began)
            for of_one, began in zip(losses.T, first, strict=True)
        ]
        last = self.workload.steps - 1  # the last update is seen in the parameters only
        return {
            "wall_s": sample.wall_ns * 1e-9,
            "compile_s": compile_s,
            "judge_s": time.perf_counter() - start,
            "loss": [float(mean) if np.isfinite(mean) else None for mean in losses.mean(axis=0)],
            "diverged": [step if step is not None or ok else last for step, ok in zip(steps, finite, strict=True)],
            "val_accuracy": [float(share) if np.isfinite(share) else None for share in accuracy],
            "compilations": self.loop.compilations(),
        }

    def memory(self) -> dict[str, Any]:
        """Peak and present resident memory of this process alone, bytes."""
        return {**super().memory(), "peak_rss_bytes": peak_rss_bytes()}


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), Members)
