"""Chapter 3 on made-up records whose parts are known, and the spin on loops of this process."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from overhead import loops
from overhead.chapters.where_time_goes import budget, claims, lanes, pieces, spins
from overhead.chapters.where_time_goes.chapter import WhereTimeGoes
from overhead.loops.base import Loop
from overhead.measure import clock as timing
from overhead.measure import spin
from overhead.measure.spin import Spinner
from overhead.problem import mlp
from overhead.problem.workload import Workload
from overhead.records.record import Record, Samples, Timing
from overhead.records.stats import Interval
from overhead.showing.claims import Finding
from test_calibration import calibrated, probe_record

STUDY = WhereTimeGoes()
ROUNDS, STEPS, FAULTS = 5, 1500, 165
# Microseconds a step (of an epoch for names that say so) on the workload and on its twin.
PIECES = {
    "products-into": (70.0, 5.0), "elementwise-into": (40.0, 10.0), "page-faults": (38.0, 0.0),
    "data": (0.1, 0.1), "products-epoch": (65 * 1500, 100),
    "elementwise-epoch": (30 * 1500, 200), "data-epoch": (20 * 1500, 2000),
}  # fmt: skip


def case(loop: str, device: str, step_us: float, twin: bool, exposed: float | None = None) -> Record:
    """Five rounds, each a little slower than the last; `exposed` dispatches an epoch lengthen the spun epochs."""
    workload = STUDY.twin if twin else STUDY.workload
    drift = 1 + 0.002 * np.arange(ROUNDS)

    def kept(clock: str, steps: int, seconds: np.ndarray) -> Samples:
        return Samples(clock=clock, steps=steps, process=0, round=list(range(ROUNDS)), seconds=seconds.tolist())

    def of_no_unit(what: str, steps: int, **values: Any) -> Samples:
        return Samples(clock=what, steps=steps, process=0, round=list(range(ROUNDS)), **values)

    samples = [kept("wall", STEPS, step_us * STEPS * 1e-6 * drift)]
    if loop in pieces.TERMS:
        for name in pieces.of_loop(loop):
            samples.append(kept(f"piece:{name}", 10, PIECES[name][twin] * 10e-6 * drift))
            if name == "page-faults":
                samples.append(of_no_unit("page-faults", 10, counts=[0 if twin else 10 * FAULTS] * ROUNDS))
    if exposed is not None:
        made = spin.expected(spin.point_of(loop), workload)
        longest = spins.LONGEST_NS * (1e-6 if made == 1 else 1e-9)
        for level in spins.LEVELS:
            samples.append(kept(f"spun:{level:g}", STEPS, np.full(ROUNDS, level * longest * made)))
            samples.append(kept(f"spin:{level:g}", STEPS, step_us * STEPS * 1e-6 * drift + level * longest * exposed))
    if device == "gpu" and not twin:
        samples.append(kept("dispatch", 8, 0.9 * step_us * 8e-6 * drift))  # the calls return before the device is done
        samples.append(of_no_unit("gpu-utilisation", 1, shares=[0.93] * ROUNDS))
    return Record(
        host="made-up", notebook="03-where-time-goes", status="ok", loop=loop, device=device, threads=2,
        timing=Timing(samples=samples), versions={"numpy": "2"},
        workload=workload,
    )  # fmt: skip


def host_of(device: str, slow: float = 1.0) -> list[Record]:
    found = calibrated(device, "jax", speed=1 if device == "cpu" else 50)
    found += [
        probe_record("tf", device, "frame", "keras-train-step", 600),
        probe_record("tf", device, "frame", "function-step", 300),
    ]
    for loop, step, twin, exposed in (
        ("numpy", 30 + 65 + 30 + 20 + 18, 30, 13 * 1500), ("jax-step", 25 + 65 + 30 + 40, 25, 1480),
        ("jax-epoch", 2 + 65 + 30, 2.1, 1.01), ("keras-fit", 700 + 65 + 30 + 19, 700, 900),
    ):  # fmt: skip
        if device == "cpu" or loop != "numpy":
            found += [case(loop, device, step * slow, False, exposed), case(loop, device, twin * slow, True)]
    return [*found, case("tf-eager", device, 1000, False, 13 * 1500)]


CPU_HOST = host_of("cpu")
GPU_HOST = [*CPU_HOST, *host_of("gpu", 1.5), case("cupy", "gpu", 900, False, 13 * 1500)]
PARTS = [
    "floors_table",
    "frame_sentence",
    "budget_sentence",
    "budget_table",
    "spin_sentence",
    "spin_table",
    "utilisation",
]


def found(backend: str) -> budget.Budget:
    return next(b for b in STUDY.budgets(CPU_HOST) if b.backend == backend)


def test_a_budget_adds_up_parts_that_were_measured_apart():
    ours = found("numpy (cpu)")

    parts = {term.name: interval.median for term, interval in ours.terms}
    assert parts["calls"] == pytest.approx(30, rel=0.01)
    assert parts["products"] == pytest.approx(65, rel=0.01)
    assert parts["elementwise"] == pytest.approx(30, rel=0.01)
    assert parts["allocation"] == pytest.approx(38, rel=0.01)
    assert "165 page faults a step" in ours.sentence()
    assert parts["data"] == pytest.approx(0, abs=0.01)
    assert ours.total.median == pytest.approx(sum(parts.values()), rel=1e-3)


def test_a_budget_that_closes_says_so_and_one_that_does_not_says_by_how_much():
    assert "The budget closes" in found("jax-epoch (cpu)").sentence()
    ours = found("jax-step (cpu)")
    assert ours.residual.median == pytest.approx(40, rel=0.02)
    assert "(+25%) is unexplained" in ours.sentence()


def test_what_other_threads_add_is_claimed_only_where_the_intervals_are_apart():
    def left(low: float, high: float, name: str) -> budget.Budget:
        step, residual = Interval(200.0, 190.0, 210.0, 8), Interval((low + high) / 2, low, high, 8)
        return budget.Budget(name, [], step, step, residual)

    ours = left(25, 50, "jax-epoch (cpu)")
    apart = budget.sentences([ours, left(-6, 5, "jax-epoch (cpu), 1 thread")])[0]
    overlapping = budget.sentences([ours, left(20, 40, "jax-epoch (cpu), 1 thread")])[0]

    assert "the rest comes with the other threads" in apart
    assert "the two intervals overlap" in overlapping
    assert "comes with" not in overlapping


def test_an_epochs_piece_is_shared_among_its_steps():
    parts = {term.name: interval.median for term, interval in found("jax-epoch (cpu)").terms}

    assert parts["products"] == pytest.approx(65, rel=0.01)
    assert parts["elementwise"] == pytest.approx(30, rel=0.01)


def test_the_step_is_in_no_term():
    """A slower loop changes its residual and nothing else: no term is what is left over."""
    slower = [
        case(r.loop, r.device, 500, False, 1480) if r.loop == "jax-step" and budget._is_of(r, STUDY.workload) else r
        for r in CPU_HOST
    ]
    before, after = (
        next(b for b in STUDY.budgets(records) if b.backend == "jax-step (cpu)") for records in (CPU_HOST, slower)
    )
    assert [interval for _, interval in before.terms] == [interval for _, interval in after.terms]
    assert after.residual.median > before.residual.median + 300


def test_the_slope_is_the_number_of_exposed_dispatches():
    slopes = STUDY.spin_frame(CPU_HOST).set_index("backend")["slope"]

    assert slopes["jax-step (cpu)"].median == pytest.approx(1480, rel=1e-6)
    assert slopes["jax-epoch (cpu)"].median == pytest.approx(1.01, rel=1e-6)
    assert slopes["tf-eager (cpu)"].median == pytest.approx(13 * 1500, rel=1e-6)
    assert "exposes 900 [900, 900] of them (60%)" in STUDY.spin_sentence(CPU_HOST).text


@pytest.mark.parametrize("records", [CPU_HOST, GPU_HOST], ids=["cpu host", "gpu host"])
def test_every_part_of_the_page_is_there(records):
    for part in PARTS:
        shown = getattr(STUDY, part)(records).text
        assert len(shown) > 80, part
        assert "nan" not in shown.lower().split(), part
        if part.endswith("_table"):
            assert shown.count("<tr>") > 1
            assert re.search(r"batch size (\d+, )*32", shown)
    for figure in (STUDY.budget_figure(records), STUDY.spin_figure(records)):
        assert all(name in figure.alt for name in ("jax-step (cpu)", "jax-epoch (cpu)"))
        assert ("(gpu)" in figure.alt) == (records is GPU_HOST)
        assert len(figure._render(True, "png")) > 8_000


def test_a_wait_that_costs_more_than_it_lasts_is_told_apart_from_what_each_wait_adds():
    """Threads that fall asleep at any wait cost once, however long it is: the slope is that of the waits alone."""
    eager = case("tf-eager", "cpu", 1000, False, 13 * 1500)
    assert eager.timing
    asleep = [
        s.model_copy(update={"seconds": [value + 0.3 for value in s.seconds]})
        if s.clock.startswith("spin:") and s.clock != "spin:0" and s.seconds else s
        for s in eager.timing.samples
    ]  # fmt: skip
    eager = eager.model_copy(update={"timing": eager.timing.model_copy(update={"samples": asleep})})

    frame = STUDY.spin_frame([eager])
    assert frame["slope"][0].median == pytest.approx(13 * 1500, rel=1e-6)
    assert "any wait costs 15.4 [15.4, 15.4] us more than it lasts" in STUDY.spin_sentence([eager]).text
    assert len(STUDY.spin_figure([eager])._render(True, "png")) > 8_000


def test_a_slope_that_the_run_cannot_resolve_is_not_claimed():
    """With the spun epochs scattered by more than the waits add, the page says so and gives no share."""
    rng = np.random.default_rng(0)
    noisy = case("jax-step", "cpu", 160, False, 1480)
    assert noisy.timing
    samples = [
        s.model_copy(update={"seconds": rng.uniform(0.1, 0.9, ROUNDS).tolist()}) if s.clock.startswith("spin:") else s
        for s in noisy.timing.samples
    ]
    noisy = noisy.model_copy(update={"timing": noisy.timing.model_copy(update={"samples": samples})})

    said = STUDY.spin_sentence([noisy]).text
    assert "varied too much to tell" in said
    assert "%" not in said


def test_utilisation_stands_beside_the_share_of_peak():
    shown = STUDY.utilisation(GPU_HOST).text

    assert "93%" in shown
    assert "No GPU was watched" in STUDY.utilisation(CPU_HOST).text
    assert claims.busy(GPU_HOST) == Finding("holds", "93.0 % in the median, 93 to 93 %")
    assert claims.busy(CPU_HOST).status == "not measured here"


def test_on_a_gpu_the_host_and_the_device_run_side_by_side_and_are_never_added():
    assert not [b for b in STUDY.budgets(GPU_HOST) if "(gpu)" in b.backend]

    step, host = 160 * 1.5, 0.9 * 160 * 1.5  # of jax-step
    (lane,) = [lane for lane in lanes.found(GPU_HOST, STUDY.workload) if lane.loop == "jax-step"]
    assert lane.host.median == pytest.approx(host, rel=0.01)
    assert lane.device.median == pytest.approx(70 + 40, rel=0.01)  # products and the rest, with what a call costs
    assert lane.path.median == pytest.approx(max(host, 70 + 40), rel=0.01)
    assert lane.residual.median == pytest.approx(step - host, rel=0.02)
    assert lane.longer == "host"
    assert lanes.found(CPU_HOST, STUDY.workload) == []

    said = STUDY.budget_sentence(GPU_HOST).text
    assert re.search(r"\*\*jax-step \(gpu\)\*\*: 24\d us a step. Side by side the host takes", said)
    assert "the critical path is the host's" in said
    assert "Side by side" not in STUDY.budget_sentence(CPU_HOST).text
    assert "critical path, us" in STUDY.budget_table(GPU_HOST).text
    assert "beside device" in STUDY.budget_figure(GPU_HOST).alt


def test_a_gpu_on_which_every_library_declined_to_be_calibrated_keeps_its_page():
    declined = [
        Record(host="made-up", notebook="03", status="declined", reason="not installed", loop=loop, device="gpu")
        for loop in ("jax", "tf", "cupy")
    ]
    records = [*(r for r in GPU_HOST if r.device == "cpu" or r.probe is None), *declined]
    for part in PARTS:
        assert getattr(STUDY, part)(records).text
    assert "93%" in STUDY.utilisation(records).text


def test_a_loop_that_failed_is_shown():
    lost = Record(host="x", notebook="03", status="failed", reason="it died", loop="keras-fit", device="cpu")

    assert "**keras-fit (cpu)** is missing: it died." in STUDY.budget_sentence([*CPU_HOST, lost]).text


def test_the_twin_has_the_same_steps():
    for batch_size in (32, 512, 4096):
        chapter = WhereTimeGoes(batch_size=batch_size)
        assert chapter.twin.steps == chapter.workload.steps


class Ticking:
    """A clock that moves 1 us at each reading."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        self.ns += 1000
        return self.ns


def test_a_spinner_waits_as_long_as_it_says_and_passes_everything_on():
    spinner = Spinner(50_000, Ticking())
    call = spinner.around(lambda a, *, b: (a, b))

    assert call(1, b=2) == (1, 2)
    call(1, b=2)
    assert spinner.dispatches == 2
    assert spinner.spun_ns == 2 * 50_000
    assert Spinner(0, Ticking()).around(lambda: 3)() == 3


def test_every_loop_that_is_spun_says_where_it_dispatches():
    def expected(loop):
        return spin.expected(spin.point_of(loop), Workload())

    assert (expected("jax-step"), expected("jax-epoch"), expected("numpy")) == (1500, 1, 13 * 1500)
    for name in [*pieces.TERMS, *spins.OP_BY_OP]:
        assert spin.point_of(name) is not None, name


def test_a_loop_without_a_point_or_without_a_row_is_a_reason_and_no_fault():
    assert spin.point_of("numpy-preallocated") is None
    assert spin.point_of("of-last-year") is None
    with pytest.raises(loops.Declined, match="NumpyPreallocatedLoop does not say where it dispatches"):
        spin.sample(loops.make("numpy-preallocated"), None, 1, 0)


@pytest.mark.parametrize("name", ["numpy", "jax-step", "jax-epoch", "jax-op-by-op"])
def test_a_spun_loop_makes_the_dispatches_it_declares_and_learns_the_same(name, tiny_data):
    """The exhibits are untouched: what is wrapped is put back, and the parameters are those of a run without a wait."""
    if name != "numpy":
        pytest.importorskip("jax")
    workload = Workload(images=192)
    data = tiny_data._replace(x=tiny_data.x[:192], y=tiny_data.y[:192])
    loop: Loop = loops.make(name)
    state = loop.place(mlp.init(workload), data, workload)
    state, found = spin.sample(loop, state, workload.steps, 10_000)

    assert found["dispatches"] == spin.expected(loop.dispatches_at, workload)
    assert found["spun_ns"] >= 10_000 * found["dispatches"]
    assert found["wall_ns"] >= found["spun_ns"]
    if loop.dispatches_at.where != "ops":
        plain = loop.run(loop.place(mlp.init(workload), data, workload), workload.steps)
        assert mlp.relative_error(loop.fetch(state), loop.fetch(plain)) < 1e-6
        _, again = timing.measure(loop, plain, workload.steps)
        assert again.wall_ns > 0


def test_the_wait_shows_in_the_time():
    """Thirteen waits a step are inside the time that was taken; no absolute time is judged."""
    workload = Workload(images=64, batch_size=32)
    x = np.random.default_rng(0).random((64, 784), np.float32)
    from overhead.problem.data import Split

    loop = loops.make("numpy")
    state = loop.place(
        mlp.init(workload), Split(x, np.zeros(64, np.int32), x, np.zeros(64, np.int32), "made-up"), workload
    )
    for spin_ns in (0, 200_000):
        state, found = spin.sample(loop, state, 4, spin_ns)
        assert found["dispatches"] == 52
        assert found["spun_ns"] >= 52 * spin_ns
        assert found["wall_ns"] > found["spun_ns"]
