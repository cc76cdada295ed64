"""`overhead advise --check`: predictions against measured epochs that no constant was fitted on."""

from __future__ import annotations

import json
import math
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from overhead.machine.alone import measuring
from overhead.machine.disturbance import Disturbance
from overhead.measure.process import Process, WorkerFailed
from overhead.model.calibrate import place, save, undisturbed_s, worker
from overhead.model.census import CALIBRATED, CPU_LOOPS
from overhead.model.constants import Constants
from overhead.model.replay import CannotModel, on_cpu
from overhead.problem import data
from overhead.problem.workload import Workload
from overhead.records import record as records

FILE = "advise-check.json"  # beside the constants that it judges
IMAGES = 4_096  # of an epoch: what a step takes counts, and 48,000 images only make it last longer
# Batch sizes between those of the calibration, widths 16 to 1,024, one to four layers. None stands in calibrate.py.
CASES = (
    ((784, 128, 10), 32), ((784, 128, 10), 90), ((784, 128, 10), 450), ((784, 128, 10), 2048), ((784, 10), 40),
    ((784, 16, 10), 64), ((784, 1024, 10), 128), ((784, 256, 128, 10), 70), ((784, 64, 64, 64, 10), 20),
    ((784, 512, 256, 10), 512), ((784, 400, 10), 1024), ((784, 50, 50, 10), 180),
)  # fmt: skip
ROUNDS, REPEATS = 3, 2  # turns of a loop, epochs a turn
UNSEEN = tuple(loop for loop in CPU_LOOPS if loop not in CALIBRATED)  # predicted from their census alone

Say = Callable[[str], None]


class Checked(NamedTuple):
    """One case: seconds an epoch."""

    layers: tuple[int, ...]
    batch_size: int
    loop: str
    predicted_s: float
    low_s: float
    high_s: float
    measured_s: float
    disturbed: tuple[str, ...] = ()  # what else the host did meanwhile
    ns: tuple[int, ...] = ()  # the epochs of which `measured_s` is the undisturbed time

    @property
    def error(self) -> float:
        """|log(measured / predicted)|, which is the relative error where it is small."""
        return abs(math.log(self.measured_s / self.predicted_s))


def workloads() -> list[Workload]:
    return [Workload(layers=layers, batch_size=size, images=IMAGES) for layers, size in CASES]


def check(
    constants: Constants, kept: Path, seconds: float = 600.0, say: Say = lambda line: None, force: bool = False,
    loops: Sequence[str] = CPU_LOOPS,
) -> list[Checked]:  # fmt: skip
    """Measure as many cases as `seconds` allow and return all that are in `kept`, a file that later calls go on with.

    Each case's loops take turns in shuffled rounds, judged by the headline's estimator. A file of other constants
    starts anew. Raises `Busy` when another measurement holds the host.
    """
    started, found = time.monotonic(), read(kept, constants)
    waiting = [w for w in workloads() if not any(_same(c, w) for c in found)]
    if not waiting:
        return found
    with measuring(force), tempfile.TemporaryDirectory(prefix="overhead-") as folder, ExitStack() as stack:
        workers = _workers(constants, loops, stack)
        disturbance = Disturbance()
        disturbance.start(_own_seconds(workers))
        for workload in waiting:
            if time.monotonic() - started > seconds:
                break
            measured = _case(workload, workers, constants, Path(folder))
            disturbed = tuple(disturbance.found(_own_seconds(workers)))
            found += [case._replace(disturbed=disturbed) for case in measured]
            _write(kept, constants, found)
            say(f"{workload.layers}, batch size {workload.batch_size}: {time.monotonic() - started:.0f} s")
    return found


def _workers(constants: Constants, loops: Sequence[str], stack: ExitStack) -> dict[str, Process]:
    """A process a loop that has constants here, stopped."""
    found = {}
    for loop in loops:
        try:
            on_cpu(loop, Workload(), constants)
            found[loop] = stack.enter_context(worker(loop, constants.threads, {}))
            found[loop].pause()
        except (CannotModel, WorkerFailed):
            continue
    return found


def _own_seconds(workers: Mapping[str, Process]) -> float:
    return time.process_time() + sum(asked.cpu_seconds() for asked in workers.values())


def _case(workload: Workload, workers: dict[str, Process], constants: Constants, folder: Path) -> list[Checked]:
    samples: dict[str, list[int]] = {}
    priced = {}
    for loop in workers:
        with suppress(CannotModel):
            priced[loop] = on_cpu(loop, workload, constants)
    save(folder, workload, data.for_workload(workload))
    for loop in priced:
        asked = workers[loop]
        place(asked, workload, folder)
        samples[loop] = []
        asked.pause()
    shuffle = random.Random(0)
    for _ in range(ROUNDS):
        for loop in shuffle.sample(sorted(priced), len(priced)):
            # Whole epochs only: from the middle of one, a loop that trains an epoch a call goes on step by step.
            woken = workers[loop].ask("run", steps=workload.steps, repeats=1 + REPEATS)["wall_ns"]
            samples[loop] += woken[1:]  # the first wakes caches and pools
            workers[loop].pause()
    found = []
    for loop, ns in samples.items():
        p = priced[loop]
        measured_s = undisturbed_s(ns)
        found.append(
            Checked(workload.layers, workload.batch_size, loop, p.epoch_s, p.low_s, p.high_s, measured_s, ns=tuple(ns))
        )
    return found


def report(found: Sequence[Checked]) -> dict[str, Any]:
    """cases, median_error, p90_error, coverage and regret, ready for JSON. Raises `ValueError` without a case."""
    if not found:
        raise ValueError("a check needs at least one case, got none")
    errors = [c.error for c in found]
    regrets = []
    for case in dict.fromkeys((c.layers, c.batch_size) for c in found):
        here = [c for c in found if (c.layers, c.batch_size) == case]
        advised = min(here, key=lambda c: c.predicted_s)
        regrets.append(advised.measured_s / min(c.measured_s for c in here))
    by_loop = {
        loop: {"median_error": float(np.median([c.error for c in found if c.loop == loop])), "unseen": loop in UNSEEN}
        for loop in dict.fromkeys(c.loop for c in found)
    }
    return {
        "cases": [{**c._asdict(), "layers": list(c.layers)} for c in found],
        "disturbed": sorted({why for c in found for why in c.disturbed}),
        "median_error": float(np.median(errors)),
        "p90_error": float(np.quantile(errors, 0.9)),
        "coverage": float(np.mean([c.low_s <= c.measured_s <= c.high_s for c in found])),
        "regret": {"median": float(np.median(regrets)), "p95": float(np.quantile(regrets, 0.95))},
        "loops": by_loop,
        "left": len(CASES) - len({(c.layers, c.batch_size) for c in found}),
    }


def as_text(found: dict[str, Any]) -> str:
    """The report for people."""
    lines = [
        f"{len(found['cases'])} epochs that no constant was fitted on: median error {found['median_error']:.1%}, "
        f"90th percentile {found['p90_error']:.1%}",
        f"90 % intervals hold the measured time in {found['coverage']:.0%}",
        f"the loop advised takes {found['regret']['median']:.2f} times the best one's time "
        f"(95th percentile {found['regret']['p95']:.2f})",
    ]
    lines += [
        f"  {loop}{' (unseen)' if of['unseen'] else ''}: median error {of['median_error']:.1%}"
        for loop, of in found["loops"].items()
    ]
    if found["disturbed"]:
        lines.append(f"not to be believed, the host was disturbed: {', '.join(found['disturbed'])}")
    if found["left"]:
        lines.append(f"{found['left']} of {len(CASES)} networks are still to be measured: run it again")
    return "\n".join(lines)


WHOLE, MEDIAN, COVERAGE = 40, 0.10, 0.85  # cases; the errors and the coverage at which predictions are to be believed
NINTH, REGRETS = 0.25, (1.10, 1.25)  # of errors the 90th percentile; of regrets the median and the 95th percentile


def shortfalls(found: dict[str, Any]) -> list[str]:
    """What of a report falls short of what is aimed at, each in words."""
    aims = {
        "median error": (found["median_error"], MEDIAN), "90th percentile": (found["p90_error"], NINTH),
        "median regret": (found["regret"]["median"], REGRETS[0]),
        "95th percentile of regret": (found["regret"]["p95"], REGRETS[1]),
    }  # fmt: skip
    said = [f"{what} {value:.2f} (at most {most:.2f})" for what, (value, most) in aims.items() if value > most]
    if not COVERAGE <= found["coverage"] <= COVERAGE + 0.10:
        said.append(f"coverage {found['coverage']:.0%} (85 to 95 %)")
    if len(found["cases"]) < WHOLE:
        said.append(f"{len(found['cases'])} epochs (at least {WHOLE})")
    return said


def trust(kept: Path, constants: Constants) -> tuple[bool, str]:
    """Whether the predictions on this host have been held against measured epochs and stood, and a sentence."""
    try:
        found = read(kept, constants)
    except (OSError, ValueError, KeyError, TypeError):
        found = []
    if len(found) < WHOLE:
        return False, "Not checked on this host: a guess until `overhead advise --check` has measured it."
    judged = report(found)
    told = (
        f"median error {judged['median_error']:.0%}, 90 % intervals hold {judged['coverage']:.0%} of "
        f"{len(found)} measured epochs"
    )
    if judged["disturbed"] or judged["median_error"] > MEDIAN or judged["coverage"] < COVERAGE:
        return False, f"Checked on this host and found wanting: {told}. Take it as a guess."
    return True, f"Checked on this host: {told}."


def _same(checked: Checked, workload: Workload) -> bool:
    return (checked.layers, checked.batch_size) == (workload.layers, workload.batch_size)


def read(kept: Path, constants: Constants) -> list[Checked]:
    """What a file keeps of a check of these constants; nothing of others'."""
    if not kept.exists():
        return []
    content = json.loads(kept.read_text(encoding="utf-8"))
    if content.get("constants") != constants.started:
        return []
    return [
        Checked(
            **{**case, "layers": tuple(case["layers"]), "disturbed": tuple(case["disturbed"]), "ns": tuple(case["ns"])}
        )
        for case in content["cases"]
    ]


def _write(kept: Path, constants: Constants, found: Sequence[Checked]) -> None:
    cases = [c._asdict() for c in found]
    records.write_text(kept, json.dumps({"constants": constants.started, "cases": cases}) + "\n")
