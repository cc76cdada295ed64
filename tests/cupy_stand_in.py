"""NumPy in CuPy's place: kernels' CUDA C runs as C++, a CUDA graph is a list of calls, cuBLAS works in host memory."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from overhead.loops import Declined, make
from overhead.loops.cupy_ import OnGpu, usable_cupy
from overhead.loops.cupy_fused import KERNELS, Kernel
from overhead.loops.cupy_graph import BATCH_KERNELS, sgemm_arguments
from overhead.problem import mlp
from overhead.problem.data import Split
from overhead.problem.workload import Workload

ALL_KERNELS = KERNELS | BATCH_KERNELS
C_TYPES = {"float32": "float", "int32": "int"}


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

    def __init__(self) -> None:
        self.stream, self.waits = HostStream(self), 0
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
        function = getattr(kernel_library(), name.removeprefix("overhead_"))

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
                function(ctypes.c_ssize_t(int(np.prod(shape))), *(ctypes.c_void_p(a.ctypes.data) for a in arrays))

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


@cache
def kernel_library() -> ctypes.CDLL:
    """Every kernel of the loops as a C function over its elements."""
    loop = "for (ptrdiff_t i = 0; i < _size; ++i)"
    text = "".join(source(name, kernel, 'extern "C" void', loop) for name, kernel in ALL_KERNELS.items())
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        text = f"#include <cmath>\n#include <cstddef>\n{text}"
        return ctypes.CDLL(str(compiled(Path(folder), "kernels.so", text)))


def on_host(name: str, host: Host) -> Any:
    loop: Any = make(name, "gpu")
    loop.xp = host
    loop.products = HostProducts
    return loop


def reference(workload: Workload, split: Split, steps: int) -> mlp.Params:
    every = mlp.reference_steps(mlp.init(workload), split.x, split.y, workload)
    *_, (_, params) = islice(every, steps)
    return params


def on_gpu(name: str) -> OnGpu:
    try:
        usable_cupy()
    except Declined as declined:
        pytest.skip(str(declined))
    loop = make(name, "gpu")
    assert isinstance(loop, OnGpu)
    return loop
