"""Chapter 2 on made-up records of a CPU host and of a GPU host."""

from __future__ import annotations

import numpy as np
import pytest

from overhead.chapters import micro
from overhead.chapters.base import ParameterError
from overhead.chapters.flop_bound.chapter import FlopBound
from overhead.records.record import Record, Samples, Timing
from test_calibration import calibrated, probe_record
from test_per_op import backend

FLOPS = 6_422_528


def product(loop: str, device: str, us: float, wait_us: float) -> Record:
    return probe_record(loop, device, "micro", "product", us, wait_us=wait_us, flops=FLOPS, bytes_=518_144)


def kernel(name: str, us: float) -> Record:
    env = {"OPENBLAS_CORETYPE": name}
    return probe_record("numpy", "cpu", "micro", "product", us, threads=1, flops=FLOPS, bytes_=518_144, env=env)


FAILED_KERNEL = Record(
    host="made-up", notebook="02-flop-lower-bound", status="failed", reason="the worker was ended by SIGILL",
    loop="numpy", device="cpu", threads=1, env={"OPENBLAS_CORETYPE": "SkylakeX"},
)  # fmt: skip
CPU_HOST = [
    *calibrated(),
    *calibrated(loop="jax"),
    product("numpy", "cpu", 100, 0),
    probe_record("numpy", "cpu", "micro", "product-stored-transposed", 110, flops=FLOPS, bytes_=518_144),
    probe_record("numpy", "cpu", "micro", "product-per-image", 400, flops=FLOPS, bytes_=12_959_744),
    product("jax", "cpu", 120, 20),
    product("tf", "cpu", 130, 30),
    kernel("Prescott", 800),
    kernel("Haswell", 120),
    FAILED_KERNEL,
    *backend("numpy", "cpu", 20_000, 0, 200),
]
GPU_HOST = [
    *CPU_HOST,
    *calibrated("gpu", "jax", speed=50),
    *calibrated("gpu", "cupy", speed=50),
    probe_record("cupy", "gpu", "fixed", "launch", 8, wait_us=12),
    product("tf", "gpu", 20, 150),
    product("jax", "gpu", 15, 60),
    product("cupy", "gpu", 18, 20),
    *backend("cupy", "gpu", 15_000, 30_000, 200),
]
PARTS = ["bound_sentence", "bounds_table", "ceilings_table", "gap_table", "crossed_sentence", "crossed_table",
         "kernels_sentence", "kernels_table", "layouts_sentence", "layouts_table"]  # fmt: skip


@pytest.mark.parametrize("records", [CPU_HOST, GPU_HOST], ids=["cpu host", "gpu host"])
@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_words_or_rows(records, part):
    shown = getattr(FlopBound(), part)(records).text

    assert len(shown) > 80
    assert "nan" not in shown.replace("finance", "").lower().split()
    if part.endswith("table"):
        assert shown.count("<tr>") > 1
        assert "n samples" in shown or "measured" in shown


@pytest.mark.parametrize("records", [CPU_HOST, GPU_HOST], ids=["cpu host", "gpu host"])
def test_figures_show_every_backend(records):
    chapter = FlopBound()

    roof, crossed = chapter.roofline(records), chapter.crossed_figure(records)
    assert "numpy (cpu) z1" in roof.alt  # type: ignore[union-attr]
    assert ("cupy (gpu) z1" in roof.alt) == (records is GPU_HOST)  # type: ignore[union-attr]
    for figure in (roof, crossed):
        assert len(figure._render(True, "png")) > 8_000  # type: ignore[union-attr]
    assert all(name in crossed.alt for name in micro.crossed(records))


def test_the_bound_is_the_articles_and_the_whole_steps():
    text = FlopBound().bound_sentence(CPU_HOST).text

    assert "6,422,528 FLOP" in text
    assert "at least 0.58 us" in text
    assert "13,090,816 FLOP (6,504,448 forward)" in text
    assert "19.64 GFLOP" in text


def test_a_gpu_that_was_calibrated_has_a_bound_of_its_own():
    assert "on this host's GPU by what it was seen to reach" in FlopBound().bound_sentence(GPU_HOST).text
    assert "this GPU, us" in FlopBound().bounds_table(GPU_HOST).text
    assert "GPU" not in FlopBound().bounds_table(CPU_HOST).text.partition("<tbody>")[0].partition("Source")[0]


def test_every_published_device_has_a_bound():
    assert FlopBound().peaks_table().text.count("<tr>") > 12


def test_a_time_below_its_bound_says_so():
    fast = [r for r in CPU_HOST if r.op != "w1"] + [
        Record(host="made-up", notebook="02", status="ok", loop="numpy", device="cpu", op="w1", threads=2,
               timing=Timing(samples=[Samples(clock="op", steps=1, process=0, round=[0, 0], ns=[900, 900])])),
    ]  # fmt: skip
    shown = FlopBound().gap_table(fast).text

    assert "peak figure too low" in shown
    assert not any(f"{p}%" in shown for p in ("101.0", "110.0", "200.0"))


def test_the_launch_is_a_third_limit():
    frame = FlopBound().roofline_frame(GPU_HOST).set_index(["backend", "op"])

    assert frame.loc[("numpy (cpu)", "z1"), "launch_floor_s"] == pytest.approx(3e-6, rel=0.02)
    assert frame.loc[("cupy (gpu)", "z1"), "launch_floor_s"] == pytest.approx(20e-6, rel=0.02)
    row = frame.loc[("cupy (gpu)", "a1")]
    assert row["launch_flops_per_s"] == pytest.approx(row["flops"] / row["launch_floor_s"])
    assert row["launch_flops_per_s"] < row["roof_flops_per_s"]


ARMS, OTHER = ("NumPy", "TensorFlow on the CPU"), {"faster": "slower", "slower": "faster"}


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (("slower", "slower", "slower", "slower"), "nothing turned the sign"),
        (("slower", "faster", "slower", "faster"), "The waiting turns the answer"),
        (("slower", "slower", "faster", "faster"), "The library on the CPU turns the answer"),
        (("slower", "faster", "faster", "faster"), "Either change alone"),
        (("slower", "slower", "slower", "faster"), "the two together do"),
    ],
)
def test_what_turned_the_sign_is_read_off_the_four_cells(cells, said):
    keys = [(arm, clock) for arm in ARMS for clock in ("each", "end")]

    assert said in micro.turned(dict(zip(keys, cells, strict=True)))
    mirrored = [OTHER[cell] for cell in cells]  # what turns a sign turns it the other way too
    assert said in micro.turned(dict(zip(keys, mirrored, strict=True)))


def test_a_gpu_host_is_told_what_turned_the_sign():
    assert "The waiting turns the answer" in FlopBound().crossed_sentence(GPU_HOST).text
    assert "only the CPU's half" in FlopBound().crossed_sentence(CPU_HOST).text


def test_kernels_are_compared_and_a_crash_is_shown():
    table = FlopBound().kernels_table(CPU_HOST).text

    assert "failed: the worker was ended by SIGILL" in table
    assert "6.67 [" in FlopBound().kernels_sentence(CPU_HOST).text.replace("6.66", "6.67")


def test_the_batch_reads_the_weights_once():
    text = FlopBound().layouts_sentence(CPU_HOST).text

    assert "25.0 times the bytes" in text
    assert "4.00 [" in text


def test_an_unknown_device_is_refused():
    with pytest.raises(ParameterError, match="got 'Quadro RTX 500000'"):
        FlopBound.checked(device_model="Quadro RTX 500000")


def test_flops_are_those_of_xlas_own_count():
    """XLA counts what its compiled step does; the products are all but a few per cent of it.

    It adds the elementwise work: the update alone is two FLOPs a parameter, which is 1.6 % of the step at batch 32.
    """
    jax = pytest.importorskip("jax")
    from overhead.loops.jax_ import step
    from overhead.problem import bounds, mlp
    from overhead.problem.workload import Workload

    workload = Workload()
    params = tuple((w, b) for w, b in mlp.init(workload))
    x, y = np.zeros((32, 784), np.float32), np.zeros(32, np.int32)
    found = jax.jit(step).lower(params, x, y, np.float32(0.1)).compile().cost_analysis()
    counted = (found[0] if isinstance(found, list) else found)["flops"]

    assert bounds.step_flops(workload) < counted < 1.05 * bounds.step_flops(workload)
    assert counted == pytest.approx(sum(work.flops for work in bounds.ops(workload)), rel=0.01)
