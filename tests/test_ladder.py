"""Chapter 6 on made-up records whose gains are known, of a CPU host and of a GPU host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.chapters.base import ParameterError
from overhead.chapters.ladder.chapter import RUNGS, OverheadLadder, count_text, keep_census, payback
from overhead.loops import LOOPS
from overhead.machine import host
from overhead.measure.case import Case
from overhead.measure.contestant import TF32, Contestant
from overhead.measure.process import WorkerFailed
from overhead.problem.workload import Workload
from overhead.records import headline, stats
from overhead.records.record import Record, Samples, Timing

ROUNDS = 11
# Seconds an epoch: each rung half of the rung below, but for numpy-preallocated, which does not help.
SECONDS = {
    "keras-fit-validated": 1.6, "keras-fit": 0.8, "keras-fit-tuned": 0.4, "tf-step": 0.4, "tf-epoch": 0.2,
    "jax-op-by-op": 2.0, "jax-step": 0.2, "jax-epoch": 0.1,
    "numpy-per-image": 3.0, "numpy": 0.2, "numpy-preallocated": 0.2,
}  # fmt: skip
ON_GPU = {
    "cupy-per-image": 18.0,
    "cupy": 0.4,
    "cupy-fused": 0.3,
    "cupy-graph": 0.15,
    "jax-step": 0.1,
    "jax-epoch": 0.05,
}


def record(loop: str, seconds: float, device: str = "cpu", **more: Any) -> Record:
    """A rung around `seconds` an epoch; its first epoch took two seconds more."""
    workload = Workload()
    # the same noise in every rung of a round, as interleaved rounds have it, and a little of its own
    shared = np.random.default_rng(0).uniform(0.9, 1.1, ROUNDS)
    own = np.random.default_rng(len(loop) + len(device)).uniform(0.99, 1.01, ROUNDS)
    values = (seconds * shared * own).tolist()
    walls = [
        Samples(clock="wall", steps=workload.steps, process=p, round=list(range(ROUNDS)), seconds=values)
        for p in (0, 1)
    ]
    fields: dict[str, Any] = {
        "host": "made-up", "notebook": "06-overhead-ladder", "status": "ok", "loop": loop, "device": device,
        "threads": 2,
        "workload": workload,
        "timing": Timing(first_s=seconds + 2, stopped="target", samples=walls), "versions": {"numpy": "2"},
        "census": {"python_calls": 8.0, "page_faults": 0.25},
    }  # fmt: skip
    return Record(**{**fields, **more})


CPU_HOST = [record(loop, s) for loop, s in SECONDS.items()] + [record("floor-numpy", 0.08)]
VARIED = [
    record("jax-epoch", 0.1, "gpu", env={"XLA_FLAGS": "--xla_other=1 --xla_gpu_enable_command_buffer="}),
    record("jax-epoch", 0.04, "gpu", env=dict(TF32)),
]
GPU_HOST = [
    *CPU_HOST, *(record(loop, s, "gpu") for loop, s in ON_GPU.items()), *VARIED, record("floor-xla", 0.02, "gpu"),
]  # fmt: skip
MISSING = {"status": "declined", "reason": "tensorflow <is> not installed", "timing": None}


def test_every_rung_is_a_loop_and_stands_on_an_earlier_one():
    seen: set[str] = set()
    for rung in RUNGS:
        assert rung.loop in LOOPS
        assert rung.below is None or rung.below in seen
        assert rung.removes.startswith("nothing") == (rung.below is None)
        seen.add(rung.loop)
    assert len({(rung.loop, rung.variant) for rung in RUNGS}) == len(RUNGS)


def test_variants_of_a_loop_are_rows_of_their_own_on_a_gpu_alone(monkeypatch):
    frame = OverheadLadder().frame(GPU_HOST).set_index(["loop", "device"])

    assert frame.loc[("jax-epoch", "gpu"), "epoch"].median == pytest.approx(0.05, rel=0.1)
    assert frame.loc[("jax-epoch, no command buffers", "gpu"), "gain"].median == pytest.approx(0.5, rel=0.05)
    assert frame.loc[("jax-epoch, TF32", "gpu"), "gain"].median == pytest.approx(1.25, rel=0.05)
    assert "no command buffers" not in OverheadLadder().sentence(GPU_HOST).text
    monkeypatch.setattr(OverheadLadder, "usable_devices", lambda _: ["cpu", "gpu"])
    varied = [c for c in OverheadLadder().contestants() if c.env]
    assert {(c.loop, c.device) for c in varied} == {("jax-epoch", "gpu"), ("cupy", "gpu")}
    assert sum(c.env == TF32 for c in varied) == 2


def test_each_device_has_its_own_floor():
    frame = OverheadLadder().frame(GPU_HOST).set_index(["loop", "device"])

    assert frame.loc[("jax-epoch", "cpu"), "times_floor"].median == pytest.approx(0.1 / 0.08, rel=0.05)
    assert frame.loc[("jax-epoch", "gpu"), "times_floor"].median == pytest.approx(0.05 / 0.02, rel=0.05)


@pytest.mark.parametrize("records", [CPU_HOST, GPU_HOST], ids=["cpu host", "gpu host"])
def test_the_gain_of_a_rung_is_the_time_of_the_rung_below_over_its_own(records):
    frame = OverheadLadder().frame(records)

    seconds = {(r.loop, r.device): s for r in records for s in [(SECONDS if r.device == "cpu" else ON_GPU).get(r.loop)]}
    for row in frame[frame["gain"].notna() & (frame["variant"] == "")].itertuples():
        expected = seconds[row.below, row.device] / seconds[row.loop, row.device]
        assert row.gain.median == pytest.approx(expected, rel=0.02)
        assert row.gain.low <= row.gain.median <= row.gain.high
        assert row.gain.half_width < 0.03  # of pairs: what a round's turns have in common falls out
    assert len(frame) == len([r for r in records if not r.loop.startswith("floor")])


def test_a_rung_whose_lower_one_was_not_measured_says_so():
    frame = OverheadLadder().frame([record("keras-fit", 0.8)])

    assert frame.iloc[0]["removes"].endswith("; not compared, since keras-fit-validated was not measured")
    assert OverheadLadder().frame(CPU_HOST).iloc[1]["removes"] == "the validation pass and the metric"


def test_a_rung_that_does_not_help_is_shown_as_such():
    chapter = OverheadLadder()

    assert "numpy-preallocated over numpy" in chapter.sentence(CPU_HOST).text
    assert "not shown to help" in chapter.table(CPU_HOST).text
    assert "jax-epoch over" not in chapter.sentence(CPU_HOST).text.partition("Rungs that are not shown to help")[2]


def test_a_slower_rung_is_named_slower_and_never_paid_back():
    worse = [record("numpy", 0.2), record("numpy-preallocated", 0.3)]
    row = OverheadLadder().frame(worse).set_index("loop").loc["numpy-preallocated"]

    assert row["verdict"] == "slower"
    assert row["gain"].high < 1
    assert payback(*worse) is None


def test_the_first_of_a_family_is_compared_with_nothing():
    frame = OverheadLadder().frame(CPU_HOST).set_index("loop")

    for loop in ("keras-fit-validated", "jax-op-by-op", "numpy-per-image"):
        assert frame.loc[loop, "below"] is None
        assert frame.loc[loop, "gain"] is None
    assert OverheadLadder().table(CPU_HOST).text.count("not shown to help") == 1


def test_what_compiling_costs_is_paid_back_after_as_many_epochs():
    below, dearer = record("jax-op-by-op", 2.0), record("jax-step", 0.2)
    dearer = dearer.model_copy(update={"timing": dearer.timing.model_copy(update={"first_s": 13.0})})

    assert payback(below, dearer) == pytest.approx((13.0 - 4.0) / 1.8, rel=0.05)
    assert payback(record("numpy", 0.4), record("numpy-preallocated", 0.2)) == 0  # its first epoch is shorter too


@given(st.floats(1e-4, 1e3), st.floats(1e-4, 1e3))
def test_paying_back_takes_no_negative_time(below_s, seconds):
    found = payback(record("numpy", below_s), record("numpy-preallocated", seconds))

    assert found is None or found >= 0


@pytest.mark.parametrize("records", [CPU_HOST, GPU_HOST, CPU_HOST[:1]], ids=["cpu host", "gpu host", "one rung"])
def test_every_part_of_the_page_can_be_shown(records):
    chapter = OverheadLadder()
    shown = [chapter.table(records).text, chapter.census_table(records).text, chapter.sentence(records).text]

    assert all("nan" not in text.lower() and "None" not in text for text in shown)
    for r in records:
        if r.loop in LOOPS:
            assert r.loop in shown[0]
            assert r.loop in chapter.figure(records).alt
    assert len(chapter.figure(records)._render(True, "png")) > 5_000
    assert "batch size 32" in shown[0]
    assert "threads 2" in shown[0]


def test_the_ported_per_image_loop_has_its_ratio_beside_the_articles():
    text = OverheadLadder().sentence(GPU_HOST).text

    assert "The per-image port to CuPy takes 6.0" in text or "takes 5.9" in text
    assert "reported six times" in text
    assert "per-image port" not in OverheadLadder().sentence(CPU_HOST).text


def test_a_rung_that_could_not_run_says_why_and_takes_nothing_from_the_others():
    records = [record("keras-fit", 0.8, **MISSING) if r.loop == "keras-fit" else r for r in CPU_HOST]
    table, frame = OverheadLadder().table(records).text, OverheadLadder().frame(records).set_index("loop")

    assert "declined: tensorflow &lt;is&gt; not installed" in table
    assert frame.loc["tf-step", "gain"] is None  # nothing to be compared with
    assert frame.loc["tf-epoch", "gain"].median == pytest.approx(2, rel=0.02)


def test_nothing_timed_is_said_in_words():
    assert "nothing to compare" in OverheadLadder().sentence([record("numpy", 0.2, **MISSING)]).text


def test_rungs_of_a_cpu_host_leave_cupy_out_and_have_the_floor(monkeypatch):
    monkeypatch.setattr(host, "gpus", list)
    found = OverheadLadder().contestants()

    assert not [c for c in found if c.loop.startswith("cupy")]
    assert {c.device for c in found} == {"cpu"}
    assert [c for c in found if c.is_floor]


def test_rungs_of_a_gpu_host_hold_the_cpus_too(monkeypatch):
    monkeypatch.setattr(host, "gpus", lambda: [{"name": "made up"}])
    found = OverheadLadder().contestants()

    assert {c.loop for c in found if c.device == "gpu"} >= {"cupy-graph", "keras-fit", "jax-epoch"}
    assert {c.loop for c in found if c.device == "gpu"} >= {"keras-jax-fit", "cupy-graph-epoch", "cupy-persistent"}
    flags = [dict(c.env).get("XLA_FLAGS", "") for c in found if c.loop == "jax-epoch"]
    assert [f for f in flags if f.endswith("--xla_gpu_enable_command_buffer=+WHILE")]
    assert Contestant("keras-fit", "cpu") in found  # Keras on the CPU of a GPU host, in a process of its own


@pytest.mark.parametrize("value", [0, 48_001, 32.0, True, "32"])
def test_a_batch_size_that_is_none_is_refused(value):
    with pytest.raises(ParameterError, match=r"batch_size must .* got"):
        OverheadLadder.checked(batch_size=value)


class Answers:
    """A worker whose census fails or does not."""

    def __init__(self, failure: WorkerFailed | None) -> None:
        self.failure, self.asked = failure, 0

    def ask(self, verb: str) -> dict[str, float]:
        assert verb == "census"
        self.asked += 1
        if self.failure:
            raise self.failure
        return {"python_calls": 3.0}


def test_a_census_is_taken_once_of_a_loop_and_never_of_the_floor():
    worker, case, floor = (
        Answers(None),
        Case(Contestant("numpy"), Workload()),
        Case(Contestant("floor-numpy"), Workload()),
    )
    for _ in range(2):
        keep_census(worker, case)  # type: ignore[arg-type]
        keep_census(worker, floor)  # type: ignore[arg-type]

    assert worker.asked == 1
    kept = case.record({"host": "made-up", "notebook": "06-overhead-ladder"})
    assert kept.census == {"python_calls": 3.0}


def test_a_loop_that_cannot_be_counted_keeps_its_times_and_says_why():
    case = Case(Contestant("numpy"), Workload())
    keep_census(Answers(WorkerFailed("failed", "no counters here")), case)  # type: ignore[arg-type]
    counted = record("numpy", 0.2, census=case.facts["census"])

    assert case.status == "ok"
    assert "no counters here" in OverheadLadder().census_table([counted]).text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0"), (8.0, "8"), (2016.4, "2,016"), (0.03125, "0.0312"), (1234567, "1,234,567")],
)
def test_counts_are_whole_where_they_are_whole(value, text):
    assert count_text(value) == text


def test_gains_and_verdicts_agree():
    for row in OverheadLadder().frame(GPU_HOST).itertuples():
        if row.gain is not None:
            inverse = stats.Interval(1 / row.gain.median, 1 / row.gain.high, 1 / row.gain.low, row.gain.n)
            near = max(row.gain.median, 1 / row.gain.median) <= headline.REPEATS
            assert row.verdict == (stats.NO_DIFFERENCE if near else stats.verdict(inverse))
