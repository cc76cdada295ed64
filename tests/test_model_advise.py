"""Advice: what it says follows from the predictions, the crossover knows its four answers, bad input is one line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import model_constants
from overhead.cli import cli
from overhead.model import advise, atlas, check, constants
from overhead.model.gpus import preset
from overhead.problem.workload import Workload

CONSTANTS = model_constants.constants("here")
GPU = preset("Quadro RTX 5000")
TERMS = {"dispatch_s", "arithmetic_s", "memory_s", "copy_s", "wait_s"}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    constants.write(constants.path_of(tmp_path, "here"), CONSTANTS)
    return tmp_path


def called(results: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["advise", "--results", str(results), "--host", "here", *arguments])


def refused(results: Path, *arguments: str) -> str:
    """What is said of wrong use: one line, without a traceback."""
    found = called(results, *arguments)
    assert found.exit_code in (1, 2)
    said = found.output.strip().splitlines()[-1]
    assert "Traceback" not in found.output
    return said


def test_json_has_the_keys_that_were_promised(results: Path) -> None:
    found = json.loads(called(results, "--gpu", "T4", "--json").stdout)

    assert found["layers"] == [784, 128, 10]
    assert found["batch_size"] == 32
    assert {"loop", "device", "modelled", "epoch_s", "terms"} <= set(found["rows"][0])
    for row in found["rows"]:
        assert row["epoch_s"]["low"] <= row["epoch_s"]["median"] <= row["epoch_s"]["high"]
        assert set(row["terms"]) == TERMS
        assert sum(row["terms"].values()) == pytest.approx(row["epoch_s"]["median"])
        assert row["modelled"] == (row["device"] == "gpu")
    assert set(found["crossover"]) == {"batch_size", "low", "high", "verdict"}
    assert set(found["crossover_width"]) == {"width", "low", "high", "verdict"}
    assert {"change", "gain", "low", "high", "updates_per_epoch", "why"} <= set(found["advice"][0])
    assert found["answer"].startswith("keras-fit takes about")


def test_advice_comes_in_under_two_seconds_of_work() -> None:
    start = time.process_time()

    advise.advise(Workload(), CONSTANTS, gpu=GPU)

    assert time.process_time() - start < 2


@given(
    st.lists(st.integers(1, 1024), min_size=2, max_size=5).map(tuple), st.integers(1, 4096),
    st.sampled_from(["numpy", "keras-fit", "jax-epoch"]),
)  # fmt: skip
def test_gains_are_ranked_and_only_sure_ones_stand_before_leaving_it(
    layers: tuple[int, ...], batch_size: int, loop: str
) -> None:
    found = advise.advise(Workload(layers=layers, batch_size=batch_size), CONSTANTS, loop)["advice"]
    leave = [a["change"] for a in found].index("leave it as it is")

    assert [a["gain"] for a in found[:leave]] == sorted((a["gain"] for a in found[:leave]), reverse=True)
    assert all(a["low"] >= advise.NO_GAIN for a in found[:leave])
    assert all(a["low"] < advise.NO_GAIN for a in found[leave + 1 :])
    assert all(a["low"] <= a["gain"] <= a["high"] for a in found)


def test_a_larger_batch_says_what_it_costs_in_learning() -> None:
    found = advise.advise(Workload(), CONSTANTS)["advice"]

    larger = next(a for a in found if a["change"] == "batch size 128")
    assert larger["updates_per_epoch"] == 375
    assert "375 updates an epoch in the place of 1500" in larger["why"]


@pytest.mark.parametrize(
    ("wins", "share", "verdict", "batch_size", "low", "high"),
    [
        ((0, 0, 1, 1), (0.0, 0.3, 0.7, 1.0), "from 4 on", 4, 2, 8),
        ((0, 0, 0, 0), (0.0, 0.0, 0.0, 0.0), "never up to 8", None, None, None),
        ((1, 1, 1, 1), (1.0, 1.0, 1.0, 1.0), "always", 1, 1, 1),
        ((0, 1, 1, 1), (0.0, 0.6, 0.7, 0.8), "cannot tell", 2, 2, None),
        ((1, 0, 0, 1), (1.0, 0.2, 0.2, 1.0), "from 8 on", 8, 1, 8),  # here and for all larger
    ],
)
def test_a_crossover_is_where_the_gpu_wins_for_good(
    wins: tuple[int, ...], share: tuple[float, ...], verdict: str, batch_size: Any, low: Any, high: Any
) -> None:
    found = advise.crossing([1, 2, 4, 8], [bool(w) for w in wins], share)

    assert found == advise.Crossover(batch_size, low, high, verdict)


@pytest.mark.parametrize("by", ["batch_size", "width", "depth"])
def test_a_crossover_goes_along_one_thing_and_leaves_the_others(by: str) -> None:
    values, workloads = advise.along(Workload(), by)

    assert len(values) == len(workloads) == len(set(workloads))
    assert values == sorted(values)
    for value, workload in zip(values, workloads, strict=True):
        assert (workload.batch_size == value) if by == "batch_size" else workload.batch_size == 32
        assert workload.layers[0] == 784
        assert workload.layers[-1] == 10
        if by == "width":
            assert workload.layers == (784, value, 10)
        if by == "depth":
            assert len(workload.layers) == value + 1


def test_bad_input_is_one_line_that_names_thing_limit_and_value(results: Path) -> None:
    assert "must be whole numbers with commas between" in refused(results, "--layers", "784,conv,10")
    assert "convolutions, attention and recurrence" in refused(results, "--layers", "784,conv,10")
    assert "batch_size must be between 1 and 48000" in refused(results, "--batch-size", "0")
    assert "layers" in refused(results, "--layers", "784,0,10")
    assert "one of Quadro RTX 5000, T4" in refused(results, "--gpu", "RTX 9999")
    assert "constant must be one of flops_per_s" in refused(results, "--gpu-constant", "speed=3")
    assert "launch_s must be a number above 0, got 'fast'" in refused(results, "--gpu-constant", "launch_s=fast")
    assert "needs bytes_per_s where no --gpu is named" in refused(results, "--gpu-constant", "flops_per_s=1e13")
    assert "--loop must be one of numpy" in refused(results, "--loop", "torch")
    assert "'numpy-chunked' (no census of it)" in refused(results, "--loop", "numpy-chunked")
    assert "another program from batch size 512" in refused(results, "--loop", "keras-fit-tuned", "--batch-size", "512")


def test_constants_that_are_missing_damaged_or_of_another_machine_are_refused(results: Path) -> None:
    assert "must be measured first: overhead calibrate --host nobody" in refused(results, "--host", "nobody")

    other = {**CONSTANTS.host, "cpu_model": "another"}
    constants.write(constants.path_of(results, "there"), CONSTANTS.model_copy(update={"host": other}))
    assert "is of another machine: cpu_model was 'another'" in refused(results, "--host", "there")

    path = constants.path_of(results, "here")
    path.write_text(path.read_text().replace('"call_s": 1e-05', '"call_s": -1', 1))
    assert "here/constants.json: frames.numpy.call_s" in refused(results)


def test_a_constants_file_is_read_as_it_was_written(results: Path) -> None:
    path = constants.path_of(results, "here")
    before = path.read_text()

    constants.write(path, constants.read(results, "here"))

    assert path.read_text() == before


def test_the_atlas_is_printed_as_one_document(results: Path) -> None:
    found = json.loads(called(results, "--atlas", "--json").stdout)

    assert {"rented_factor", "entries", "within", "within_rented", "predicted", "directions", "ratios"} == set(found)
    assert "published 6.26 to 6.5 s" in called(results, "--atlas").stdout


def test_the_check_reports_errors_coverage_and_regret() -> None:
    cases = [
        check.Checked((784, 10), 32, "numpy", 1.0, 0.8, 1.2, 1.1),
        check.Checked((784, 10), 32, "jax-step", 0.9, 0.8, 1.0, 1.21),
    ]

    found = check.report(cases)

    assert found["coverage"] == 0.5
    assert found["regret"]["median"] == pytest.approx(1.21 / 1.1)
    assert found["median_error"] == pytest.approx((0.0953 + 0.2960) / 2, rel=0.01)
    assert set(found["cases"][0]) >= {"layers", "batch_size", "loop", "predicted_s", "low_s", "high_s", "measured_s"}


def test_a_check_of_a_disturbed_host_says_so() -> None:
    case = check.Checked((784, 10), 32, "numpy", 1.0, 0.8, 1.2, 9.0, ("other processes used the cores",))

    said = check.as_text(check.report([case]))

    assert "not to be believed, the host was disturbed: other processes used the cores" in said


def test_a_check_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Workload] = []

    def measured(workload: Workload, *_: Any) -> list[check.Checked]:
        asked.append(workload)
        return [check.Checked(workload.layers, workload.batch_size, "numpy", 1.0, 0.9, 1.1, 1.0)]

    monkeypatch.setattr(check, "_workers", lambda *_: {})
    monkeypatch.setattr(check, "_case", measured)
    kept = tmp_path / "check.json"

    for _ in range(3):
        check.check(CONSTANTS, kept, seconds=1e-9, force=True)
        check.check(CONSTANTS, kept, seconds=60, force=True)

    assert asked == check.workloads()
    assert check.report(check.check(CONSTANTS, kept, force=True))["left"] == 0


def test_the_atlas_names_its_sources_and_predicts_only_what_it_may() -> None:
    assert len(atlas.ENTRIES) >= 15
    assert all(entry.source for entry in atlas.ENTRIES)

    found = atlas.report(CONSTANTS)

    for row in found["entries"]:
        assert (row["predicted_s"] is None) == (row["why"] is not None)
    assert found["predicted"] == sum(r["use"] == "predict" and r["off"] is not None for r in found["entries"])
    assert {d["of"] for d in found["directions"]} == {"article, 4096", "NumPy and CuPy"}


def test_a_rented_host_is_judged_by_the_entries_for_calibration_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = atlas.rented_factor(CONSTANTS)
    monkeypatch.setattr(atlas, "ENTRIES", tuple(e for e in atlas.ENTRIES if e.use == "calibrate"))

    assert atlas.rented_factor(CONSTANTS) == before


def test_an_atlas_entry_whose_range_is_upside_down_is_refused() -> None:
    with pytest.raises(ValueError, match="low_s must be at most high_s"):
        atlas.Entry.model_validate({**atlas.ENTRIES[0].model_dump(), "low_s": 9.0})


@pytest.mark.parametrize(
    ("cases", "measured_s", "disturbed", "trusted", "says"),
    [
        (0, 1.0, (), False, "Not checked on this host: a guess"),
        (39, 1.0, (), False, "Not checked on this host: a guess"),
        (40, 1.05, (), True, "Checked on this host: median error 5%"),
        (40, 1.3, (), False, "found wanting: median error 26%"),
        (40, 1.0, ("a load",), False, "found wanting"),
    ],
)
def test_advice_says_first_whether_its_predictions_were_checked_here(
    results: Path, cases: int, measured_s: float, disturbed: tuple[str, ...], trusted: bool, says: str
) -> None:
    one = check.Checked((784, 10), 32, "numpy", 1.0, 0.9, 1.1, measured_s, disturbed)
    check._write(results / "here" / "advise-check.json", CONSTANTS, [one] * cases)

    found = json.loads(called(results, "--json").stdout)
    assert (found["checked"], says in found["trust"]) == (trusted, True)
    assert found["trust"] == called(results).stdout.splitlines()[1]


def test_a_gpu_can_be_given_by_its_constants(results: Path) -> None:
    def fastest_s(*given: str) -> float:
        found = json.loads(called(results, "--batch-size", "512", "--json", *given).stdout)
        return min(row["epoch_s"]["median"] for row in found["rows"] if row["modelled"])

    slow = fastest_s("--gpu", "T4", "--gpu-constant", "kernel_s=1e-3")
    own = fastest_s("--gpu-constant", "flops_per_s=1e13", "--gpu-constant", "bytes_per_s=5e11")

    assert slow > 2 * fastest_s("--gpu", "T4")
    assert own < 2 * fastest_s("--gpu", "T4")
