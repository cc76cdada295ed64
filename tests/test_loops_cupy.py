"""The CuPy loops with NumPy in CuPy's place: their kernels' CUDA C runs as C++, their graph is a list of calls."""

from __future__ import annotations

import ctypes
import inspect
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from overhead import data, mlp
from overhead.data import Split
from overhead.loops import Declined, cupy_graph, make
from overhead.loops.base import STEP_OPS
from overhead.loops.cupy_ import OnGpu, matmul_precision, usable_cupy
from overhead.loops.cupy_fused import KERNELS, Kernel
from overhead.loops.cupy_graph import BATCH_KERNELS, sgemm_arguments
from overhead.workload import Workload

ALL_KERNELS = KERNELS | BATCH_KERNELS
C_TYPES = {"float32": "float", "int32": "int"}

BATCHED = ["cupy", "cupy-fused", "cupy-graph"]
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


class HostStream:
    """Runs what is enqueued at once, or, between begin and end of a capture, keeps it for the graph."""

    def __init__(self, host: Host) -> None:
        self.host, self.outer = host, self
        self.captured: list[Callable[[], object]] | None = None

    def enqueue(self, call: Callable[[], object]) -> None:
        call() if self.captured is None else self.captured.append(call)

    def __enter__(self) -> None:
        self.outer, self.host.stream = self.host.stream, self

    def __exit__(self, *_: object) -> None:
        self.host.stream = self.outer

    def begin_capture(self) -> None:
        self.captured = []

    def end_capture(self) -> HostGraph:
        calls, self.captured = self.captured, None
        assert calls is not None
        return HostGraph(calls)

    def synchronize(self) -> None:
        self.host.waits += 1


class HostGraph:
    def __init__(self, calls: list[Callable[[], object]]) -> None:
        self.calls = calls

    def launch(self, stream: HostStream) -> None:
        for call in self.calls:
            stream.enqueue(call)


class Host:
    """NumPy with the few extras of CuPy that the loops use; what it allocates is counted in bytes."""

    def __init__(self, library: ctypes.CDLL | None = None) -> None:
        self.library, self.stream, self.waits = library, HostStream(self), 0
        self.allocator, self.allocated = None, []
        self.cuda = SimpleNamespace(
            Stream=lambda non_blocking: HostStream(self),
            get_current_stream=lambda: self.stream,
            using_allocator=self.using_allocator,
        )

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name not in ("array", "empty", "empty_like", "ones", "zeros"):
            return found

        def allocating(*args, **kwargs):
            made = found(*args, **kwargs)
            if self.allocator:
                self.allocator(made.nbytes)
            self.allocated.append(made.nbytes)
            return made

        return allocating

    def asnumpy(self, array: np.ndarray) -> np.ndarray:
        return np.array(array)

    @contextmanager
    def using_allocator(self, allocator: Callable[[int], object]) -> Iterator[None]:
        self.allocator = allocator
        yield
        self.allocator = None

    def ElementwiseKernel(self, inputs: str, outputs: str, body: str, name: str) -> Callable[..., None]:
        """The kernel of that text, from the library that a C++ compiler made of it."""
        parameters = [p.split() for p in f"{inputs}, {outputs}".split(", ")]
        function = getattr(self.library, name.removeprefix("overhead_"))

        def launch(*args: Any, size: int | None = None) -> None:
            for (*_, dtype, _), arg in zip(parameters, args, strict=True):
                assert not isinstance(arg, np.ndarray) or arg.dtype == dtype
            every = [arg for p, arg in zip(parameters, args, strict=True) if p[0] != "raw"]
            shape = np.broadcast_shapes(*(np.shape(arg) for arg in every)) if size is None else (size,)

            def run() -> None:
                arrays = [
                    np.ascontiguousarray(arg if p[0] == "raw" else np.broadcast_to(arg, shape), p[-2])
                    for p, arg in zip(parameters, args, strict=True)
                ]
                assert np.shares_memory(arrays[-1], args[-1])  # the output is written where it was asked for
                if name == "overhead_take_images":
                    images, start, inputs, x = args
                    assert start[0] * inputs + x.size <= images.size
                function(
                    ctypes.c_ssize_t(int(np.prod(shape))), *(ctypes.c_void_p(a.ctypes.data) for a in arrays)
                )

            self.stream.enqueue(run)

        return launch


class HostProducts:
    """Column-major sgemm, as cuBLAS has it, on the memory of row-major arrays."""

    def __init__(self, xp: Host, stream: HostStream) -> None:
        self.stream = stream

    def __call__(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        self.stream.enqueue(lambda: column_major_sgemm(a, b, out))


def column_major_sgemm(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    (transpose_b, transpose_a), (m, n, inner), (ldb, lda, ldc) = sgemm_arguments(a, b)

    def columns(array, rows, cols, leading):
        assert leading >= rows  # else cuBLAS returns an error
        return np.lib.stride_tricks.as_strided(array, (rows, cols), (4, 4 * leading))

    first = columns(b, inner, m, ldb).T if transpose_b else columns(b, m, inner, ldb)
    second = columns(a, n, inner, lda).T if transpose_a else columns(a, inner, n, lda)
    columns(out, m, n, ldc)[...] = first @ second


def source(name: str, kernel: Kernel, head: str, loop: str) -> str:
    """A whole C function around the body of `kernel`, with `i` counting up to `_size` as CuPy has it."""
    declared, elements = [], []
    for inputs, text in ((True, kernel.inputs), (False, kernel.outputs)):
        for *raw, dtype, parameter in (p.split() for p in text.split(", ")):
            c_type = f"const {C_TYPES[dtype]}" if inputs else C_TYPES[dtype]
            declared.append(f"{c_type} *{'' if raw else '_'}{parameter}")
            elements += [] if raw else [f"{c_type} &{parameter} = _{parameter}[i];"]
    parameters, body = ", ".join(declared), " ".join([*elements, kernel.body])
    return f"{head} {name}(ptrdiff_t _size, {parameters}) {{ {loop} {{ {body} }} }}\n"


# cuBLAS in host memory, as strict as the real one about what it is handed.
HOST_CUBLAS = r"""
#include <cstddef>
static void *const HANDLE = (void *)0x7f0123456789, *const STREAM = (void *)0x7f9876543210;
static int calls = 0, mode = 0;
extern "C" int host_mode() { return mode; }
extern "C" int cublasCreate_v2(void **handle) { calls = 1; mode = 0; *handle = HANDLE; return 0; }
extern "C" int cublasDestroy_v2(void *handle) { return handle != HANDLE; }
extern "C" int cublasSetStream_v2(void *handle, void *stream) {
    return handle != HANDLE || stream != STREAM || calls++ != 1;
}
extern "C" int cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes) {
    return handle != HANDLE || !workspace || bytes != 33554432 || calls++ != 2;
}
extern "C" int cublasSetMathMode(void *handle, int asked) { mode = asked; return handle != HANDLE; }
extern "C" int cublasSgemm_v2(void *handle, int ta, int tb, int m, int n, int k, const float *alpha, const float *a,
                              int lda, const float *b, int ldb, const float *beta, float *c, int ldc) {
    if (handle != HANDLE || calls != 3 || *beta != 0) return 1;
    if (lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m) return 7;  // CUBLAS_STATUS_INVALID_VALUE
    for (int row = 0; row < m; ++row) for (int column = 0; column < n; ++column) {
        float total = 0;
        for (int i = 0; i < k; ++i)
            total += a[ta ? i + row * lda : row + i * lda] * b[tb ? column + i * ldb : i + column * ldb];
        c[row + column * ldc] = *alpha * total;
    }
    return 0;
}
"""


def compiled(folder: Path, name: str, text: str, *options: str) -> Path:
    """A shared library of C++ text, or a skip where there is no compiler."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler: C text of the loops runs as C++ here")
    (folder / "text.cpp").write_text(text)
    command = [compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", *options, "-o", name, "text.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / name


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    loop = "for (ptrdiff_t i = 0; i < _size; ++i)"
    text = "".join(source(name, kernel, 'extern "C" void', loop) for name, kernel in ALL_KERNELS.items())
    text = f"#include <cmath>\n#include <cstddef>\n{text}"
    return ctypes.CDLL(str(compiled(tmp_path_factory.mktemp("kernels"), "kernels.so", text)))


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Host:
    return Host(request.getfixturevalue("library"))


def on_host(name: str, host: Host) -> Any:
    loop: Any = make(name, "gpu")
    loop.xp = host
    loop.products = HostProducts
    return loop


def reference(workload: Workload, split: Split, steps: int) -> mlp.Params:
    every = mlp.reference_steps(mlp.init(workload), split.x, split.y, workload)
    *_, (_, params) = islice(every, steps)
    return params


@pytest.mark.parametrize("case", WORKLOADS)
@pytest.mark.parametrize("name", BATCHED)
def test_each_loop_learns_what_the_reference_learns(name: str, case: str, host: Host) -> None:
    workload = WORKLOADS[case]
    split, params = data.for_workload(workload), mlp.init(workload)
    kept = [tensor.copy() for tensor in mlp.flat(params)]
    loop = on_host(name, host)

    state = loop.run(loop.run(loop.place(params, split, workload), 7), 13)
    loop.block(state)
    ours = loop.fetch(state)

    assert mlp.relative_error(ours, reference(workload, split, 20)) < 1e-5
    assert all(tensor.dtype == np.float32 for tensor in mlp.flat(ours))
    assert all(np.array_equal(a, b) for a, b in zip(kept, mlp.flat(params), strict=True))
    assert host.waits > 0


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


@pytest.mark.parametrize("name", ["cupy", "cupy-fused", "cupy-graph", "cupy-per-image"])
def test_at_most_two_copies_of_the_images_are_on_the_device(name: str, host: Host) -> None:
    workload = Workload(images=2000, batch_size=1999, remainder="keep")  # the graph also holds a batch
    split = data.for_workload(workload)

    on_host(name, host).place(mlp.init(workload), split, workload)

    assert sum(size for size in host.allocated if size >= split.x[0].nbytes * 1999) <= 2 * split.x.nbytes


def test_a_stand_in_never_passes_for_a_gpu(tiny_workload: Workload, tiny_data: Split) -> None:
    loop = on_host("cupy", Host())
    state = loop.place(mlp.init(tiny_workload), tiny_data, tiny_workload)
    assert loop.placed_on(state) == ("cpu", "host memory")


def test_the_precision_of_products_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUPY_TF32", raising=False)
    assert matmul_precision() == "float32"
    monkeypatch.setenv("CUPY_TF32", "1")
    assert make("cupy-graph", "gpu").settings(None) == {"matmul_precision": "tf32"}


# The graph


def test_a_step_is_one_launch_of_seventeen_kernels(
    host: Host, tiny_workload: Workload, tiny_data: Split
) -> None:
    state = on_host("cupy-graph", host).place(mlp.init(tiny_workload), tiny_data, tiny_workload)

    # 2 take the batch, 7 products, 3 elementwise, 4 updates, 1 moves on.
    assert {len(graph.calls) for graph in state.epoch} == {17}
    assert len(state.epoch) == 7
    assert state.epoch[0] is state.epoch[5] is not state.epoch[6]  # six whole batches and a short one


@pytest.mark.parametrize(
    ("forgotten", "got"), [(-1, r"got 0 and image \d+"), (-3, r"got 0\.\d+ and image \d+")]
)
@pytest.mark.parametrize("batch", [32, 8])
def test_a_graph_whose_replay_differs_from_the_step_is_declined(
    batch: int, forgotten: int, got: str, host: Host, tiny_workload: Workload, tiny_data: Split,
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
        on_host("cupy-graph", host).place(mlp.init(tiny_workload), tiny_data, tiny_workload)


def test_a_step_that_allocates_while_it_is_captured_is_declined(
    host: Host, tiny_workload: Workload, tiny_data: Split
) -> None:
    class Allocating(HostProducts):
        def __init__(self, xp: Host, stream: HostStream) -> None:
            super().__init__(xp, stream)
            self.xp = xp

        def __call__(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
            self.xp.empty(out.shape, np.float32)
            super().__call__(a, b, out)

    loop = on_host("cupy-graph", host)
    loop.products = Allocating
    with pytest.raises(Declined, match="step of batch 32 must allocate nothing, got 16384 bytes"):
        loop.place(mlp.init(tiny_workload), tiny_data, tiny_workload)


def test_a_rate_at_which_training_diverges_is_no_fault_of_the_graph(
    host: Host, tiny_workload: Workload, tiny_data: Split
) -> None:
    workload = tiny_workload.model_copy(update={"learning_rate": 1e38})
    loop = on_host("cupy-graph", host)
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


def test_the_kernels_do_what_numpy_does(host: Host) -> None:
    rng = np.random.default_rng(0)
    z, b, y = (
        rng.normal(size=(6, 5)).astype("f4"),
        rng.normal(size=5).astype("f4"),
        np.arange(6, dtype="i4") % 5,
    )
    z[2, 3] = np.nan
    a, d = np.empty_like(z), np.empty_like(z)

    host.ElementwiseKernel(*KERNELS["relu"], "relu")(z, b, a)
    np.testing.assert_array_equal(a, np.maximum(z + b, 0))  # a nan stays a nan

    host.ElementwiseKernel(*KERNELS["relu_gradient"], "relu_gradient")(z, a, d)
    np.testing.assert_array_equal(d, z * (a > 0))

    z += 300  # exp overflows without the largest logit taken off
    host.ElementwiseKernel(*KERNELS["logit_gradient"], "logit_gradient")(z, b, y, 5, 6, d, size=6)
    e = np.exp(z + b - (z + b).max(axis=1, keepdims=True), dtype=np.float64)
    expected = (e / e.sum(axis=1, keepdims=True) - np.eye(5)[y]) / 6
    np.testing.assert_allclose(d, expected, atol=1e-6)
    assert np.isnan(d[2]).all()


def test_the_kernels_compile_for_hopper(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("needs nvcc: the kernels are compiled for sm_90")
    loop = "ptrdiff_t i = blockIdx.x * (ptrdiff_t)blockDim.x + threadIdx.x; if (i < _size)"
    text = "".join(
        source(name, kernel, 'extern "C" __global__ void', loop) for name, kernel in ALL_KERNELS.items()
    )
    (tmp_path / "kernels.cu").write_text(f"#include <cstddef>\n{text}")

    subprocess.run(
        [nvcc, "-arch=sm_90", "-Werror", "all-warnings", "-cubin", "-o", "kernels.cubin", "kernels.cu"],
        cwd=tmp_path, check=True,
    )  # fmt: skip

    compiled = (tmp_path / "kernels.cubin").read_bytes()
    assert all(name.encode() in compiled for name in ALL_KERNELS)


# Without a usable GPU


def stub(**functions: Callable[..., object]) -> ModuleType:
    module = ModuleType("cupy")
    for name, function in functions.items():
        setattr(module, name, function)
    return module


def no_driver(*_: object, **__: object) -> object:
    raise RuntimeError(
        "cudaErrorInsufficientDriver: CUDA driver version\nis insufficient for CUDA runtime version"
    )


@pytest.mark.parametrize("name", ["cupy", "cupy-fused", "cupy-graph", "cupy-per-image"])
def test_a_cupy_that_fails_on_first_use_is_declined_with_its_reason(
    name: str, tiny_workload: Workload, tiny_data: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", stub(ones=no_driver))
    with pytest.raises(Declined) as declined:
        make(name, "gpu").place(mlp.init(tiny_workload), tiny_data, tiny_workload)
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


def on_gpu(name: str) -> OnGpu:
    try:
        usable_cupy()
    except Declined as declined:
        pytest.skip(str(declined))
    loop = make(name, "gpu")
    assert isinstance(loop, OnGpu)
    return loop


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


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [32, 64, 128, 256, 512, 1024, 2048, 4096])
def test_replays_agree_on_a_gpu_at_every_batch_size(batch: int) -> None:
    loop, workload = on_gpu("cupy-graph"), Workload(images=10_000, batch_size=batch, remainder="keep")
    split = data.for_workload(workload)

    state = loop.run(
        loop.place(mlp.init(workload), split, workload), 20
    )  # `place` compares replays with steps

    assert mlp.relative_error(loop.fetch(state), reference(workload, split, 20)) < 1e-5
