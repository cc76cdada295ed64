"""The CuPy loops with NumPy in CuPy's place, without a usable CuPy, and on a GPU where there is one."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from cupy_stand_in import (
    Host,
    on_gpu,
    on_host,
    reference,
)
from overhead.loops import Declined, make
from overhead.loops.base import STEP_OPS
from overhead.loops.cupy_ import matmul_precision, usable_cupy
from overhead.problem import data, mlp
from overhead.problem.data import Split
from overhead.problem.workload import Workload

BATCHED = ["cupy", "cupy-fused", "cupy-graph", "cupy-graph-epoch"]
WORKLOADS = {
    "book": Workload(images=200, remainder="keep"),
    "last batch dropped": Workload(images=200, batch_size=64),
    "one batch": Workload(images=48, batch_size=48),
    "one image": Workload(images=30, batch_size=1),
    "no hidden layer": Workload(layers=(784, 10), images=200, remainder="keep"),
    "three hidden layers": Workload(layers=(784, 75, 50, 50, 10), images=100, remainder="keep"),
    "two classes": Workload(layers=(7, 32, 32, 2), images=100, batch_size=16, remainder="keep"),
    "400 classes": Workload(layers=(1, 20, 20, 400), images=100, batch_size=33, remainder="keep"),
}


@pytest.mark.parametrize("case", WORKLOADS)
@pytest.mark.parametrize("name", BATCHED)
def test_each_loop_learns_what_the_reference_learns(name: str, case: str) -> None:
    workload = WORKLOADS[case]
    split, params = data.for_workload(workload), mlp.init(workload)
    kept = [tensor.copy() for tensor in mlp.flat(params)]
    loop = on_host(name, Host())

    state = loop.run(loop.run(loop.place(params, split, workload), 7), 13)
    loop.block(state)
    ours = loop.fetch(state)

    assert mlp.relative_error(ours, reference(workload, split, 20)) < 1e-5
    assert all(tensor.dtype == np.float32 for tensor in mlp.flat(ours))
    assert all(np.array_equal(a, b) for a, b in zip(kept, mlp.flat(params), strict=True))
    assert loop.xp.waits > 0


def test_the_port_of_the_layer_objects_learns_what_the_reference_learns(
    tiny_workload: Workload, tiny_data: Split
) -> None:
    loop = on_host("cupy-per-image", Host())

    state = loop.run(loop.place(mlp.init(tiny_workload), tiny_data, tiny_workload), 9)

    assert mlp.relative_error(loop.fetch(state), reference(tiny_workload, tiny_data, 9)) < 1e-5
    assert state.hidden.W.dtype == state.hidden.dW.dtype == state.output.probs.dtype == np.float32


def test_the_port_of_the_layer_objects_declines_other_depths() -> None:
    workload = WORKLOADS["two classes"]
    with pytest.raises(Declined, match="two, got 3 layers"):
        on_host("cupy-per-image", Host()).place(mlp.init(workload), data.synthetic(workload), workload)


def test_the_thirteen_ops_are_one_step(tiny_workload: Workload, tiny_data: Split) -> None:
    host = Host()
    loop = on_host("cupy", host)
    params = mlp.init(tiny_workload)
    state = loop.place(params, tiny_data, tiny_workload)
    ops = loop.ops(state)

    for op in ops * 8:  # past the short batch and round the epoch
        op.call()
        op.wait()

    assert {op.name: op.group for op in ops} == STEP_OPS
    assert host.waits == 8 * 13
    assert mlp.relative_error(loop.fetch(state), params) == 0
    s = inspect.getclosurevars(ops[-4].call).nonlocals["s"]
    trained = mlp.unflat([s.w1, s.b1, s.w2, s.b2])
    assert mlp.relative_error(trained, reference(tiny_workload, tiny_data, 8)) < 1e-5
    assert all(getattr(s, name).dtype == np.float32 for name in ("z1", "a1", "p", "dz2", "dz1", "dw1", "w1"))


def test_the_ops_decline_other_depths() -> None:
    workload = WORKLOADS["two classes"]
    loop = on_host("cupy", Host())
    with pytest.raises(Declined, match="two layers, got 3"):
        loop.ops(loop.place(mlp.init(workload), data.synthetic(workload), workload))


@pytest.mark.parametrize("name", [*BATCHED, "cupy-per-image"])
def test_at_most_two_copies_of_the_images_are_on_the_device(name: str) -> None:
    workload = Workload(images=2000, batch_size=1999, remainder="keep")  # the graph also holds a batch
    split, loop = data.for_workload(workload), on_host(name, Host())

    loop.place(mlp.init(workload), split, workload)

    assert sum(size for size in loop.xp.allocated if size >= split.x[0].nbytes * 1999) <= 2 * split.x.nbytes


def test_a_stand_in_never_passes_for_a_gpu(tiny_workload: Workload, tiny_data: Split) -> None:
    loop = on_host("cupy", Host())
    state = loop.place(mlp.init(tiny_workload), tiny_data, tiny_workload)
    assert loop.placed_on(state) == ("cpu", "host memory")


def test_the_precision_of_products_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUPY_TF32", raising=False)
    assert matmul_precision() == "float32"
    monkeypatch.setenv("CUPY_TF32", "1")
    assert make("cupy-graph", "gpu").settings(None) == {"matmul_precision": "tf32"}


# Without a usable GPU


def stub(**functions: Callable[..., object]) -> ModuleType:
    module = ModuleType("cupy")
    for name, function in functions.items():
        setattr(module, name, function)
    return module


def no_driver(*_: object, **__: object) -> object:
    raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version\nis insufficient for CUDA runtime version")


@pytest.mark.parametrize("name", [*BATCHED, "cupy-per-image", "cupy-persistent"])
def test_a_cupy_that_fails_on_first_use_is_declined_with_its_reason(
    name: str, tiny_data: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", stub(ones=no_driver))
    workload = Workload(images=192)
    with pytest.raises(Declined) as declined:
        make(name, "gpu").place(mlp.init(workload), tiny_data, workload)
    assert str(declined.value) == (
        "CuPy cannot run a kernel here: RuntimeError: cudaErrorInsufficientDriver: "
        "CUDA driver version is insufficient for CUDA runtime version"
    )


def test_an_absent_cupy_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(Declined, match=r"^CuPy cannot be imported: ModuleNotFoundError: .*cupy"):
        usable_cupy()


def test_a_cupy_that_computes_nonsense_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", stub(ones=np.zeros))
    with pytest.raises(Declined, match="must give 12, got 0"):
        usable_cupy()


def test_the_loops_run_on_a_gpu_only() -> None:
    with pytest.raises(Declined, match="cupy runs on gpu only, got cpu"):
        make("cupy", "cpu")


# With one


@pytest.mark.gpu
@pytest.mark.parametrize("case", WORKLOADS)
@pytest.mark.parametrize("name", BATCHED)
def test_each_loop_learns_what_the_reference_learns_on_a_gpu(name: str, case: str) -> None:
    loop, workload = on_gpu(name), WORKLOADS[case]
    split = data.for_workload(workload)

    state = loop.run(loop.run(loop.place(mlp.init(workload), split, workload), 7), 13)

    assert loop.placed_on(state)[0] == "gpu"
    assert mlp.relative_error(loop.fetch(state), reference(workload, split, 20)) < 1e-5


@pytest.mark.gpu
def test_the_port_of_the_layer_objects_learns_on_a_gpu(tiny_workload: Workload, tiny_data: Split) -> None:
    loop = on_gpu("cupy-per-image")
    state = loop.run(loop.place(mlp.init(tiny_workload), tiny_data, tiny_workload), 9)
    assert mlp.relative_error(loop.fetch(state), reference(tiny_workload, tiny_data, 9)) < 1e-5
