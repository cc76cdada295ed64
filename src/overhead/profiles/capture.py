"""One epoch of a loop under a profiler, in a process of its own: nsys on a GPU host that has it, else JAX's."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from overhead.loops import LOOPS
from overhead.machine.alone import scratch
from overhead.measure.contestant import Contestant, environment
from overhead.profiles.reading import read_profile
from overhead.profiles.summary import Frozen, ProfileError, ProfileSummary

TIMEOUT_S = 900.0
NEEDS_BYTES = 50_000_000  # of temporary space: a short profile and its export
NSYS_OPTIONS = [
    "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true",
    "--cuda-graph-trace=node",  # else a graph is one block and hides its kernels
]  # fmt: skip


class Capture(Frozen):
    """A profile that was made just now."""

    tool: str  # nsys or jax
    loop: str
    device: str
    device_name: str | None
    threads: int  # of each pool, as in a timed run
    notes: tuple[str, ...]
    summary: ProfileSummary
    saved: str | None = None  # file name in the folder asked for


def capture(
    loop: str,
    device: str = "gpu",
    *,
    out: str | Path | None = None,
    images: int = 48_000,
    timeout_s: float = TIMEOUT_S,
) -> Capture:
    """Profile one epoch of `loop` on `device` after a warm-up, with ranges for epoch, train, validate and step.

    The process has the environment of a timed run: its threads, precision, memory settings and GPU.
    `out`, a folder, keeps the profile; a file of an earlier capture there is replaced only by a new one.
    Raises `ProfileError` where no profiler serves, where one fails, and where one writes nothing.
    """
    tool, notes = choose(loop, device)
    with scratch(NEEDS_BYTES) as folder:
        contestant = Contestant(loop, device).resolved()
        made, said = (_under_nsys if tool == "nsys" else _under_jax)(contestant, images, folder, timeout_s)
        summary = read_profile(made)
        if tool == "nsys" and said.get("ranges") is None:
            notes.append("no NVTX ranges: install the nvtx package to see epoch, train, validate and step apart")
        if tool == "nsys" and out is not None:
            notes.append("the export holds this machine's environment variables: do not publish it")
        saved = _save(made, Path(out), tool) if out is not None else None
    return Capture(
        tool=tool, loop=loop, device=device, device_name=said.get("device_name"), threads=contestant.threads,
        notes=tuple(notes), summary=summary, saved=saved,
    )  # fmt: skip


def choose(loop: str, device: str) -> tuple[str, list[str]]:
    """The profiler that can record this loop here, and what a reader should know of the choice."""
    if loop not in LOOPS:
        raise ProfileError(f"loop must be one of {', '.join(LOOPS)}, got {loop!r}")
    info = LOOPS[loop]
    if device not in info.devices:
        raise ProfileError(f"{loop} runs on {' or '.join(info.devices)} only, got {device}")
    uses_jax = info.framework == "jax" or ("KERAS_BACKEND", "jax") in info.env
    traced = ", ".join(name for name, i in LOOPS.items() if i.framework == "jax" and device in i.devices)
    if device == "gpu" and shutil.which("nsys"):
        return "nsys", ["a profiled run is slower than a timed one: its times are not the book's times"]
    if uses_jax and device == "gpu":
        return "jax", [
            "nsys is not on the PATH: JAX's own profiler is used, and XLA runs no command buffers under it, "
            "so launches are more than in a timed run"
        ]
    if uses_jax:
        return "jax", ["on the CPU JAX's own profiler records the run: calls and operations, no launches"]
    if device == "gpu":
        raise ProfileError(
            f"nsys is not on the PATH, and without it only JAX loops can be profiled ({traced}), got {loop}"
        )
    raise ProfileError(f"on the CPU only JAX loops can be profiled ({traced}), got {loop}")


def _under_jax(contestant: Contestant, images: int, folder: Path, timeout_s: float) -> tuple[Path, dict[str, Any]]:
    said = _run("the profiled run", _target(contestant, str(folder), images), contestant, timeout_s)
    if not list(folder.glob("plugins/profile/*/*.xplane.pb")):
        raise ProfileError("JAX's profiler wrote no trace")
    return folder, _answer(said)


def _under_nsys(contestant: Contestant, images: int, folder: Path, timeout_s: float) -> tuple[Path, dict[str, Any]]:
    began = time.time()
    report, export = folder / "profile.nsys-rep", folder / "profile.sqlite"
    command = ["nsys", "profile", *NSYS_OPTIONS, f"--output={folder / 'profile'}", *_target(contestant, "", images)]
    said = _run("nsys profile", command, contestant, timeout_s)
    _fresh("nsys profile", report, began)
    _run("nsys export", ["nsys", "export", "--type=sqlite", f"--output={export}", str(report)], contestant, timeout_s)
    _fresh("nsys export", export, began)
    return export, _answer(said)


def _target(contestant: Contestant, trace: str, images: int) -> list[str]:
    arguments = f"{contestant.loop!r}, {contestant.device!r}, {trace or None!r}, {images}"
    code = f"from overhead.profiles.target import main; main({arguments})"
    return [sys.executable, "-c", code]


def _run(what: str, command: list[str], contestant: Contestant, timeout_s: float) -> str:
    """The command's stdout. Raises `ProfileError` with the last line that it said, paths taken out."""
    try:
        process = subprocess.Popen(
            command, env={**os.environ, **environment(contestant)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL, encoding="utf-8", errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise ProfileError(f"{what} cannot be started: {error.strerror or error}") from None
    try:
        told, complained = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end(process)
        raise ProfileError(f"{what} took longer than {timeout_s:.0f} s and was stopped") from None
    except BaseException:
        _end(process)
        raise
    if process.returncode:
        lines = [line.strip() for line in (complained or told).splitlines() if line.strip()]
        last = re.sub(r"(?<![\w.])/[^\s:,;'\"]+", "…", lines[-1])[:200] if lines else "it said nothing"
        raise ProfileError(f"{what} failed with exit status {process.returncode}: {last}")
    return told


def _end(process: subprocess.Popen[str]) -> None:
    """End the command and what it started: nsys would leave the program that it profiles."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()


def _fresh(what: str, file: Path, began: float) -> None:
    """Refuse what is missing, empty or older than the run: figures of another run must not appear."""
    if not file.is_file() or not file.stat().st_size:
        raise ProfileError(f"{what} ended without an error but wrote no {file.name}")
    if file.stat().st_mtime < began - 2:
        raise ProfileError(f"{what} left an old {file.name} in place of a new one")


def _answer(stdout: str) -> dict[str, Any]:
    """The line that the target prints at its end; {} where it is not found among other output."""
    for line in reversed(stdout.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {}


def _save(made: Path, out: Path, tool: str) -> str:
    """Put the profile into the folder `out` under a name of its own, in one step."""
    out.mkdir(parents=True, exist_ok=True)
    source = made if made.is_file() else next(iter(made.glob("plugins/profile/*/*.xplane.pb")))
    name = "profile.sqlite" if tool == "nsys" else "profile.xplane.pb"  # JAX's own name holds the host's
    part = out / (name + ".part")
    shutil.copyfile(source, part)
    part.replace(out / name)
    return name
