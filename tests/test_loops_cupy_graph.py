"""The CUDA graph of the CuPy step, its cuBLAS and its kernels, in host memory."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cupy_stand_in import (
    ALL_KERNELS,
    HOST_CUBLAS,
    Host,
    HostGraph,
    HostProducts,
    HostStream,
    column_major_sgemm,
    compiled,
    on_gpu,
    on_host,
    reference,
    source,
)
from nvrtc import compiled_for_hopper
from overhead.loops import Declined, cupy_graph
from overhead.loops.cupy_fused import KERNELS
from overhead.problem import data, mlp
from overhead.problem.data import Split
from overhead.problem.workload import Workload


def test_a_step_is_one_launch_of_seventeen_kernels(tiny_workload: Workload, tiny_data: Split) -> None:
    state = on_host("cupy-graph", Host()).place(mlp.init(tiny_workload), tiny_data, tiny_workload)

    # 2 take the batch, 7 products, 3 elementwise, 4 updates, 1 moves on.
    assert {len(graph.calls) for graph in state.epoch} == {17}
    assert len(state.epoch) == 7
    assert state.epoch[0] is state.epoch[5] is not state.epoch[6]  # six whole batches and a short one


@pytest.mark.parametrize(("forgotten", "got"), [(-1, r"got 0 and image \d+"), (-3, r"got 0\.\d+ and image \d+")])
@pytest.mark.parametrize("batch", [32, 8])
def test_a_graph_whose_replay_differs_from_the_step_is_declined(
    batch: int, forgotten: int, got: str, tiny_workload: Workload, tiny_data: Split,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    graphs, end_capture = iter([32, 8]), HostStream.end_capture

    def forgetful(self: HostStream) -> HostGraph:
        graph = end_capture(self)
        if next(graphs) == batch:
            del graph.calls[forgotten]  # moving on to the next batch, or the update of w1
        return graph

    monkeypatch.setattr(HostStream, "end_capture", forgetful)
    with pytest.raises(Declined, match=f"3 replays of batch {batch} must be within 1e-06 of .*, {got}"):
        on_host("cupy-graph", Host()).place(mlp.init(tiny_workload), tiny_data, tiny_workload)


def test_an_epoch_is_one_launch_and_steps_beyond_it_are_one_each(
    tiny_workload: Workload, tiny_data: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = on_host("cupy-graph-epoch", Host())
    state = loop.place(mlp.init(tiny_workload), tiny_data, tiny_workload)
    assert len(state.whole.calls) == 17 * 7
    launches: list[int] = []
    launch = HostGraph.launch

    def counting(self: HostGraph, stream: HostStream) -> None:
        launches.append(len(self.calls) // 17)
        launch(self, stream)

    monkeypatch.setattr(HostGraph, "launch", counting)
    state = loop.run(state, 2)
    assert launches == [1, 1]
    loop.run(state, 5 + 14 + 3)  # to the end of this epoch, two whole ones, three steps
    assert launches[2:] == [1] * 5 + [7, 7] + [1] * 3


def test_an_epoch_whose_graph_differs_from_its_steps_is_declined(
    tiny_workload: Workload, tiny_data: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_capture = HostStream.end_capture

    def forgetful(self: HostStream) -> HostGraph:
        graph = end_capture(self)
        if len(graph.calls) > 17:
            del graph.calls[17 + 15]  # in the second step, the update of a weight
        return graph

    monkeypatch.setattr(HostStream, "end_capture", forgetful)
    with pytest.raises(Declined, match="an epoch in one graph must be within 1e-06 of one step by step"):
        on_host("cupy-graph-epoch", Host()).place(mlp.init(tiny_workload), tiny_data, tiny_workload)


def test_an_epoch_of_too_many_steps_is_declined_before_a_gpu_is_asked_for() -> None:
    workload = Workload(batch_size=1)
    with pytest.raises(Declined, match=r"at most 6,000 steps, got 48,000"):
        on_host("cupy-graph-epoch", Host()).place((), data.synthetic(Workload(images=1, batch_size=1)), workload)


def test_a_step_that_allocates_while_it_is_captured_is_declined(tiny_workload: Workload, tiny_data: Split) -> None:
    class Allocating(HostProducts):
        def __init__(self, xp: Host, stream: HostStream) -> None:
            super().__init__(xp, stream)
            self.xp = xp

        def __call__(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
            self.xp.empty(out.shape, np.float32)
            super().__call__(a, b, out)

    loop = on_host("cupy-graph", Host())
    loop.products = Allocating
    with pytest.raises(Declined, match="step of batch 32 must allocate nothing, got 16384 bytes"):
        loop.place(mlp.init(tiny_workload), tiny_data, tiny_workload)


def test_a_rate_at_which_training_diverges_is_no_fault_of_the_graph(tiny_workload: Workload, tiny_data: Split) -> None:
    workload = tiny_workload.model_copy(update={"learning_rate": 1e38})
    loop = on_host("cupy-graph", Host())
    with np.errstate(all="ignore"):
        state = loop.run(loop.place(mlp.init(workload), tiny_data, workload), 5)
    assert not np.isfinite(loop.fetch(state)[0].w).all()


@pytest.mark.parametrize("sizes", [(3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1)])
@pytest.mark.parametrize("transposed", ["neither", "first", "second", "both"])
def test_column_major_products_of_row_major_arrays(sizes: tuple[int, int, int], transposed: str) -> None:
    rng = np.random.default_rng(0)
    m, inner, n = sizes
    a, b = rng.random((m, inner), np.float32), rng.random((inner, n), np.float32)
    if transposed in ("first", "both"):
        a = np.asfortranarray(a)  # as the transposed view of a row-major array is
    if transposed in ("second", "both"):
        b = np.asfortranarray(b)
    out = np.full((m, n), np.nan, np.float32)

    column_major_sgemm(a, b, out)

    np.testing.assert_allclose(out, a @ b, rtol=1e-6)


def on_device(array: np.ndarray) -> Any:
    """An array as CuPy describes it, with a pointer under `data`."""
    pointer = SimpleNamespace(ptr=array.ctypes.data)
    return SimpleNamespace(shape=array.shape, flags=array.flags, data=pointer, kept=array)


@pytest.mark.parametrize(("tf32", "mode"), [("0", 0), ("1", 3)])
def test_cublas_gets_its_stream_its_workspace_and_its_arguments(
    tf32: str, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUPY_TF32", tf32)
    fake = ctypes.CDLL(str(compiled(tmp_path, "host_cublas.so", HOST_CUBLAS)))
    monkeypatch.setattr(cupy_graph, "loaded_cublas", lambda: fake)
    xp = SimpleNamespace(empty=lambda *args: on_device(np.empty(*args)))
    rng = np.random.default_rng(0)
    a, b, out = rng.random((6, 4), np.float32), rng.random((6, 5), np.float32), np.empty((4, 5), np.float32)

    products = cupy_graph.Cublas(xp, SimpleNamespace(ptr=0x7F9876543210))
    products(on_device(a.T), on_device(b), on_device(out))

    np.testing.assert_allclose(out, a.T @ b, rtol=1e-6)
    assert fake.host_mode() == mode
    with pytest.raises(RuntimeError, match=r"cublasSetStream_v2 must return 0 \(success\), got 1"):
        products.call("cublasSetStream_v2", products.handle, ctypes.c_void_p(1))


@pytest.mark.skipif(sys.platform != "linux", reason="finds the loaded cuBLAS on Linux only")
def test_the_cublas_that_is_loaded_is_found_by_its_name(tmp_path: Path) -> None:
    fake = compiled(tmp_path, "other.so", HOST_CUBLAS, "-Wl,-soname,libcublas.so.12")
    code = (
        "import ctypes, sys\nfrom overhead.loops.cupy_graph import Declined, loaded_cublas\n"
        "try: loaded_cublas()\nexcept Declined as declined: print(declined)\n"
        "ctypes.CDLL(sys.argv[1])\nprint(loaded_cublas().host_mode())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(fake)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "cupy-graph needs the cuBLAS that CuPy loads, libcublas.so.11 to .13; found none in this process", "0"
    ]  # fmt: skip


# The kernels


def test_the_kernels_do_what_numpy_does() -> None:
    rng = np.random.default_rng(0)
    z, b, y = (
        rng.normal(size=(6, 5)).astype("f4"),
        rng.normal(size=5).astype("f4"),
        np.arange(6, dtype="i4") % 5,
    )
    z[2, 3] = np.nan
    a, d, kernel = np.empty_like(z), np.empty_like(z), Host().ElementwiseKernel

    kernel(*KERNELS["relu"], "relu")(z, b, a)
    np.testing.assert_array_equal(a, np.maximum(z + b, 0))  # a nan stays a nan

    kernel(*KERNELS["relu_gradient"], "relu_gradient")(z, a, d)
    np.testing.assert_array_equal(d, z * (a > 0))

    z += 300  # exp overflows without the largest logit taken off
    kernel(*KERNELS["logit_gradient"], "logit_gradient")(z, b, y, 5, 6, d, size=6)
    e = np.exp(z + b - (z + b).max(axis=1, keepdims=True), dtype=np.float64)
    expected = (e / e.sum(axis=1, keepdims=True) - np.eye(5)[y]) / 6
    np.testing.assert_allclose(d, expected, atol=1e-6)
    assert np.isnan(d[2]).all()


def cuda_text() -> str:
    loop = "ptrdiff_t i = blockIdx.x * (ptrdiff_t)blockDim.x + threadIdx.x; if (i < _size)"
    return "".join(source(name, kernel, 'extern "C" __global__ void', loop) for name, kernel in ALL_KERNELS.items())


def test_the_kernels_compile_for_hopper_at_run_time() -> None:
    program, said = compiled_for_hopper(cuda_text())
    assert said.strip("\0") == ""
    assert all(name.encode() in program for name in ALL_KERNELS)


def test_the_kernels_compile_for_hopper(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("needs nvcc: the kernels are compiled for sm_90")
    (tmp_path / "kernels.cu").write_text(f"#include <cstddef>\n{cuda_text()}")

    subprocess.run(
        [nvcc, "-arch=sm_90", "-Werror", "all-warnings", "-cubin", "-o", "kernels.cubin", "kernels.cu"],
        cwd=tmp_path, check=True,
    )  # fmt: skip

    compiled = (tmp_path / "kernels.cubin").read_bytes()
    assert all(name.encode() in compiled for name in ALL_KERNELS)


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [32, 64, 128, 256, 512, 1024, 2048, 4096])
def test_replays_agree_on_a_gpu_at_every_batch_size(batch: int) -> None:
    loop, workload = on_gpu("cupy-graph"), Workload(images=10_000, batch_size=batch, remainder="keep")
    split = data.for_workload(workload)

    state = loop.run(loop.place(mlp.init(workload), split, workload), 20)  # `place` compares replays with steps

    assert mlp.relative_error(loop.fetch(state), reference(workload, split, 20)) < 1e-5
