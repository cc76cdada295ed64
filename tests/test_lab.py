"""The simulated device, in time that a test sets; and the harness on it, in real time."""

from __future__ import annotations

import json
from itertools import islice

import pytest
from click.testing import CliRunner

from overhead.cli import cli
from overhead.lab import exercises, loops
from overhead.lab.device import Clock, Device, Simulated, kernels_s, preset
from overhead.model import gpus
from overhead.model.replay import launched
from overhead.problem import mlp
from overhead.problem.workload import Workload

KINDS = [loops.OpByOp, loops.Fused, loops.Graph, loops.FusedGraph]
DEVICES = [preset(gpu.name) for gpu in gpus.GPUS]
RTX_3060 = preset("RTX 3060")


class SetTime(Clock):
    """Time that passes only where somebody waits for it."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def until(self, moment: float) -> None:
        self.at = max(self.at, moment)


def made_up(**changes: float) -> Device:
    return RTX_3060._replace(**changes)


def test_a_call_returns_after_a_launch_and_a_wait_lasts_until_the_end():
    clock = SetTime()
    device = Simulated(made_up(launch_s=1, synchronise_s=0.5), clock)
    device.launch(10.0)
    device.launch(10.0)
    assert clock.now() == 2
    device.synchronise()
    assert clock.now() == 1 + 10 + 10
    device.synchronise()
    assert clock.now() == 21.5  # nothing to wait for


def test_a_full_queue_holds_the_next_launch_until_one_has_ended():
    clock = SetTime()
    device = Simulated(made_up(launch_s=1, queue=2), clock)
    device.launch(10.0)  # ends at 11
    device.launch(10.0)
    device.launch(10.0)
    assert clock.now() == 12


def test_a_copy_comes_after_what_is_queued_and_takes_its_bytes():
    clock = SetTime()
    device = Simulated(made_up(launch_s=1, copy_s=2, copy_bytes_per_s=10), clock)
    device.launch(10.0)
    device.copy(30)
    assert clock.now() == 11 + 2 + 3


@pytest.mark.parametrize("size", [32, 4096])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_the_simulated_epoch_is_the_one_that_chapter_8_predicts(device, kind, size):
    workload = Workload(batch_size=size)
    predicted = launched(kind.census, workload, gpus.preset(device.name)).total_s
    assert exercises.epoch_s(kind, device, workload, SetTime()) == pytest.approx(predicted, rel=0.05)


@pytest.mark.long  # in real time, of which a busy host takes some: the best of three
def test_the_epoch_in_real_time_is_within_a_twentieth_of_the_prediction():
    tries = [exercises.predicted(RTX_3060, Clock())["rows"] for _ in range(3)]
    for name in tries[0]:
        assert min(abs(rows[name]["ratio"] - 1) for rows in tries) < 0.05, name


@pytest.mark.parametrize("kind", [*KINDS, loops.ForgetsToWait])
def test_each_loop_learns_what_the_reference_learns(kind, tiny_workload, tiny_data):
    loop = kind("cpu")
    loop.clock = SetTime()
    state = loop.run(loop.run(loop.place(mlp.init(tiny_workload), tiny_data, tiny_workload), 3), 6)
    every = mlp.reference_steps(mlp.init(tiny_workload), tiny_data.x, tiny_data.y, tiny_workload)
    *_, (_, expected) = islice(every, 9)
    assert mlp.relative_error(loop.fetch(state), expected) < 1e-5
    assert mlp.relative_error(loop.fetch(state), expected) < 1e-5  # once fetched, no step is owed
    assert loop.placed_on(state) == ("cpu", "simulated RTX 3060")
    assert loop.settings(state) == {"simulated": "true"}


def test_who_forgets_to_wait_takes_the_wrong_one_for_the_winner():
    found = exercises.forget(RTX_3060, SetTime())
    assert (found["winner"], found["winner_without_wait"]) == ("fused, kernel by kernel", "graph of the unfused step")


def test_an_epoch_that_is_not_waited_for_is_wrong_by_what_the_queue_holds():
    device, workload = RTX_3060, Workload()
    waited, returned = (exercises.epoch_s(loops.Graph, device, workload, SetTime(), wait=w) for w in (True, False))
    step = sum(kernels_s(device, loops.Graph.census, workload))
    assert waited - returned == pytest.approx(device.queue * step, rel=0.05)


@pytest.mark.parametrize("depth", [4, 100, 1024])
def test_the_depth_of_the_queue_is_found(depth):
    found = exercises.queue(made_up(queue=depth), SetTime())
    assert found["depth"] == pytest.approx(depth, abs=2)
    assert found["launches"] >= depth


def test_larger_batches_fewer_kernels_and_graphs_pay():
    device = RTX_3060
    seconds = exercises.batch(device, SetTime())["seconds"]
    assert seconds[64] == pytest.approx(seconds[32] / 2, rel=0.05)
    for exercise in (exercises.fuse, exercises.graph):
        before, after = exercise(device, SetTime())["seconds"].values()
        assert after <= before


@pytest.mark.long  # its verdict needs a quiet host
def test_the_harness_refuses_who_forgets_to_wait(monkeypatch, tmp_path):
    monkeypatch.setenv("OVERHEAD_LOCK", str(tmp_path / "lock"))  # a measurement that runs here does not matter
    graph, forgot = exercises.caught(RTX_3060)
    assert (graph.status, graph.device_name) == ("ok", "simulated RTX 3060")
    assert (forgot.status, forgot.reason) == ("failed", "returned before the device was done")
    assert not forgot.epochs()


def test_the_command_says_that_it_is_simulated():
    done = CliRunner().invoke(cli, ["lab", "graph", "queue", "--gpu", "h100", "--json"])
    found = json.loads(done.stdout)
    assert (found["device"]["name"], found["device"]["simulated"]) == ("H100", True)
    assert set(found["exercises"]) == {"graph", "queue"}
    assert (
        CliRunner().invoke(cli, ["lab", "graph"]).stdout.startswith("simulated RTX 3060: real time, no such device\n")
    )


def test_an_unknown_gpu_is_refused_with_the_known():
    done = CliRunner().invoke(cli, ["lab", "--gpu", "RTX 3061"])
    assert done.exit_code == 2
    assert "got 'RTX 3061'; did you mean RTX 3060?" in done.stderr
    with pytest.raises(ValueError, match="got 'none'"):
        preset("none")


def test_real_time_passes_and_is_waited_for():
    clock = Clock()
    began = clock.now()
    clock.until(began + 0.01)
    assert clock.now() - began >= 0.01
