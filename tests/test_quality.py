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
from overhead.measure.contestant import Contestant
from overhead.measure.journal import Journal
from overhead.measure.process import WorkerFailed
from overhead.measure.session import PRESETS, Session
from overhead.problem import mlp
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
        "sequential", "gpu", Session(PRESETS["quick"], PROVENANCE), WorkerFailed("failed", "no <gpu>"), TIMED
    )

    for name in ("table", "sentence"):
        shown = getattr(quality_tables, name)([failed]).text
        assert "no &lt;gpu&gt;" in shown or r"no \<gpu\>" in shown


class Mortal:
    """A worker that trains nothing, and dies at a command on one batch size."""

    dies_at, started = ("", 0), 0

    def __init__(self, contestant: Contestant, limit_s: float) -> None:
        Mortal.started += 1
        self.size, self.dead = 0, False

    def ask(self, do: str, *_: Any, **arguments: Any) -> dict[str, Any]:
        assert not self.dead
        self.size = arguments.get("workload", {}).get("batch_size", self.size)
        if (do, self.size) == Mortal.dies_at:
            self.dead = True
            raise WorkerFailed("failed", "the worker was ended by SIGKILL")
        if do == "fetch":
            params = mlp.init(Workload())
            np.savez(arguments["out"], *mlp.flat(params))
        models = len(arguments.get("members", [0]))
        return {
            "versions": {"jax": "1"}, "data": "mnist", "device": "cpu", "device_name": None, "settings": {},
            "diverged": [None] * models, "val_accuracy": [0.98] * models,
            "wall_s": 1.0, "compile_s": 0.1, "judge_s": 0.1,
        }  # fmt: skip

    def kill(self) -> None:
        self.dead = True


@pytest.mark.parametrize(
    ("dies_at", "lost"),
    [
        (("", 0), {}),
        (("hello", 0), {ON_GRID: 2, EPOCHS: 2, UPDATES: 2, TIMED: 4}),
        (("epoch", 512), {ON_GRID: 1, TIMED: 2}),  # without its grid a size has no rate to be timed with
        (("run", 32), {EPOCHS: 1, UPDATES: 1}),
        (("fetch", 512), {EPOCHS: 1, UPDATES: 1}),
    ],
)
def test_a_worker_that_dies_takes_its_own_step_and_no_other(monkeypatch, tmp_path, dies_at, lost):
    monkeypatch.setattr(quality, "Process", Mortal)
    monkeypatch.setattr(Mortal, "dies_at", dies_at)
    whole = {ON_GRID: 2, EPOCHS: 2, UPDATES: 2, TIMED: 4}
    found = quality.take(Plan((32, 512), (0.3,), 2, 4, 1), ["cpu"], 0.1, Session(PRESETS["quick"], PROVENANCE))

    ok = {part: sum(r.status == "ok" for r in quality_tables.parts(found, part)) for part in whole}
    assert ok == {part: number - lost.get(part, 0) for part, number in whole.items()}
    assert any(r.status == "failed" and "SIGKILL" in (r.reason or "") for r in found) == bool(lost)
    for name in TEXTS:
        assert getattr(quality_tables, name)(found).text


def test_steps_that_were_finished_are_not_trained_again(monkeypatch, tmp_path):
    monkeypatch.setattr(quality, "Process", Mortal)
    plan = Plan((32, 512), (0.3,), 2, 4, 1)

    def taken(stop_after: int | None = None) -> list[Record]:
        said: list[str] = []

        class Stopping(Journal):
            def keep(self, step: str, value: Any) -> None:
                super().keep(step, value)
                said.append(step)
                if len(said) == stop_after:
                    raise KeyboardInterrupt

        journal = Stopping(tmp_path / "journal", {"of": "this test"})
        try:
            return quality.take(plan, ["cpu"], 0.1, Session(PRESETS["quick"], PROVENANCE, journal=journal))
        finally:
            journal.close(complete=False)
            kept.append(len(said))

    kept: list[int] = []
    whole = dumps(quality.take(plan, ["cpu"], 0.1, Session(PRESETS["quick"], PROVENANCE)))
    for stop_after in (1, 2, 3, 1):
        with pytest.raises(KeyboardInterrupt):
            taken(stop_after)
    assert dumps(taken()) == whole
    assert sum(kept) == 2 + 2 + 4  # grids, comparisons, seeds: each trained once


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
