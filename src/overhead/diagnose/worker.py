"""A reader's step in a process of its own: `python -m overhead.diagnose.worker FILE FUNCTION MAKE`, as JSON lines."""

from __future__ import annotations

import contextlib
import os
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import threadpoolctl

from overhead.diagnose.competitor import work
from overhead.diagnose.interventions import Condition
from overhead.diagnose.subject import FRAMEWORKS, QUEUEING, Subject
from overhead.loops import Declined
from overhead.machine.pools import thread_pools
from overhead.machine.timer import clock
from overhead.measure.answering import answer_commands
from overhead.measure.spin import Spinner
from overhead.measure.worker import warm_allocator

AHEAD = 4  # batches that a prefetching thread makes ready at most
# The most that one call may cost, nanoseconds: of NumPy, and of a compiled function (Keras, tf.function).
PRICE_NS = {"numpy": 10_000, "framework": 500_000}
COPY_REPEATS = 3
SETTLES_S = 0.05  # OpenBLAS's threads wait busily for more work for 26 ms, and would do so on our core


class StepWorker:
    """The reader's step, its batches, and the verbs that a caller may ask for."""

    def __init__(self, path: Path, function: str, make: str) -> None:
        warm_allocator()
        self.subject = Subject(path, function, make)
        self._batches: dict[int, Any] = {}
        self._pools = threadpoolctl.ThreadpoolController()
        self._cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._copy: Callable[[], object] | None = None

    def hello(self) -> dict[str, Any]:
        """Process, thread pools, the frameworks that the module imported, and what else it gives."""
        loaded = [name for name in FRAMEWORKS if name in sys.modules]
        return {
            "pid": os.getpid(),
            "pools": thread_pools(),
            "frameworks": loaded,
            "may_queue": any(name in loaded for name in (*QUEUEING, "tensorflow")),
            "has_pipeline": self.subject.batches is not None,
        }

    def first(self, n: int) -> dict[str, Any]:
        """Check the batches, take the first steps, and see whether they change anything; nanoseconds of the first."""
        warnings = self.subject.check_batches(n)
        batch = self._batch(n)
        start = clock()
        result = self.subject.call(batch)
        self.subject.wait(result)
        first_ns = clock() - start
        before = self.subject.print_of_state()
        start = clock()
        self.subject.wait(self.subject.call(batch))
        second_ns = clock() - start
        if before is None or self.subject.print_of_state() == before:
            warnings.append(f"no array of {self.subject.name} was seen to change in a step: is it a training step?")
        self._pools = threadpoolctl.ThreadpoolController()  # what the step loaded as well
        return {"first_ns": first_ns, "second_ns": second_ns, "warnings": warnings}

    def sample(self, n: int, steps: int, condition: dict[str, Any]) -> dict[str, int]:
        """`steps` steps under a condition and one wait at the end.

        Nanoseconds: of the whole; of processor time of all threads, with what others kept this thread from; of busy
        waits.
        """
        c = Condition(**condition)
        size = max(1, round(n * c.times))
        with self._one_core() if c.one_core else contextlib.nullcontext(), self._source(c, size) as take:
            step, wait, spin, hook = self.subject.call, self.subject.wait, Spinner(c.spin_ns), Spinner(c.hook_ns or 0)
            self.subject.begin()
            result = step(take())  # what the change of condition costs is not part of the sample
            wait(result)
            if c.hook_ns is not None:
                sys.setprofile(_at_calls(hook))
            cpu, start = time.process_time_ns() + _kept_waiting_ns(), clock()
            for _ in range(steps):
                if c.spin_ns:
                    spin.wait()
                result = step(take())
                if c.wait_each:
                    wait(result)
            wait(result)
            end, used = clock(), time.process_time_ns() + _kept_waiting_ns()
            sys.setprofile(None)
        return {"ns": end - start, "cpu_ns": used - cpu, "spun_ns": spin.spun_ns + hook.spun_ns}

    def copy(self) -> dict[str, int]:
        """Nanoseconds of a copy of arrays that no cache holds, on one core: what a competitor for memory can do."""
        self._copy = self._copy or work("memory")
        with self._one_core():
            self._copy()
            times = []
            for _ in range(COPY_REPEATS):
                start = clock()
                self._copy()
                times.append(clock() - start)
        return {"ns": int(statistics.median(times))}

    def census(self, n: int, steps: int = 3) -> dict[str, float]:
        """Of one step: calls and lines of Python, and nanoseconds in stretches longer than a call may cost.

        The step is traced, which lengthens what lies between calls and leaves the long stretches as they are.
        """
        price_ns = PRICE_NS["framework" if any(m in sys.modules for m in FRAMEWORKS) else "numpy"]
        batch, found = self._batch(n), []
        for _ in range(steps):
            found.append(_traced(lambda: self.subject.wait(self.subject.call(batch)), price_ns))
        names = ("calls", "events", "beyond_ns")
        # The least of each: what else runs only makes a stretch longer.
        return {name: min(values) for name, values in zip(names, zip(*found, strict=True), strict=True)}

    def tell(self, function: str, arguments: list[Any]) -> dict[str, Any]:
        """Call a function of the module: how the self-check changes a synthetic step."""
        return {"said": getattr(self.subject.module, function)(*arguments)}

    def _batch(self, n: int) -> Any:
        if n not in self._batches:
            self._batches[n] = self.subject.batch(n)
        return self._batches[n]

    @contextlib.contextmanager
    def _source(self, c: Condition, size: int) -> Iterator[Callable[[], Any]]:
        """What gives the next batch."""
        if not c.pipeline:
            batch = self._batch(size)
            yield lambda: batch
            return
        batches = self.subject.pipeline()
        assert batches is not None
        if not c.prefetch:
            yield lambda: next(batches)
            return
        ready: queue.Queue[Any] = queue.Queue(AHEAD)
        done = threading.Event()

        def fill() -> None:
            while not done.is_set():
                batch = next(batches)
                while not done.is_set():
                    with contextlib.suppress(queue.Full):
                        ready.put(batch, timeout=0.05)
                        break

        filler = threading.Thread(target=fill, daemon=True)
        filler.start()
        try:
            yield ready.get
        finally:
            done.set()
            filler.join(timeout=10)

    @contextlib.contextmanager
    def _one_core(self) -> Iterator[None]:
        if len(self._cores) < 2:
            raise Declined("only one core is allowed")
        _pin({self._cores[0]})
        try:
            with self._pools.limit(limits=1):
                time.sleep(SETTLES_S)
                yield
        finally:
            _pin(set(self._cores))


def _pin(cores: set[int]) -> None:
    """Keep every thread of this process on `cores`."""
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has just ended
            os.sched_setaffinity(int(task.name), cores)


def _kept_waiting_ns() -> int:
    """Nanoseconds that this thread could have run in, had its core been free; 0 where the system does not tell."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="utf-8").split()[1])
    return 0


def _at_calls(hook: Spinner) -> Callable[..., None]:
    def profiler(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            hook.wait()

    return profiler


def _traced(run: Callable[[], None], price_ns: int) -> tuple[int, int, int]:
    """Calls, events, and nanoseconds beyond `price_ns` in each stretch between two events."""
    calls = events = beyond = 0
    last = clock()

    def seen(frame: Any, event: str, argument: Any) -> Any:
        nonlocal calls, events, beyond, last
        took = clock() - last
        if took > price_ns:
            beyond += took - price_ns
        calls += event in ("call", "c_call")
        events += 1
        last = clock()
        return seen

    sys.setprofile(seen)
    sys.settrace(seen)
    try:
        run()
    finally:
        sys.settrace(None)
        sys.setprofile(None)
    return calls, events, beyond


def main(path: str, function: str, make: str, answers_on: int) -> None:
    """Answer commands in a group of processes of our own, so that what the step starts ends with it."""
    os.setpgrp()
    answer_commands(lambda: StepWorker(Path(path), function, make), "cpu", answers_on)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
