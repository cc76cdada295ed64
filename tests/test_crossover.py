"""Chapter 8 from made-up constants and hold-outs: what it says follows from them; what is modelled says so."""

from __future__ import annotations

import pytest

import model_constants
from overhead.chapters.crossover.chapter import Crossover
from overhead.chapters.crossover.claims import CLAIMS
from overhead.chapters.crossover.kept import CONSTANTS, record_of
from overhead.model import check
from overhead.model.replay import on_cpu
from overhead.problem.workload import Workload
from overhead.records.record import Record
from overhead.showing.claims import HOLDS, judged
from overhead.showing.figures import Figure

MADE = model_constants.constants("made-up")
ABOUT = {"host": "made-up", "notebook": Crossover.name, "device": "cpu", "threads": 2}
CHAPTER = Crossover()


def records(off: float) -> list[Record]:
    """Constants, and every hold-out of four loops measured at `off` times what is predicted."""
    held = Record(status="ok", loop="model", op=CONSTANTS, model=MADE.model_dump(mode="json"), **ABOUT)
    found = [held]
    for loop in ("numpy", "numpy-preallocated", "jax-step", "keras-fit"):
        for workload in check.workloads():
            p = on_cpu(loop, workload, MADE, draws=0)
            ns = (round(off * p.epoch_s * 1e9),) * 6
            case = check.Checked(workload.layers, workload.batch_size, loop, p.epoch_s, 0, 0, off * p.epoch_s, ns=ns)
            found.append(record_of(case, ABOUT))
    return found


RIGHT = records(1.02)


def test_hold_outs_are_read_from_records_as_they_were_measured() -> None:
    found = CHAPTER.held_out(RIGHT)

    assert len(found) == 4 * len(check.CASES)
    assert all(c.measured_s / c.predicted_s == pytest.approx(1.02, rel=1e-3) for c in found)
    assert "the median error is **2%**" in CHAPTER.sentence(RIGHT).text


@pytest.mark.parametrize(("off", "holds"), [(1.02, True), (1.4, False)])
def test_a_claim_of_accuracy_holds_or_not_by_the_hold_outs(off: float, holds: bool) -> None:
    claim = next(c for c in CLAIMS if c.name == "hold-outs-predicted")

    assert (judged(claim, records(off)).status == HOLDS) is holds


def test_what_falls_short_is_named() -> None:
    said = CHAPTER.sentence(records(1.4)).text

    assert "Short of what was aimed at: median error 0.34 (at most 0.10)" in said


def test_what_is_modelled_says_so_in_words() -> None:
    drawn = CHAPTER.map_figure(RIGHT)

    assert isinstance(drawn, Figure)
    assert drawn.alt.startswith("Modelled, not measured")
    assert "Modelled, not measured" in CHAPTER.crossover_table(RIGHT).text
    assert "modelled T4" in CHAPTER.calculator_table(RIGHT).text


def test_a_miss_is_shown_as_a_miss() -> None:
    assert "a miss" in CHAPTER.atlas_table(RIGHT).text
    drawn = CHAPTER.atlas_figure(RIGHT)
    assert isinstance(drawn, Figure)
    assert "misses: " in drawn.alt


def test_a_hold_out_of_an_unseen_loop_has_a_series_of_its_own() -> None:
    drawn = CHAPTER.predicted_figure(RIGHT)

    assert isinstance(drawn, Figure)
    assert f"hold-outs of loops known by their census alone: {len(check.workloads())}" in drawn.alt


def test_networks_that_are_held_out_are_those_of_the_check() -> None:
    assert {(c.layers, c.batch_size) for c in CHAPTER.held_out(RIGHT)} == {
        (w.layers, w.batch_size) for w in [Workload(layers=layers, batch_size=size) for layers, size in check.CASES]
    }
