"""The replay: its terms add up, it grows with the work, its interval holds the median, and two clocks play a queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import model_constants
from overhead.loops import LOOPS
from overhead.model.census import CENSUS, CPU_LOOPS, GPU_LOOPS, products
from overhead.model.gpus import GPUS, preset
from overhead.model.replay import CannotModel, Prediction, on_cpu, on_gpu
from overhead.problem import bounds
from overhead.problem.workload import Workload

CONSTANTS = model_constants.constants()
LAYERS = st.lists(st.integers(1, 1024), min_size=2, max_size=5).map(tuple)


def every(workload: Workload) -> list[Prediction]:
    loops = [loop for loop in CPU_LOOPS if workload.is_mnist or not CENSUS[loop].validated_images]
    here = [on_cpu(loop, workload, CONSTANTS) for loop in loops]
    return here + [on_gpu(loop, workload, CONSTANTS, gpu) for loop in GPU_LOOPS for gpu in GPUS[::4]]


@given(LAYERS, st.integers(1, 511))
def test_the_interval_holds_the_median_and_no_term_is_below_0(layers: tuple[int, ...], batch_size: int) -> None:
    for p in every(Workload(layers=layers, batch_size=batch_size)):
        assert p.low_s <= p.epoch_s <= p.high_s
        assert p.epoch_s == pytest.approx(sum(p.terms))
        assert min(p.terms) >= 0


@pytest.mark.parametrize("loop", CPU_LOOPS)
def test_a_step_takes_longer_with_more_images(loop: str) -> None:
    def step_s(size: int) -> float:
        workload = Workload(batch_size=size, images=48_000)
        return on_cpu(loop, workload, CONSTANTS).epoch_s / workload.steps

    sizes = [1, 7, 32, 100, 300, 500]
    assert [step_s(size) for size in sizes] == sorted(step_s(size) for size in sizes)


@pytest.mark.parametrize("loop", GPU_LOOPS)
def test_a_gpu_takes_no_longer_for_an_epoch_of_fewer_steps(loop: str) -> None:
    epochs = [on_gpu(loop, Workload(batch_size=1 << i), CONSTANTS, GPUS[0]).epoch_s for i in range(4, 12)]

    assert epochs == sorted(epochs, reverse=True)


def test_what_is_modelled_is_said_to_be() -> None:
    assert {(p.device, p.modelled) for p in every(Workload())} == {("cpu", False), ("gpu", True)}


def test_the_census_multiplies_what_the_bounds_multiply() -> None:
    workload = Workload(layers=(784, 300, 100, 10), batch_size=64)

    flops = sum(2 * p.m * p.n * p.k for p in products(workload))

    assert flops == bounds.step_flops(workload)


def test_every_loop_with_a_census_is_a_loop() -> None:
    assert set(CENSUS) <= set(LOOPS)
    assert all("gpu" in LOOPS[loop].devices for loop in GPU_LOOPS)
    assert all("cpu" in LOOPS[loop].devices for loop in CPU_LOOPS)


def simulate(host_s: float, device_s: float, steps: int, queue: int) -> float:
    """Seconds until the device has done `steps` pieces, of which the host may have `queue` outstanding."""
    host = device = 0.0
    done: list[float] = []
    for step in range(steps):
        if step >= queue:
            host = max(host, done[step - queue])
        host += host_s
        device = max(device, host) + device_s
        done.append(device)
    return device


@given(st.floats(1e-6, 1e-3), st.floats(1e-6, 1e-3), st.integers(1, 300), st.integers(2, 50))
def test_the_longer_clock_decides_an_epoch(host_s: float, device_s: float, steps: int, queue: int) -> None:
    played = simulate(host_s, device_s, steps, queue)

    assert played == pytest.approx(steps * max(host_s, device_s) + min(host_s, device_s), rel=1e-9)


def test_one_outstanding_piece_makes_the_clocks_take_turns() -> None:
    assert simulate(2.0, 3.0, steps=4, queue=1) == pytest.approx(4 * (2.0 + 3.0))


def test_what_has_no_census_or_no_constants_is_refused() -> None:
    with pytest.raises(CannotModel, match="loop must be one of numpy"):
        on_cpu("tf-eager", Workload(), CONSTANTS)
    with pytest.raises(CannotModel, match="another program from batch size 512 on, got 512"):
        on_cpu("keras-fit-tuned", Workload(batch_size=512), CONSTANTS)
    with pytest.raises(CannotModel, match="jax-step was not calibrated"):
        on_cpu("jax-step", Workload(), model_constants.constants(frames={"numpy": model_constants.frame()}))
    with pytest.raises(CannotModel, match="with 3 threads"):
        on_cpu("numpy", Workload(), CONSTANTS, threads=3)


def test_every_constant_of_a_gpu_has_a_source_and_a_date() -> None:
    for gpu in GPUS:
        assert all(g.source and g.date and g.value == getattr(gpu, name) for name, g in gpu.given.items())
    assert {"Quadro RTX 5000", "T4", "P100", "RTX 3060", "A100", "H100", "H200"} <= {gpu.name for gpu in GPUS}


def test_an_unknown_gpu_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"one of Quadro RTX 5000, T4, .* got 'RTX 306O'; did you mean RTX 3060\?"):
        preset("RTX 306O")


def test_validation_costs_calls_and_forward_products_and_a_second_start_of_an_epoch() -> None:
    workload = Workload(batch_size=100, images=12_000)

    plain, checked = (on_cpu(loop, workload, CONSTANTS) for loop in ("keras-fit", "keras-fit-validated"))

    assert 1.5 < checked.terms.dispatch_s / plain.terms.dispatch_s < 2.2
    assert 0 < checked.terms.arithmetic_s - plain.terms.arithmetic_s < plain.terms.arithmetic_s / 2
    with pytest.raises(CannotModel, match="needs images that validate"):
        on_cpu("keras-fit-validated", Workload(layers=(20, 10)), CONSTANTS)


def test_a_loss_that_is_read_after_each_step_makes_the_clocks_take_turns() -> None:
    gpu, workload = GPUS[0], Workload(layers=(784, 2048, 2048, 10), batch_size=512)

    waits = on_gpu("keras-fit", workload, CONSTANTS, gpu)
    overlaps = on_gpu("tf-step", workload, CONSTANTS, gpu)

    assert waits.terms.wait_s >= workload.steps * gpu.synchronise_s
    assert overlaps.terms.arithmetic_s < waits.terms.arithmetic_s


def test_what_is_left_over_at_a_step_that_was_timed_moves_predictions_near_it() -> None:
    from overhead.model.replay import place_of

    near, far = Workload(batch_size=32), Workload(layers=(784, 1024, 1024, 10), batch_size=4096)
    frame = model_constants.frame().model_copy(update={"at": [place_of(near)], "weights": [0.5]})
    moved = model_constants.constants(frames={"numpy": frame})

    assert on_cpu("numpy", near, moved).epoch_s > 1.5 * on_cpu("numpy", near, CONSTANTS).epoch_s
    assert on_cpu("numpy", far, moved).epoch_s == pytest.approx(on_cpu("numpy", far, CONSTANTS).epoch_s, rel=0.01)
