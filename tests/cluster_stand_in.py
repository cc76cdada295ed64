"""The kernel of `cupy-persistent` on the host: its own text as C++, on the cluster of `cuda_shim/cluster.h`."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np

from cupy_stand_in import Host, compiled
from overhead.loops.cupy_persistent import BLOCKS, KERNEL, SHARED_BYTES, THREADS, CupyPersistentLoop

H200 = {"name": b"NVIDIA H200", "major": 9, "minor": 0, "sharedMemPerBlockOptin": 232_448}  # bytes

# What a mutation takes away: a barrier, or the second copy of the logits.
NEEDED = re.compile(r"(?<!void )(?:__syncthreads|cluster_barrier)\(\)(?= *;)|step % 2")

# Calls the kernel with the arguments of its launch, and `removed` for what is taken away, -1 for nothing.
GLUE = """
static float *w1, *b1, *w2, *b2;
static const float *images;
static const int *labels;
static int first, steps, batches;
static float lr;
Four (*shared_of_this_block())[] { return (Four (*)[])cluster::block->shared.data(); }
extern "C" bool launch(float *w1_, float *b1_, float *w2_, float *b2_, const float *images_, const int *labels_,
                       int first_, int steps_, int batches_, float lr_, unsigned seed, int removed_) {
    w1 = w1_, b1 = b1_, w2 = w2_, b2 = b2_, images = images_, labels = labels_;
    first = first_, steps = steps_, batches = batches_, lr = lr_, removed = removed_;
    return cluster::launch(BLOCKS, THREADS, sizeof(Shared), seed, [] {
        train(w1, b1, w2, b2, images, labels, first, steps, batches, lr);
    });
}
"""


def without_what_is_removed(text: str) -> tuple[str, list[str]]:
    """The text with a condition on whatever is needed, and the line of each: `removed` names one by its number."""
    number, lines = count(), []

    def conditional(found: re.Match[str]) -> str:
        lines.append(text[: found.start()].count("\n") + 1)
        what, at = found.group(), next(number)
        return f"(removed == {at} ? 0 : {what})" if what == "step % 2" else f"if (removed != {at}) {what}"

    mutated = NEEDED.sub(conditional, text)
    shown = [text.splitlines()[line - 1].strip() for line in lines]
    return mutated, [f"line {line}: {what}" for line, what in zip(lines, shown, strict=True)]


@cache
def cluster_library(*besides: str) -> ctypes.CDLL:
    """The kernel and `launch`; `besides`, files of the shim that are compiled after them."""
    header, *others = ((Path(__file__).parent / "cuda_shim" / name).read_text() for name in ("cluster.h", *besides))
    kernel, _ = without_what_is_removed(KERNEL)
    options = ("-O3", "-U_FORTIFY_SOURCE", "-fno-strict-aliasing", "-Wno-unknown-pragmas")
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        parts = (f"#define SHARED_BYTES {SHARED_BYTES}", header, "static int removed = -1;", kernel, GLUE, *others)
        text = "\n".join(parts)
        return ctypes.CDLL(str(compiled(Path(folder), "cluster.so", text, *options)))


class HostKernel:
    """What `RawModule.get_function` returns, as strict as a GPU about the launch."""

    def __init__(self, seed: int, removed: int) -> None:
        self.seed, self.removed, self.launches = seed, removed, 0
        self.max_dynamic_shared_size_bytes = 48 * 1024

    def __call__(self, grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...], shared_mem: int) -> None:
        assert (grid, block) == ((BLOCKS,), (THREADS,))
        assert SHARED_BYTES == shared_mem <= self.max_dynamic_shared_size_bytes <= H200["sharedMemPerBlockOptin"]
        *arrays, first, steps, batches, lr = arguments
        assert [a.dtype for a in arrays] == [np.float32] * 5 + [np.int32]
        assert all(a.flags.c_contiguous for a in arrays)
        assert [type(number) for number in (first, steps, batches, lr)] == [np.int32] * 3 + [np.float32]
        self.launches += 1
        numbers = [int(number) for number in (first, steps, batches)]
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
        launch = cluster_library().launch
        launch.restype = ctypes.c_bool
        assert launch(*pointers, *numbers, ctypes.c_float(lr), self.seed, self.removed), "threads wait without end"


class ClusterHost(Host):
    """NumPy in CuPy's place, on a pretended H200 whose one kernel is that of `cupy-persistent`."""

    def __init__(self, seed: int = 0, removed: int = -1, **properties: object) -> None:
        super().__init__()
        self.kernel = HostKernel(seed, removed)
        self.cuda.runtime = SimpleNamespace(getDevice=lambda: 0, getDeviceProperties=lambda _: H200 | properties)

    def RawModule(self, code: str, options: tuple[str, ...]) -> Any:
        assert (code, options) == (KERNEL, (f"-DSHARED_BYTES={SHARED_BYTES}",))
        functions: dict[str, Callable[..., None]] = {"train": self.kernel}
        return SimpleNamespace(get_function=functions.__getitem__)


def persistent(host: ClusterHost) -> CupyPersistentLoop:
    loop = CupyPersistentLoop("gpu")
    loop.xp = host
    return loop
