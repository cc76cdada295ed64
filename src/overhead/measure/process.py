"""A contestant's process seen from outside: commands with time limits, numbered answers, stopped between turns."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any

from overhead.loops import MANY
from overhead.measure.contestant import Contestant, environment

START_LIMIT_S = 180.0  # a first import of TensorFlow from a cold disk takes a minute and more
CALL_LIMIT_S = 600.0
LONGEST_LINE = 10_000  # characters of what a process prints are kept at most
ABSOLUTE = re.compile(r"(?<![\w./:~-])/(?:[\w.+@~-]+/)+|(?<=[a-z]:)/(?!/)(?:[\w.+@~-]+/)+")  # folders from the root
STOPPABLE = hasattr(signal, "SIGSTOP")


class WorkerFailed(RuntimeError):
    """A worker died, hung, ran out of memory or could not do what it was asked; carries status and reason."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Process:
    """A contestant's process as its caller sees it, stopped between turns: no spinning pool slows the next one."""

    def __init__(self, contestant: Contestant, limit_s: float = CALL_LIMIT_S) -> None:
        self.contestant = contestant
        self.limit_s = limit_s  # for any command but the first
        self.env = self.environment()
        self.ended: str | None = None  # why the process is no more
        self._cpu_s = 0.0
        self.broken = False  # a command failed: memory or a device's context may be lost with it
        self.facts: dict[str, Any] = {}
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._said: deque[str] = deque(maxlen=40)
        self._asked = 0  # commands so far; an answer carries the number of its command
        self._process, answers = started([sys.executable, "-m", *self.command()], {**os.environ, **self.env})
        self._readers = [
            threading.Thread(target=self._read_answers, args=(answers,), daemon=True),
            threading.Thread(target=self._read_what_is_said, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def environment(self) -> dict[str, str]:
        """What is added to our own environment before the process imports anything."""
        return environment(self.contestant)

    def command(self) -> list[str]:
        """The module that the process runs and its arguments, without the descriptor that it answers on."""
        module = "overhead.sweep.worker" if self.contestant.loop in MANY else "overhead.measure.worker"
        return [module, self.contestant.loop, self.contestant.device]

    def _read_answers(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as answers:
            for line in answers:
                self._lines.put(line)
        self._lines.put(None)

    def _read_what_is_said(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            while line := said.readline(LONGEST_LINE):
                self.hears(line)

    def hears(self, text: str) -> None:
        """Keep the last lines of what the process prints, for the reason of a failure."""
        if text.strip():
            self._said.append(text.rstrip())

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, limit_s: float | None = None, **arguments: Any) -> dict[str, Any]:
        """Send a command and wait for its answer. Raises `WorkerFailed` with the reason otherwise."""
        assert self._process.stdin is not None
        if self.ended:
            raise WorkerFailed("failed", self.ended)
        limit_s = self.limit_s if limit_s is None else limit_s
        self._signal("SIGCONT")
        self._asked += 1
        try:
            self._process.stdin.write(json.dumps({"number": self._asked, "do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            answer = self._answer(time.monotonic() + limit_s)
        except queue.Empty:
            self.kill()
            self.ended, self.broken = f"no answer to {do!r} within {limit_s:g} s; killed", True
            raise WorkerFailed("failed", self.ended) from None
        except OSError:
            answer = None
        if answer is None:
            self.ended, self.broken = self._why_dead(), True
            raise WorkerFailed("failed", self.ended)
        if "status" in answer:
            self.broken = self.broken or answer["status"] == "failed"
            raise WorkerFailed(answer["status"], without_paths(answer["reason"]))
        return answer

    def _answer(self, until: float) -> dict[str, Any] | None:
        """The answer to the last command, or None where the process hung up. Raises `queue.Empty` after `until`."""
        while (line := self._lines.get(timeout=max(0.0, until - time.monotonic()))) is not None:
            try:
                answer = json.loads(line)
            except ValueError:
                continue
            if isinstance(answer, dict) and answer.pop("number", None) == self._asked:
                return answer
        return None

    def pause(self) -> None:
        """Stop the process until the next command."""
        self._signal("SIGSTOP")

    def close(self) -> None:
        """End the process; killed when it does not end by itself."""
        self._signal("SIGCONT")
        try:
            self._hang_up()
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._hang_up()

    def _hang_up(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # what was still to be written has nobody to read it
            self._process.stdin.close()

    def cpu_seconds(self) -> float:
        """Processor time of the process so far."""
        import psutil

        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.Error:
            return self._cpu_s  # of a process that has died, what it was last seen to have used
        self._cpu_s = max(self._cpu_s, times.user + times.system)
        return self._cpu_s

    def _signal(self, name: str) -> None:
        if STOPPABLE and self._process.poll() is None:
            self._process.send_signal(getattr(signal, name))

    def _why_dead(self) -> str:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:  # it closed its end and lives on
            self.kill()
            return "the worker stopped answering; killed"
        self._readers[1].join(timeout=10)  # its last words
        said = without_paths(self._said[-1]) if self._said else "it said nothing"
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return f"the worker was ended by {name}{hint}: {said}"
        return f"the worker exited with {code}: {said}"


def started(command: list[str], env: dict[str, str]) -> tuple[subprocess.Popen[str], int]:
    """A process that answers on a descriptor of its own, and that descriptor; what it prints comes on `stdout`.

    `command` gets the number of the descriptor to answer on as its last argument. Linux ends a child with the thread
    that started it (see `alone.die_with_parent`), so one thread that lives as long as we do starts them all.
    """
    return _starter().submit(_start, command, env).result()


def _start(command: list[str], env: dict[str, str]) -> tuple[subprocess.Popen[str], int]:
    ours, theirs = os.pipe()
    try:
        process = subprocess.Popen(
            [*command, str(theirs)], pass_fds=(theirs,), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",  # a framework may print what it likes
        )  # fmt: skip
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return process, ours


@cache
def _starter() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="starts-workers")


def without_paths(text: str) -> str:
    """`text` on one line, its absolute paths cut to their last part, at most 300 characters."""
    return ABSOLUTE.sub("…/", " ".join(text.split()))[:300]
