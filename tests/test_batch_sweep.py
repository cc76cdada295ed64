"""Chapter 5 on made-up records whose answers are known: gains, plateaus, protocols, causes; and one real small run."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import papermill
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.chapters.base import ParameterError
from overhead.chapters.batch_sweep import anomalies, article, batches, bench, quality
from overhead.chapters.batch_sweep.axes import AXES
from overhead.chapters.batch_sweep.chapter import BatchSweep
from overhead.chapters.provenance import checkout
from overhead.loops import LOOPS
from overhead.machine import host
from overhead.measure.case import Case
from overhead.measure.contestant import Contestant
from overhead.measure.process import Process, WorkerFailed
from overhead.measure.session import PRESETS, Preset, Session
from overhead.problem import mlp
from overhead.problem.stored import save_split
from overhead.problem.workload import TRAINING_IMAGES, Workload
from overhead.records.record import Record, Samples, Timing

ROUNDS = 9
SIZES = (32, 512, 4096)


def record(
    loop: str, seconds: float, size: int = 32, remainder: str = "drop", device: str = "cpu", **more: Any
) -> Record:
    """A case around `seconds` an epoch; all cases of a round share that round's noise."""
    workload = Workload(batch_size=size, remainder=remainder)  # type: ignore[arg-type]
    values = (seconds * np.random.default_rng(0).uniform(0.8, 1.2, ROUNDS)).tolist()
    wall = Samples(clock="wall", steps=workload.steps, process=0, round=list(range(ROUNDS)), seconds=values)
    fields: dict[str, Any] = {
        "host": "made-up", "notebook": "05-batch-sweep", "status": "ok", "loop": loop, "device": device, "threads": 2,
        "workload": workload,
        "timing": Timing(first_s=2 * seconds, stopped="target", samples=[wall]), "val_accuracy": [0.93],
        "versions": {"numpy": "2"}, "settings": {"jit_compile": "off"} if loop.startswith("keras") else {},
    }  # fmt: skip
    return Record(**{**fields, **more})


def line(loop: str, step_s: float, image_s: float, **more: Any) -> list[Record]:
    """A loop whose epoch is so much a step and so much an image."""
    found = []
    for size in SIZES:
        w = Workload(batch_size=size)
        found.append(record(loop, w.steps * step_s + w.images_seen * image_s, size, **more))
    return found


# Keras: 800 us a step; validated: a half more. NumPy slower at 4096, by page faults that a kept heap takes away.
KERAS, NUMPY, JAX = line("keras-fit", 800e-6, 2e-6), line("numpy", 60e-6, 1.5e-6), line("jax-step", 20e-6, 1.2e-6)
NUMPY[-1] = record("numpy", 0.12, 4096, page_faults=[2016.0, 0.0])
ARMS = [
    record("numpy", 0.08, 4096, op="anomaly", env=dict(anomalies.KEEP_MEMORY), page_faults=[0.0, 0.0]),
    record("numpy-preallocated", 0.07, 4096, op="anomaly", page_faults=0.0),
    record("numpy-chunked", 0.125, 4096, op="anomaly"),
    record("numpy", 0.1, SIZES[0], op="anomaly", threads=1),
]
CPU_HOST = [
    *KERAS, *NUMPY, *JAX, *ARMS,
    *(record("keras-fit-validated", 1.5 * k.epochs()[0][0], s) for k, s in zip(KERAS, SIZES, strict=True)),
    record("keras-fit-validated", 0.3, 4096, "keep"), record("keras-fit", 0.11, 4096, "keep"),
    record("numpy", 0.13, 4096, "keep"), record("jax-step", 0.06, 4096, "keep"),
    *(record("floor-xla", s, b) for s, b in zip((0.05, 0.04, 0.04), SIZES, strict=True)),
]  # fmt: skip
GPU_HOST = [
    *CPU_HOST, *line("jax-step", 100e-6, 1e-8, device="gpu"), *line("keras-fit", 900e-6, 1e-8, device="gpu"),
    record("keras-fit-validated", 2.0, 32, device="gpu"),
]  # fmt: skip
PARTS = [
    "sentence", "figure", "table", "settings_table", "gains_table", "plateau_table", "remainder_table",
    "protocol_sentence", "gaps_table", "published_table", "anomalies_sentence", "anomalies_table", "updates_table",
    "quality_sentence", "quality_figure", "quality_table", "rates_table", "quality_by_loop", "floors_table",
]  # fmt: skip


def shown(name: str, records: list[Record]) -> str:
    part = getattr(BatchSweep(), name)(records)
    return part.alt if hasattr(part, "alt") else part.text


# Parameters


@pytest.mark.parametrize("preset", ["quick", "workshop", "full"])
def test_a_preset_changes_axis_points(preset):
    chapter = BatchSweep.checked(preset=preset)

    assert chapter.sizes() == sorted(AXES[preset].batch_sizes)
    assert set(chapter.loop_names()) <= set(LOOPS)
    assert {32, 512, 4096} <= set(chapter.sizes())
    if preset == "full":
        assert chapter.sizes() == [2**n for n in range(5, 13)]
        assert {"keras-fit-tuned", "keras-jax-fit", "tf-step", "tf-epoch", "numpy-preallocated"} <= set(
            chapter.loop_names()
        )


def test_points_that_are_asked_for_are_measured_under_every_preset():
    for preset in AXES:
        chapter = BatchSweep.checked(preset=preset, batch_sizes=[512, 32], loops=["numpy"])
        assert chapter.sizes() == [32, 512]
        assert chapter.loop_names() == ["numpy"]
    assert BatchSweep.checked(batch_sizes="auto", loops="numpy") == BatchSweep.checked(loops=["numpy"])


@pytest.mark.parametrize("value", [[], [0], ["auto", 32], [32, "auto"], "big", [1.5], [True], 32, [48_001], None])
def test_batch_sizes_that_are_none_are_refused(value):
    with pytest.raises(ParameterError, match=r"^batch_sizes must .*got "):
        BatchSweep.checked(batch_sizes=value)


@pytest.mark.parametrize("value", [[], ["numpi"], ["auto", "numpy"], None, [1]])
def test_loops_that_are_none_are_refused(value):
    with pytest.raises(ParameterError, match=r"^loops must .*got "):
        BatchSweep.checked(loops=value)


def test_papermill_reads_the_parameters_of_the_notebook():
    root = checkout()
    assert root is not None
    found = papermill.inspect_notebook(root / "notebooks" / "05-batch-sweep.ipynb")

    assert set(found) == set(BatchSweep.model_fields)
    assert found["batch_sizes"]["inferred_type_name"] == "list"
    assert found["batch_sizes"]["default"] == '["auto"]'
    assert all(parameter["help"] for parameter in found.values())


def test_both_policies_are_measured_where_they_differ():
    quick, full = BatchSweep(), BatchSweep.checked(preset="full", remainder="keep")

    kept = [w for w in quick.workloads() if w.remainder == "keep"]
    assert [(w.batch_size, w.steps, w.images_seen) for w in kept] == [(4096, 12, 48_000)]
    assert next((w.steps, w.images_seen) for w in quick.workloads() if w.batch_size == 4096) == (11, 45_056)
    dropped = [w.batch_size for w in full.workloads() if w.remainder == "drop"]
    assert dropped == [size for size in full.sizes() if TRAINING_IMAGES % size]
    assert 32 not in dropped


# What is measured


def measured(monkeypatch: pytest.MonkeyPatch, chapter: BatchSweep) -> tuple[list[Record], list[Case]]:
    """What `take` makes of a runner that measures nothing, and the cases that it asked for."""
    asked: list[Case] = []

    def time_cases(contestants, workloads, bench):
        cases = [Case(c.resolved(), w) for c in contestants for w in workloads if bench.wanted(c.resolved(), w)]
        for case in cases:
            case.fail("declined", "not now")
        asked.extend(cases)
        return cases

    monkeypatch.setattr("overhead.chapters.batch_sweep.chapter.time_cases", time_cases)
    monkeypatch.setattr(quality, "take", lambda *_: [])
    monkeypatch.setattr(host, "gpus", list)
    bench = Session(PRESETS[chapter.preset], {"host": "made-up", "notebook": chapter.name})
    return chapter.take(bench), asked


@pytest.mark.parametrize("preset", ["quick", "workshop", "full"])
def test_each_case_is_measured_once_and_switched_ones_are_no_rows_of_the_sweep(monkeypatch, preset):
    chapter = BatchSweep.checked(preset=preset)
    found, asked = measured(monkeypatch, chapter)

    assert len({(case.contestant, case.workload) for case in asked}) == len(asked) == len(found)
    rows = {(r.loop, r.trained.batch_size) for r in chapter.rows(found)}
    for loop in chapter.loop_names():
        for size in chapter.sizes() if "cpu" in LOOPS[loop].devices else ():
            brief = {"numpy-per-image": (512, 4096), "keras-fit-validated": (512,)} if preset == "quick" else {}
            assert ((loop, size) in rows) == (size not in brief.get(loop, ()))
    for r in anomalies.of(found):
        assert r.loop in anomalies.COUNTED or preset != "quick"
        assert r.trained.batch_size in (chapter.sizes()[0], chapter.sizes()[-1])
    assert not {c.contestant.loop for c in asked if c.workload.remainder == "keep"} & {"floor-numpy", "numpy-per-image"}


def test_nothing_is_switched_of_loops_that_are_not_measured(monkeypatch):
    found, _ = measured(monkeypatch, BatchSweep.checked(loops=["jax-epoch"], batch_sizes=[64]))

    assert anomalies.of(found) == []
    assert {r.loop for r in found} == {"jax-epoch", "floor-numpy", "floor-xla"}


# What is shown


@pytest.mark.parametrize("records", [CPU_HOST, GPU_HOST, NUMPY[:1], []], ids=["cpu", "gpu", "one record", "nothing"])
@pytest.mark.parametrize("name", PARTS)
def test_every_part_of_the_page_can_be_shown(name, records):
    text = shown(name, records)

    assert text
    assert not re.search(r"\bnan\b|\bNone\b(?! of )|\binf\b", text)


def test_other_policies_and_switched_loops_stay_out_of_the_sweeps_table():
    table = shown("table", CPU_HOST)

    assert table.count("<td>numpy</td>") == len(SIZES)
    assert "numpy-chunked" not in table
    assert "numpy-chunked" not in shown("figure", CPU_HOST)


def test_a_loop_that_pays_per_step_gains_and_one_that_pays_per_image_stops():
    steep, flat = line("keras-fit", 1e-3, 1e-9), line("jax-epoch", 1e-9, 1e-6)

    assert "no such size in the range tried" in batches.gains_table(steep, "").text
    assert "<td>32</td>" in batches.gains_table(flat, "").text.replace(' class="number"', "")


@given(st.floats(1.01, 3), st.sampled_from([2, 4, 16]))
def test_a_gain_is_of_one_doubling_however_far_apart_the_sizes(gain, factor):
    small = record("numpy", 1.0, 32)
    large = record("numpy", 1.0 / gain ** np.log2(factor), 32 * factor)
    ((_, _, found),) = batches.gains([small, large])

    assert found.median == pytest.approx(gain)
    assert found.low <= found.median <= found.high


@given(st.floats(1e-6, 1e-3), st.floats(1e-7, 1e-5))
def test_a_line_through_two_sizes_gives_back_step_and_image(step_s, image_s):
    made = line("numpy", step_s, image_s)
    found = batches.plateau(made[0], made[-1])

    # the rounds' noise is 20 %, and the same at both sizes
    assert all(found.values())
    assert found["per_step_s"].low / 1.21 <= step_s <= found["per_step_s"].high / 0.79
    assert found["per_image_s"].low / 1.21 <= image_s <= found["per_image_s"].high / 0.79
    w = Workload(batch_size=4096)
    stays = w.images_seen * image_s / (w.steps * step_s + w.images_seen * image_s)
    assert found["stays"].median == pytest.approx(stays)


def test_no_line_is_drawn_where_the_larger_batch_is_slower():
    table = batches.plateau_table([record("numpy", 0.1), record("numpy", 0.3, 4096)], "").text

    assert "no line" in table
    assert table.count("–") == 3


def test_both_policies_stand_with_their_steps_and_images():
    table = shown("remainder_table", CPU_HOST).replace(' class="number"', "")

    assert "<td>drop</td><td>11</td><td>45,056</td>" in table
    assert "<td>keep</td><td>12</td><td>48,000</td>" in table
    assert "divides the images" in shown("remainder_table", [r for r in CPU_HOST if "4096" not in str(r.workload)])


def test_the_floor_of_a_gpu_is_called_launch_bound():
    on_gpu = record("floor-xla", 0.01, 32, device="gpu")
    assert "launch-bound floor" in batches.floors_table([*GPU_HOST, on_gpu]).text
    assert "launch-bound" not in batches.floors_table(CPU_HOST).text


def test_settings_that_were_resolved_stand_once_a_device():
    table = shown("settings_table", GPU_HOST)

    assert table.count("jit_compile off") == 1  # in every row, and so in the caption
    assert "32, 512, 4,096" in table


# The article


def test_protocol_times_controlled_is_the_whole_gap():
    for gap in article.GAPS:
        theirs, ours, protocol = article.gap_intervals(GPU_HOST, gap, "drop")
        if theirs and ours and protocol:
            assert theirs.median == pytest.approx(ours.median * protocol.median, rel=1e-6)


def test_the_protocol_alone_is_the_validated_fit_over_the_plain_one():
    gap = article.GAPS[0]
    _, _, protocol = article.gap_intervals(CPU_HOST, gap, "drop")
    by = {(r.loop, r.trained.batch_size): r for r in BatchSweep().rows(CPU_HOST)}
    expected = by["keras-fit-validated", 32].epochs()[0][3] / by["keras-fit", 32].epochs()[0][3]

    assert protocol is not None
    assert protocol.median == pytest.approx(expected)
    assert f"**{expected:.2f} [" in shown("protocol_sentence", CPU_HOST)


def test_the_articles_protocol_keeps_keras_last_batch_and_drops_numpys():
    side = article.Side("keras-fit-validated", "cpu", 4096)
    keras, plain = article.as_timed(CPU_HOST, side), article.as_timed(CPU_HOST, side._replace(loop="numpy"))

    assert keras is not None
    assert plain is not None
    assert keras.trained.steps == 12
    assert plain.trained.steps == 11
    # where no batch is partial, either policy is both
    assert article.as_timed(CPU_HOST, side._replace(batch_size=32)) is not None


def test_a_gap_of_two_loops_that_only_train_has_no_protocol_in_it():
    records = [record("numpy-per-image", 3.0), record("cupy-per-image", 18.0, device="gpu")]
    theirs, ours, protocol = article.gap_intervals(records, article.GAPS[-1], "drop")

    assert theirs is not None
    assert theirs.median == pytest.approx(6)
    assert theirs == ours
    assert protocol is None
    assert "the protocol makes nothing" in article.gaps_table(records, "drop", "").text


def test_published_figures_are_those_of_the_article():
    assert {f.epoch_s for f in article.PUBLISHED} == {6.5, 4.4, 6.26, 2.3, 11.31, 1.39, 0.84, 1.03, 0.14, 14.8, 88.6}
    assert "44.7" in shown("gaps_table", CPU_HOST)  # 6.26 / 0.14, which is no speed-up
    assert "no speed-up" in shown("gaps_table", CPU_HOST)


# Causes


def test_numpy_is_slower_at_the_largest_batch_and_a_kept_heap_mends_it():
    text = shown("anomalies_sentence", CPU_HOST)

    assert "which is not the article's comparison of 4,096 with 2,048" in text
    assert "so the article's anomaly is there" in shown("anomalies_sentence", [*CPU_HOST, record("numpy", 0.03, 2048)])
    assert "malloc keeps large blocks" in text.partition("What shortens")[2].partition("What is not shown to")[0]
    assert "numpy-chunked" in text.partition("What is not shown to")[2]
    assert "2,016" in shown("anomalies_table", CPU_HOST)
    assert re.search(rf"At {SIZES[0]} an epoch with one thread takes [\d.]+ \[.*\] times as long as with 2 \(", text)


def test_a_host_without_the_anomaly_says_so():
    fine = [r for r in CPU_HOST if r.op or (r.loop, r.trained.batch_size) != ("numpy", 4096)]

    text = shown("anomalies_sentence", [*fine, record("numpy", 0.06, 4096), record("numpy", 0.065, 2048)])

    assert "anomaly is not there" in text
    assert "None of the switches is shown to shorten the epoch there: malloc" in text


def test_an_arm_that_failed_says_why():
    broken = record("numpy-chunked", 1, 4096, op="anomaly", status="failed", reason="no <memory>", timing=None)
    table = shown("anomalies_table", [r for r in CPU_HOST if r.loop != "numpy-chunked"] + [broken])

    assert "failed: no &lt;memory&gt;" in table


def test_an_arm_is_known_by_what_it_switches():
    for arm in anomalies.ARMS:
        c = arm.contestant
        own = record(c.loop, 1.0, env=dict(c.env), threads=c.threads or 2, op="anomaly")
        assert {other.contestant for other in anomalies.ARMS if anomalies.switched(own, other)} == {c}
    assert not any(anomalies.switched(r, arm) for r in (*KERAS, *NUMPY, *JAX) for arm in anomalies.ARMS)


# For real


@pytest.mark.slow
@pytest.mark.parametrize(("name", "resolved"), [("KerasFitXlaLoop", "on"), ("KerasFitWithoutXlaLoop", "off")])
def test_keras_has_xla_on_and_off_as_asked(name, resolved, tiny_workload, tiny_data):
    worker = Process(Contestant(f"{anomalies.XLA}:{name}", "cpu", 1, anomalies.ON_TENSORFLOW))
    with tempfile.TemporaryDirectory() as folder:
        save_split(Path(folder), tiny_data)
        np.savez(Path(folder) / "params.npz", *mlp.flat(mlp.init(tiny_workload)))
        try:
            worker.ask("hello", 180)
        except WorkerFailed as failure:
            pytest.skip(failure.reason)
        placed = worker.ask(
            "place", data=folder, params=f"{folder}/params.npz", workload=tiny_workload.model_dump(mode="json")
        )  # fmt: skip
        worker.ask("run", steps=tiny_workload.steps)
        worker.close()

    assert placed["settings"]["jit_compile"] == resolved


@pytest.mark.slow
def test_a_small_sweep_measures_switches_and_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a measurement on this machine does not refuse this one
    monkeypatch.setattr(quality, "take", lambda *_: [])
    monkeypatch.setattr(Contestant, "resolved", lambda self: self._replace(threads=self.threads or 1))
    monkeypatch.setattr(
        BatchSweep, "workload",
        lambda self, size, remainder=None: Workload(
            batch_size=size, images=6000, remainder=remainder or self.remainder
        ),
    )  # fmt: skip
    tiny = Preset("quick", 0.5, 5.0, 1, (2, 2))
    chapter = BatchSweep.checked(loops=["numpy"], batch_sizes=[512, 2048], devices=["cpu"])

    found = chapter.take(Session(tiny, {"host": "here", "notebook": chapter.name}))

    assert all(r.status == "ok" for r in found), [r.reason for r in found]
    assert {r.loop for r in anomalies.of(found)} == {"numpy", "numpy-preallocated"}
    kept = next(r for r in anomalies.of(found) if r.loop == "numpy")
    assert dict(anomalies.KEEP_MEMORY).items() <= kept.env.items()
    accuracies = {r.val_accuracy[-1] for r in found if r.val_accuracy and r.trained.steps == 2}
    assert max(accuracies) - min(accuracies) < 0.003
    if anomalies.page_faults(1) is not None:  # Linux
        faults = {r.loop: r.page_faults for r in anomalies.of(found)}
        assert faults["numpy-preallocated"] == [0]
    assert "2,048" in chapter.anomalies_table(found).text


# Loops that leave out zeros


def test_bench_never_takes_a_loop_that_leaves_out_zeros_for_a_dense_one() -> None:
    found = bench.report([record("sparse", 0.02, placed_s=0.3), record("jax-epoch", 0.06), record("floor-xla", 0.05)])

    sparse, dense = found["rows"]
    assert (sparse["does_less_arithmetic"], dense["does_less_arithmetic"]) == (True, False)
    assert sparse["times_floor"]["median"] == pytest.approx(0.4)
    assert sparse["nonzero_step"]["flops"] < 0.22 * sparse["nonzero_step"]["dense_flops"]
    assert dense["nonzero_step"] is None
    first, second = (line for line in bench.as_text(found).splitlines() if not line.startswith("floor"))
    assert "does less arithmetic (21 % of the FLOPs that the floor does)" in first
    assert "placed in 0.300 s" in first
    assert "less arithmetic" not in second


def test_the_chapter_of_dense_loops_refuses_the_others() -> None:
    with pytest.raises(ParameterError, match="must be loops that multiply by every pixel, got 'sparse'"):
        BatchSweep.from_notebook({"loops": ["numpy", "sparse"]})
