"""Chapter 9: what each rung must do, which rungs it marks, and what its tables say of records made here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from overhead.chapters.under_the_floor import claims, race, rungs, wording
from overhead.chapters.under_the_floor.chapter import RUNGS, UnderTheFloor
from overhead.loops import LOOPS
from overhead.problem import bounds, data, nonzeros
from overhead.problem.workload import Workload
from overhead.records.record import Record, Samples, Timing
from overhead.showing.claims import judged

ABOUT: dict[str, Any] = {"host": "made", "notebook": "09-under-the-floor", "device": "cpu", "status": "ok"}
DIGITS = {"by_pixel": [0, 10, 80, 100], "images": 100, "used": 3, "rows": {"10": 2.5}}


def digits(**cost: Any) -> Record:
    return Record(**ABOUT, loop="digits", part="digits", cost={**DIGITS, **cost})


def timed(loop: str, seconds: float, processes: int = 2, **fields: Any) -> Record:
    """A loop whose epochs all take `seconds`."""
    samples = [
        Samples(clock="wall", steps=10, process=p, round=list(range(5)), seconds=[seconds] * 5)
        for p in range(processes)
    ]
    workload = fields.pop("workload", Workload(layers=(4, 16, 3), batch_size=10, images=100))
    about = {**ABOUT, "loop": loop, "workload": workload, "threads": 2, "timing": Timing(samples=samples)}
    return Record(**{**about, **fields})


def grouped(name: str, us: float, device: str = "cpu") -> Record:
    rounds = list(range(4))
    samples = [Samples(clock="end", steps=1, process=0, round=rounds, seconds=[us * 1e-6] * 4)]
    probe = {"kind": "rows", "does": "made here", "flops": 0, "bytes": 1000}
    return Record(**{**ABOUT, "device": device, "loop": "made"}, op=name, probe=probe, timing=Timing(samples=samples))


def finding(name: str, records: list[Record]) -> str:
    (claim,) = [claim for claim in claims.CLAIMS if claim.name == name]
    return judged(claim, records).status


@pytest.mark.parametrize(
    ("loop", "multiplied"),
    [("blas-epoch", 4), ("keras-fit", 4), ("dropped", 3), ("gathered", 2.5), ("sorted", 2.1), ("sparse", 1.9)],
)
def test_pixels_that_a_rung_multiplies(loop: str, multiplied: float) -> None:
    assert rungs.pixels(loop, DIGITS, 10) == pytest.approx(multiplied)


def test_a_rung_s_own_work_is_that_of_the_problem_s_counts() -> None:
    workload = Workload(layers=(4, 16, 3), batch_size=10, images=100)
    counts = nonzeros.NonZeros(np.array(DIGITS["by_pixel"]), 100, 2.5)
    sparse, dense = (rungs.work(loop, DIGITS, workload) for loop in ("sparse", "blas-epoch"))

    assert sparse.flops == pytest.approx(nonzeros.step_flops(workload, counts))
    assert sparse.bytes == pytest.approx(nonzeros.step_bytes(workload, counts))
    assert sparse.near_bytes == pytest.approx(4 * 16 * (19 + 2 * 2.5))
    assert dense.flops == bounds.step_flops(workload)
    assert dense.bytes == bounds.step_bytes(workload)


def test_the_sorted_rung_is_counted_by_the_share_that_it_uses() -> None:
    from overhead.loops import products

    assert rungs.OFTEN == products.OFTEN


def test_rungs_below_the_dense_floor_are_marked_and_the_floor_is_that_of_dense_loops() -> None:
    records = [digits(), timed("floor-numpy", 0.1), timed("blas-epoch", 0.11), timed("sparse", 0.03)]
    records.append(timed("sparse", 0.2, part="noise"))  # other images: no row of the rungs
    frame = rungs.table(records)

    assert frame["rung"].tolist() == ["blas-epoch", "sparse"]
    assert frame["arithmetic"].tolist() == ["dense", "does less arithmetic"]
    assert [float(text.split()[0]) for text in frame["times the dense floor"]] == pytest.approx([1.1, 0.3])
    assert {loop for loop in RUNGS if rungs.kind(loop) == "dense"} == {"blas-epoch"}
    assert {loop for loop, info in LOOPS.items() if info.less_arithmetic} <= set(RUNGS)
    text = UnderTheFloor(batch_sizes=[10]).rungs_sentence([*records, timed("keras-fit", 1.2)]).text
    assert "`sparse` is lowest" in text
    assert "40.0 [40.0, 40.0] of its epochs" in text


def test_claims_hold_and_fail_with_the_records() -> None:
    floor = timed("floor-numpy", 0.1)
    low, high = timed("sparse", 0.03), timed("sparse", 0.3)
    assert finding("sparse-under-the-floor", [floor, low]) == "holds"
    assert finding("sparse-under-the-floor", [floor, high]) == "does not hold here"
    assert finding("sparse-under-the-floor", [timed("floor-numpy", 0.1, 1), timed("sparse", 0.03, 1)]).startswith("not")
    assert finding("twenty-sparse-epochs", [low, timed("keras-fit", 1.0)]) == "holds"
    assert (
        finding("noise-costs-sparse", [timed("floor-numpy", 0.1, part="noise"), timed("sparse", 0.2, part="noise")])
        == "holds"
    )
    many = [
        timed("floor-numpy", 0.1, models=1, part="models", beside=5),
        timed("sparse-many", 0.2, models=5, part="models", beside=5),
    ]
    assert finding("five-sparse-models", many) == "holds"
    assert finding("most-pixels-are-zero", [digits()]) == "does not hold here"
    assert finding("most-pixels-are-zero", []) == "not measured here"


def test_groupings_are_ranked_by_case_and_a_lead_within_the_intervals_is_none() -> None:
    records = [
        grouped("numpy add.at, 100 words, 32 pairs", 50.0),
        grouped("numpy sorted sums, 100 words, 32 pairs", 20.0),
        grouped("numpy dense softmax, 100 words, 32 pairs", 200.0),
        grouped("jax scatter-add, 100 words, 32 pairs", 20.0),
        grouped("numpy add.at, 100 words, 512 pairs", 100.0),
    ]
    frame = wording.winners(records)

    assert frame["pairs in a batch"].tolist() == ["32", "512"]
    assert "not clear of" in frame["quickest"][0]
    assert frame["quickest in NumPy"][0] == "numpy sorted sums"
    assert frame["dense softmax over the quickest"].tolist() == ["10.00", "–"]
    assert len(wording.table(records)) == 5
    assert finding("sorted-sums-pay", records[:3]) == "holds"
    assert finding("grouping-decides-rows", records) == "not measured here"
    both = [
        grouped(f"jax {name}, 100 words, 32 pairs", us, device)
        for name, device, us in (("a", "cpu", 1), ("a", "gpu", 2), ("b", "cpu", 2), ("b", "gpu", 1))
    ]
    assert finding("grouping-decides-rows", both) == "holds"
    assert finding("grouping-decides-rows", both[:2]) == "does not hold here"


def test_the_race_ends_at_the_goal() -> None:
    try:
        found = race.run(Workload(images=960), goal=0.5)
    except race.Declined as reason:
        pytest.skip(str(reason))
    accuracies: Any = found["val_accuracy"]
    assert accuracies[-1] >= 0.5
    assert all(accuracy < 0.5 for accuracy in accuracies[:-1])
    assert found["epochs"] == len(accuracies)


def test_the_picture_of_the_digit_plane_says_what_it_shows() -> None:
    uses = np.count_nonzero(data.for_workload(Workload(images=320)).x, axis=0)
    record = digits(by_pixel=uses.tolist(), images=320)
    figure = UnderTheFloor().digits_figure([record])
    assert "A plane of 28 by 28 pixels" in getattr(figure, "alt", "")
    assert f"at {int((uses == 0).sum())} pixels of the rim" in getattr(figure, "alt", "")
