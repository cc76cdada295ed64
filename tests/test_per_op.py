"""Chapter 1 on made-up samples whose answer is known, and on NumPy's own ops."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead import loops
from overhead.chapters.per_op.chapter import BACKENDS, PerOp
from overhead.loops.base import STEP_OPS, Op, nothing_to_wait_for
from overhead.measure import clock as timing
from overhead.problem import mlp
from overhead.problem.workload import Workload
from overhead.records import stats
from overhead.records.record import Record, Samples, Timing

STEPS, TURNS = 10, 6


def record(loop: str, device: str, name: str | None, status: str = "ok", **clocks: list[int]) -> Record:
    """A record of `STEPS` steps a turn; a wall sample covers a whole turn."""
    samples = [
        Samples(
            clock=clock,
            steps=STEPS if clock == "wall" else 1,
            process=0,
            round=list(range(TURNS)) if clock == "wall" else np.repeat(np.arange(TURNS), STEPS).tolist(),
            ns=ns,
        )
        for clock, ns in clocks.items()
    ]
    return Record(
        host="made-up", notebook="01-per-op-breakdown", status=status, reason=None if status == "ok" else "why",
        loop=loop, device=device, op=name, threads=2, timing=Timing(samples=samples), versions={"numpy": "2"},
        workload=Workload().model_dump(mode="json"),
    )  # fmt: skip


def backend(loop: str, device: str, op_ns: int, wait_ns: int, clock_ns: int) -> list[Record]:
    """Thirteen ops of `op_ns`, each lengthened by a wait and by a clock's cost when it is timed by itself."""
    n, turns = STEPS * TURNS, TURNS
    noise = np.random.default_rng(0).integers(0, 100, n)
    ops = [record(loop, device, op, op=(op_ns + wait_ns + clock_ns + noise).tolist()) for op in STEP_OPS]
    whole = record(
        loop, device, "step", unread=(13 * (op_ns + noise)).tolist(), wall=[STEPS * 13 * op_ns] * turns
    )  # fmt: skip
    empty = record(loop, device, "empty", op=[13 * clock_ns + 500] * n, unread=[500] * n)
    return [*ops, whole, empty]


CPU_HOST = backend("numpy", "cpu", 5_000, 0, 200) + backend("tf-eager", "cpu", 20_000, 10_000, 200)
GPU_HOST = CPU_HOST + backend("tf-eager", "gpu", 30_000, 60_000, 200) + backend("cupy", "gpu", 15_000, 30_000, 200)


def test_the_cost_of_measuring_is_the_waits_and_the_readings():
    rows = PerOp().steps_frame(CPU_HOST).set_index("backend")

    assert rows.loc["numpy (cpu)", "reading"] == pytest.approx(13 * 0.2)
    assert rows.loc["numpy (cpu)", "closure"].median == pytest.approx(1, abs=1e-3)
    found = rows.loc["tf-eager (cpu)", "difference"]
    assert found.low <= 13 * 10.2 <= found.high
    assert rows.loc["tf-eager (cpu)", "own"].median == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("records", [CPU_HOST, GPU_HOST], ids=["cpu host", "gpu host"])
def test_every_part_of_the_page_shows_every_backend(records):
    chapter = PerOp()
    backends = {f"{r.loop} ({r.device})" for r in records}

    shown = [chapter.table(records).text, chapter.groups_table(records).text, chapter.steps_table(records).text]
    shown += [chapter.sentence(records).text, chapter.figure(records).alt, chapter.steps_figure(records).alt]

    for part in shown:
        assert all(name in part for name in backends)
        assert "nan" not in part.lower()
    assert len(chapter.figure(records)._render(True, "png")) > 10_000
    assert len(chapter.steps_figure(records)._render(False, "png")) > 5_000
    assert "n = 60 steps a backend in turns of 50" in chapter.table(records).text
    assert "batch size 32; threads 2" in chapter.table(records).text


def test_the_gap_is_split_by_library_waiting_and_device():
    on_cpu, on_gpu = PerOp().confounding(CPU_HOST).text, PerOp().confounding(GPU_HOST).text

    assert "none of this gap is the device" in on_cpu
    assert "The same library on both devices: the GPU's step takes 2.98 times" in on_gpu
    assert re.search(r"tf-eager \(gpu\)\*\* against \*\*numpy \(cpu\)\*\*: 17\.\d times", on_gpu)


def test_a_backend_that_could_not_run_says_why():
    declined = record("cupy", "gpu", None, status="declined")

    assert "**cupy (gpu)** is missing: why." in PerOp().sentence([*CPU_HOST, declined]).text


def test_a_single_library_leaves_no_gap_to_split():
    assert "no gap to split" in PerOp().confounding(CPU_HOST[:15]).text


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_a_difference_may_be_negative_and_lies_in_its_interval(values):
    found = stats.difference_interval(values)

    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert found.n == len(values)


def test_no_difference_needs_a_pair():
    with pytest.raises(ValueError, match="at least one pair"):
        stats.difference_interval([])


def test_every_backend_is_a_loop():
    assert set(BACKENDS) <= set(loops.LOOPS)


@pytest.mark.parametrize("batch_size", [32, 512])
def test_numpy_ops_add_up_to_the_same_calls_unread(batch_size, tiny_data):
    """The ops' sum less the clock's cost is the time of the same thunks: within 3 % and the pairs' own interval."""
    workload = Workload(images=512, batch_size=batch_size)
    data = tiny_data._replace(x=np.tile(tiny_data.x, (3, 1))[:512], y=np.tile(tiny_data.y, 3)[:512])
    loop = loops.make("numpy")
    ops = loop.ops(loop.place(mlp.init(workload), data, workload))
    empty = [Op("empty", "none", nothing_to_wait_for, nothing_to_wait_for)] * 13

    def sums(of: list[Op]) -> float:
        return float(np.median(np.sum(timing.measure_ops(of, 6), axis=0)))

    def unread(of: list[Op]) -> float:
        return float(np.median(timing.measure_unread(of, 6)))

    reading = sums(empty) - unread(empty)
    pairs = [(sums(ops) - reading, unread(ops)) for _ in range(25)]
    ratio = stats.paired_ratio([[a for a, _ in pairs]], [[b for _, b in pairs]])
    assert ratio.low <= 1.03
    assert ratio.high >= 0.97
