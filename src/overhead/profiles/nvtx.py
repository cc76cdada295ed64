"""NVTX ranges by whatever this host has: the nvtx package, CuPy or the library; else none, and it says so."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from ctypes.util import find_library
from pathlib import Path
from typing import Any

Mark = Callable[[str], AbstractContextManager[Any]]


def nvtx_marker() -> tuple[Mark, str | None]:
    """A function that opens a range, and the name of what writes it (None: ranges are not recorded)."""
    try:
        import nvtx

        return nvtx.annotate, "nvtx"
    except ImportError:
        pass
    try:
        from cupy.cuda import nvtx as cupy_nvtx

        return _pushing(cupy_nvtx.RangePush, cupy_nvtx.RangePop), "cupy"
    except ImportError:
        pass
    library = _library()
    if library is None:
        return nullcontext, None
    return _pushing(lambda name: library.nvtxRangePushA(name.encode()), library.nvtxRangePop), "libnvToolsExt"


def _pushing(push: Callable[[str], object], pop: Callable[[], object]) -> Mark:
    @contextmanager
    def mark(name: str) -> Iterator[None]:
        push(name)
        try:
            yield
        finally:
            pop()

    return mark


def _library() -> ctypes.CDLL | None:
    """The NVTX library of the system or of the nvidia-nvtx wheel."""
    wheels = [str(path) for folder in sys.path for path in Path(folder).glob("nvidia/nvtx/lib/libnvToolsExt.so*")]
    for name in [find_library("nvToolsExt"), *wheels]:
        try:
            if name:
                return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def keras_ranges(mark: Mark) -> Any:
    """A Keras callback with a range for each epoch, train, validate and step; `step` covers both kinds of batch."""
    import keras

    class Ranges(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[AbstractContextManager[Any]] = []

        def push(self, name: str) -> None:
            self.open.append(mark(name))
            self.open[-1].__enter__()

        def pop(self) -> None:
            self.open.pop().__exit__(None, None, None)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.push("epoch")
            self.push("train")
            self.training = True

        def on_test_begin(self, logs: Any = None) -> None:
            if self.training:  # Keras validates before it calls the end of the epoch
                self.pop()
                self.training = False
            self.push("validate")

        def on_test_end(self, logs: Any = None) -> None:
            self.pop()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if self.training:
                self.pop()
                self.training = False
            self.pop()

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.push("step")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.pop()

        on_test_batch_begin, on_test_batch_end = on_train_batch_begin, on_train_batch_end

    return Ranges()
