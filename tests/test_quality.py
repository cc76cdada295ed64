"""Time to a quality: on made-up curves whose answers are known, and trained for real on few images."""

from __future__ import annotations

import math
import re
import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.chapters.batch_sweep import quality, quality_tables
from overhead.chapters.batch_sweep.quality import EPOCHS, ON_GRID, TARGET, TIMED, UPDATES, Plan
from overhead.measure.process import WorkerFailed
from overhead.measure.session import PRESETS, Session
from overhead.problem.workload import Workload
from overhead.records.record import Record, dumps

PROVENANCE = {"host": "here", "notebook": "05-batch-sweep"}
TEXTS = ("table", "rates_table", "updates_table", "sentence")


def member(part: str, size: int, curve: list[float], device: str = "cpu", **more: Any) -> Record:
    """A model that was trained for as many epochs as its curve has, each 0.1 s and 0.02 s of evaluation."""
    workload = Workload(batch_size=size, epochs=8)
    reached = next((e for e, share in enumerate(curve, 1) if share >= TARGET), None)
    fields: dict[str, Any] = {"status": more.pop("status", "ok"), "reason": more.pop("reason", None)}
    about = {
        "part": part, "rate": 0.3, "seed": 1, "reached_epoch": reached, "chosen": False,
        "train_s": [0.1] * len(curve), "judge_s": [0.02] * len(curve), **more,
    }  # fmt: skip
    return Record(
        loop="sequential", device=device, threads=2, member=about, val_accuracy=curve, versions={"jax": "1"},
        workload=workload,
        **fields, **PROVENANCE,
    )  # fmt: skip


def timed(size: int, *epochs: int | None, device: str = "cpu") -> list[Record]:
    """A seed for each number of epochs to the target; None never reaches it."""
    return [
        member(TIMED, size, [0.9] * ((needed or 9) - 1) + ([0.971] if needed else []), device, seed=seed)
        for seed, needed in enumerate(epochs, 1)
    ]


RECORDS = [
    *timed(32, 3, 2, 4), *timed(512, 5, None, 6), *timed(2048, None, None, None),
    member(ON_GRID, 32, [0.95, 0.972], rate=0.3, chosen=True), member(ON_GRID, 32, [0.94, 0.96], rate=0.1),
    member(ON_GRID, 32, [], rate=3.0, status="diverged", reason="diverged at step 7 (learning rate 3)"),
    member(EPOCHS, 32, [0.94], updates=1500, epochs=1.0, train_accuracy=0.95),
    member(UPDATES, 512, [0.95], updates=1500, epochs=16.13, train_accuracy=0.96),
]  # fmt: skip


def test_seconds_to_the_target_are_of_training_and_of_evaluation():
    frame = quality_tables.frame(RECORDS).set_index("batch_size")

    assert frame.loc[32, ["p10_s", "median_s", "p90_s"]].tolist() == pytest.approx([0.24, 0.36, 0.48])
    assert frame.loc[32, "epochs"] == 3
    assert frame.loc[512, "reached"] == 2
    assert frame.loc[512, "median_s"] == pytest.approx(0.72)
    assert math.isinf(frame.loc[512, "p90_s"])
    assert math.isinf(frame.loc[2048, "median_s"])


def test_sizes_that_do_not_reach_it_are_shown_as_such():
    table, sentence = quality_tables.table(RECORDS).text, quality_tables.sentence(RECORDS).text

    assert "0 of 3 seeds" in table
    assert "not within 8 epochs" in table
    assert "Least in the median at 97 % validation accuracy: batch size **32**" in sentence  # of three seeds each
    assert "Batch size 2,048 on the CPU: 0 of 3 seeds reach it within 8 epochs." in sentence
    assert "No batch size reached 97 %" in quality_tables.sentence(timed(2048, None)).text


@pytest.mark.parametrize(
    "records", [RECORDS, RECORDS + timed(32, 2, 2, 2, device="gpu"), []], ids=["cpu", "gpu", "nothing"]
)
def test_every_part_can_be_shown(records):
    shown = [getattr(quality_tables, name)(records).text for name in TEXTS]
    figure = quality_tables.figure(records)
    shown += [figure.alt if records else figure.text, quality_tables.by_loop_table(records, []).text]

    for text in shown:
        assert not re.search(r"\b(nan|inf|None)\b", text)
    assert not records or len(figure._render(True, "png")) > 3_000


def test_a_diverged_rate_says_when_and_leaves_the_others_unchanged():
    table = quality_tables.rates_table(RECORDS).text

    assert "diverged at step 7" in table
    assert "97.20 %" in table
    assert table.count("chosen") == 1


def test_a_worker_that_failed_is_named_in_place_of_every_table():
    failed = quality._failed(
        "sequential", "gpu", Session(PRESETS["quick"], PROVENANCE), WorkerFailed("failed", "no <gpu>")
    )

    for name in ("table", "sentence"):
        assert "no <gpu>" in getattr(quality_tables, name)([failed]).text.replace("&lt;", "<").replace("&gt;", ">")


def test_each_loop_needs_the_same_epochs_of_its_own_time():
    from test_batch_sweep import record

    rows = [record("numpy", 0.2), record("jax-step", 0.1), record("jax-step", 0.05, 512)]
    found = quality_tables.by_loop_table(RECORDS, rows).text
    epoch = float(np.median(rows[0].epochs()[0]))

    assert "each needs 3 epochs" in found
    assert f"{3 * (epoch + 0.02):.3f}" in found
    assert found.index("jax-step") < found.index("numpy")


@given(st.lists(st.floats(0, 1), max_size=12), st.lists(st.floats(0, 1), max_size=12))
def test_a_rate_is_chosen_for_fewest_epochs_and_then_for_accuracy(a, b):
    first, second = quality._reached(a), quality._reached(b)
    better = quality._merit(a, 12) > quality._merit(b, 12)

    if first and second and first != second:
        assert better == (first < second)
    elif bool(first) != bool(second):
        assert better == bool(first)
    else:
        assert better == (max(a, default=0) > max(b, default=0))


@given(st.lists(st.one_of(st.none(), st.integers(1, 8)), min_size=1, max_size=10))
def test_order_statistics_are_seconds_of_a_seed_or_infinite(epochs):
    (row,) = quality_tables.frame(timed(64, *epochs)).itertuples()
    times = sorted(0.12 * e if e else math.inf for e in epochs)

    assert row.p10_s <= row.median_s <= row.p90_s
    for value in (row.p10_s, row.median_s, row.p90_s):
        assert any(value == pytest.approx(t) for t in times)
    assert row.reached == sum(e is not None for e in epochs)


@pytest.mark.slow
def test_batch_sizes_are_trained_to_the_target_in_workers(monkeypatch, tmp_path):
    """48,000 images, but a target that the first epochs reach."""
    pytest.importorskip("jax")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a measurement on this machine does not refuse this one
    monkeypatch.setattr(quality, "TARGET", 0.85)
    plan = Plan((512, 4096), (0.1, 300.0), 1, 4, 1)
    found = quality.take(plan, ["cpu"], 0.1, Session(PRESETS["quick"], PROVENANCE))
    by_part = {
        part: [r for r in found if (r.member or {})["part"] == part] for part in (ON_GRID, EPOCHS, UPDATES, TIMED)
    }

    assert dumps(found)
    assert [len(records) for records in by_part.values()] == [4, 2, 2, 2]
    assert {r.status for r in by_part[ON_GRID] if r.member["rate"] == 300} == {"diverged"}
    assert all(r.reason.startswith("diverged at step") for r in by_part[ON_GRID] if r.status == "diverged")
    equal = {r.trained.batch_size: r for r in by_part[UPDATES]}
    assert {r.member["updates"] for r in equal.values()} == {93}
    epochs = {r.trained.batch_size: r for r in by_part[EPOCHS]}
    assert epochs[4096].member["updates"] == 11
    assert equal[4096].val_accuracy[0] > epochs[4096].val_accuracy[0]  # eight times the updates
    assert equal[512].val_accuracy == epochs[512].val_accuracy  # the same training
    small = next(r for r in by_part[TIMED] if r.trained.batch_size == 512)
    assert small.member["reached_epoch"] == len(small.val_accuracy)
    assert small.val_accuracy[-1] >= 0.85
    assert all(s > 0 for s in small.member["train_s"] + small.member["judge_s"])
    assert len(quality_tables.frame(found)) == 2
