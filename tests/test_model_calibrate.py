"""Constants are found again from steps that they made; a real calibration of one framework works on one thread."""

from __future__ import annotations

from pathlib import Path

import pytest

import model_constants
from overhead.model import calibrate, frames
from overhead.model.census import CENSUS
from overhead.model.replay import constants_of, framed, on_cpu, parts
from overhead.problem.workload import Workload

CONSTANTS = model_constants.constants()


def test_a_frame_is_found_again_from_the_steps_that_it_made() -> None:
    truth = model_constants.frame(epoch_s=1e-4, call_s=20e-6, op_s=2e-6)
    workloads = [Workload(layers=layers, batch_size=b, images=b * steps) for layers, b, steps in calibrate.STEPS]
    rows = [parts(CENSUS["numpy"], w, CONSTANTS, 2) for w in workloads]
    seconds = [framed(row, w.steps, constants_of(truth)).total_s for row, w in zip(rows, workloads, strict=True)]

    found = frames.frame_of(rows, workloads, seconds)

    for row, w, s in zip(rows, workloads, seconds, strict=True):
        assert framed(row, w.steps, constants_of(found)).total_s == pytest.approx(s, rel=0.02)
    assert max(map(abs, found.weights)) < 0.05
    assert len(found.residuals) == len(found.timed) == len(workloads)


def test_a_smallest_array_costs_a_call_and_no_bytes() -> None:
    per_byte = {"into": 1e-10, "new": 2e-10}
    probes = [
        {"name": f"{how} {size}", "bytes": 3 * size, "seconds": 1e-6 + per_byte[how] * size}
        for how in ("into", "new")
        for size in (4096, 16384, 65536)
    ]  # fmt: skip

    there, fresh = calibrate.curves(probes)

    assert [size for size, _ in there] == [16384, 65536]
    assert there[-1][1] == pytest.approx(1e-10 / 3, rel=0.1)
    assert fresh[-1][1] == pytest.approx(1e-10)


def test_networks_that_are_checked_are_not_those_that_were_calibrated() -> None:
    from overhead.model import check

    checked = {(layers, size) for layers, size in check.CASES}
    assert not checked & {(layers, size) for layers, size, _ in calibrate.STEPS}
    assert len(checked) >= 5
    assert check.UNSEEN


def test_a_disturbed_sample_does_not_move_the_undisturbed_time() -> None:
    assert calibrate.undisturbed_s([2_000_000] * 9 + [80_000_000]) == pytest.approx(2e-3)


@pytest.mark.slow
def test_one_thread_is_predicted_from_a_calibration_with_one_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Loose: a shared machine. `overhead advise --check` gives the figures."""
    monkeypatch.setattr(calibrate, "PROBED", {"numpy": calibrate.PROBED["numpy"]})

    made = calibrate.fitted(calibrate.measure(force=True, threads=1), "one-thread")
    workload = Workload(layers=(784, 200, 10), batch_size=100, images=3_000)
    with calibrate.worker("numpy", 1, {}) as asked:
        measured = calibrate.epoch_s(asked, workload, tmp_path)

    assert made.threads == 1
    assert made.frames["numpy"].op_s > 0
    assert 0.4 < measured / on_cpu("numpy", workload, made).epoch_s < 2.5
