"""A reader's module: its step, its batches, how to wait for it, and whether it changes anything."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from overhead.loops import Declined

NOTHING_QUEUED = (int, float, complex, bool, str, bytes, type(None), np.ndarray, np.generic)
QUEUEING = ("jax", "torch", "cupy")  # frameworks that may return before the work is done and do not say where it is
FRAMEWORKS = (*QUEUEING, "tensorflow", "keras")
DEEPEST = 4  # levels of lists, tuples and dicts that are looked through for arrays
LARGEST_BYTES = 64 << 20  # of an array whose bytes are compared whole


class Subject:
    """What a reader's file gives: `step(batch)`, `make_batch(n)`, and where they are there `batches()`, `sync()`,
    `state()` and `reset()`."""

    def __init__(self, path: Path, function: str, make: str) -> None:
        self.module = load(path)
        self.name = path.name
        self.step = self._function(function, f"{path.name}:{function} names it")
        self.make_batch = self._function(make, "give its name with --make")
        self.batches, self.sync, self.state, self.reset = (
            getattr(self.module, name, None) for name in ("batches", "sync", "state", "reset")
        )

    def _function(self, name: str, hint: str) -> Callable[..., Any]:
        found = getattr(self.module, name, None)
        if not hasattr(self.module, name):
            raise Declined(f"{self.name} must have a function {name!r} ({hint}), got none of that name")
        if not callable(found):
            raise Declined(f"{self.name} must have a function {name!r} ({hint}), got {type(found).__name__}")
        return found

    def batch(self, n: int) -> Any:
        """`n` examples. Raises `Declined` where the function fails."""
        return self._guarded(f"{self.make_batch.__name__}({n})", lambda: self.make_batch(n))

    def check_batches(self, n: int) -> list[str]:
        """Raises `Declined` where `make_batch` ignores `n`; warnings where that cannot be seen."""
        name = self.make_batch.__name__
        lengths = {count: length(self.batch(count)) for count in (n, 2 * n)}
        if None in lengths.values():
            return [f"{name}({n}) gives nothing with a length, so that the size of a batch was not checked"]
        if lengths[n] == lengths[2 * n]:
            raise Declined(f"{name}(n) must give n examples, got {lengths[n]} for n = {n} and for n = {2 * n}")
        return []

    def pipeline(self) -> Iterator[Any] | None:
        """The reader's input pipeline from its start, begun anew where it ends; None where the module has none."""
        return _endless(self.batches) if self.batches is not None else None

    def call(self, batch: Any) -> Any:
        """One step. Raises `Declined` where it fails."""
        return self._guarded(self.step.__name__, lambda: self.step(batch))

    def begin(self) -> None:
        """Put the state back to its start, where the module has a function for that."""
        if self.reset is not None:
            self._guarded("reset", self.reset)

    def wait(self, result: Any) -> None:
        """Return when the work behind `result` is done. Raises `Declined` for what cannot be waited for."""
        if self.sync is not None:
            self._guarded("sync", self.sync)
            return
        leaves = list(arrays(result, everything=True))
        if self.state is not None:
            leaves += arrays(self._guarded("state", self.state), everything=True)
        told = [_wait_for(leaf, self.step.__name__) for leaf in leaves]
        if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
            sys.modules["torch"].cuda.synchronize()
            return
        queueing = [name for name in QUEUEING if name in sys.modules and name != "torch"]
        if queueing and not any(told):
            raise Declined(
                f"{self.step.__name__} must return what can be waited for (its loss or its parameters), got "
                f"{type(result).__name__} from {queueing[0]}; or give {self.name} a function sync()"
            )

    def print_of_state(self) -> int | None:
        """A number that changes when the arrays of `state()`, or else of the module, change; None if there are none."""
        where = self._guarded("state", self.state) if self.state is not None else vars(self.module)
        found, seen = 0, False
        for name, value in where.items() if isinstance(where, dict) else [("", where)]:
            if isinstance(value, ModuleType) or name.startswith("__"):
                continue
            for leaf in _weights(value):
                found, seen = zlib.crc32(leaf, found), True
        return found if seen else None

    def _guarded(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            raise Declined(f"{what} raised {_said(error)}{self._line(error)}") from None

    def _line(self, error: BaseException) -> str:
        """Where in the reader's file the error came from."""
        at, line = error.__traceback__, None
        while at is not None:
            if Path(at.tb_frame.f_code.co_filename).name == self.name:
                line = at.tb_lineno
            at = at.tb_next
        return f" ({self.name}, line {line})" if line else ""


def load(path: Path) -> ModuleType:
    """Import a file under its own name, with its folder first on the path. Raises `Declined` where that fails."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Declined(f"{path.name} must be a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    sys.argv = [str(path)]
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise Declined(f"{path.name} cannot be imported: {_said(error)}") from None
    return module


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _endless(batches: Callable[[], Any]) -> Iterator[Any]:
    while True:
        some = False
        for batch in batches():
            some = True
            yield batch
        if not some:
            raise Declined("batches() must give at least one batch, got none")


def arrays(value: Any, depth: int = DEEPEST, everything: bool = False) -> Iterator[Any]:
    """What stands in lists, tuples and dicts: the arrays, or `everything`."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple) and depth:
        for item in value:
            yield from arrays(item, depth - 1, everything)
    elif everything or hasattr(value, "shape"):
        yield value


def length(batch: Any) -> int | None:
    """The first dimension of the first array of a batch, or the length of a plain list; None where there is neither."""
    for array in arrays(batch):
        shape = tuple(array.shape)
        return int(shape[0]) if shape else None
    return len(batch) if isinstance(batch, list) else None


def _wait_for(leaf: Any, step: str) -> bool:
    """Whether `leaf` was waited for; False where nothing can be queued behind it. Raises `Declined` otherwise."""
    if isinstance(leaf, NOTHING_QUEUED):
        return not isinstance(leaf, type(None))
    kind = type(leaf).__module__.partition(".")[0]
    if hasattr(leaf, "block_until_ready"):  # JAX
        leaf.block_until_ready()
    elif kind == "cupy":
        sys.modules["cupy"].cuda.get_current_stream().synchronize()
    elif kind in ("tensorflow", "keras"):
        sys.modules["tensorflow"].test.experimental.sync_devices()
    elif kind != "torch":
        raise Declined(
            f"{step} must return arrays, numbers or None, or its module have a function sync(), got "
            f"{type(leaf).__name__}, which cannot be waited for"
        )
    return True


def _weights(value: Any) -> Iterator[bytes]:
    """The bytes of the arrays in `value`, or of the weights of a model."""
    kind = type(value).__module__.partition(".")[0]
    if callable(getattr(value, "get_weights", None)) and kind in ("keras", "tensorflow"):
        value = value.get_weights()
    elif callable(getattr(value, "parameters", None)) and kind != "builtins" and "torch" in sys.modules:
        value = [parameter.detach().cpu() for parameter in value.parameters()]
    for array in arrays(value):
        try:
            found = np.asarray(array)
        except Exception:  # an array that was donated, or one that does not convert
            continue
        if found.nbytes <= LARGEST_BYTES and found.dtype != object:
            yield np.ascontiguousarray(found).tobytes()
