"""NVIDIA GPUs as their driver tells of them: which one is used, who else uses it, and what holds it back.

Asked through `nvidia-smi`, which comes with the driver; a host without it has no GPU here. `Library` asks the same of
the driver's library, where nvidia-smi's tens of milliseconds are too long. All that is known of a GPU is read here.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from overhead.loops import frameworks

VISIBLE = "CUDA_VISIBLE_DEVICES"
FACTS = {
    "name": "name",
    "driver_version": "driver",
    "memory.total": "memory_mib",
    "power.limit": "power_limit_w",
    "clocks.max.sm": "max_sm_clock_mhz",
    "clocks.max.memory": "max_memory_clock_mhz",
}
# Bits of the driver's reasons (nvml.h, nvmlClocksEventReason…) that slow a card against its user's will.
HELD_BACK = {
    0x04: "the power cap",
    0x08: "a hardware slowdown",
    0x20: "heat (software slowdown)",
    0x40: "heat (hardware slowdown)",
    0x80: "the power brake",
}
CONTEXT_BYTES = 10**9  # of a process on the GPU before its own arrays: a context with cuBLAS and its workspace
BUSY = 0.05  # share of the time with a kernel of somebody else's
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # since driver 535, and before
# Oldest driver of each CUDA (CUDA Toolkit Release Notes, table "CUDA Toolkit and Minimum Required Driver Version").
LEAST_DRIVER = {11: (450, 80), 12: (525, 60), 13: (580, 65)}


class State(NamedTuple):
    """A GPU at one moment; None where the driver does not tell."""

    utilisation: float | None  # 0 to 1: time with at least one kernel running, over up to a second
    memory_used_mib: float | None
    sm_clock_mhz: float | None
    temperature_c: float | None
    power_w: float | None
    held_back: tuple[str, ...]  # what keeps its clocks down


def gpus() -> list[dict[str, Any]]:
    """GPUs that this process may use, the one that is used first; empty without any.

    As text: name, driver, memory_mib, power_limit_w, max_sm_clock_mhz, max_memory_clock_mhz; `index` is nvidia-smi's.
    """
    cards = [
        {**dict(zip(FACTS.values(), row, strict=True)), "index": index}
        for index, row in enumerate(_ask("gpu", list(FACTS)) or [])
        if len(row) == len(FACTS)
    ]
    chosen = _visible(os.environ) if cards else None
    return cards if chosen is None else [cards[index] for index in chosen if index < len(cards)]


def first_visible(env: Mapping[str, str]) -> str:
    """What a worker's CUDA_VISIBLE_DEVICES must be, so that it sees one GPU: the first of those that `env` allows."""
    return env.get(VISIBLE, "0").split(",")[0].strip() or "-1"


def first_index() -> int | None:
    """nvidia-smi's index of the GPU that a worker is given; None where CUDA_VISIBLE_DEVICES hides all."""
    chosen = _visible(os.environ)
    return 0 if chosen is None else next(iter(chosen), None)


def _visible(env: Mapping[str, str]) -> list[int] | None:
    """nvidia-smi's indices of the GPUs in CUDA_VISIBLE_DEVICES, in its order; None where all are visible.

    Like CUDA, stops at the first entry that is no GPU, so that "-1" and "" hide all.
    """
    if VISIBLE not in env:
        return None
    found: list[int] = []
    entries = [entry.strip() for entry in env[VISIBLE].split(",")]
    by_uuid = {} if all(re.fullmatch(r"-?\d*", entry) for entry in entries) else _indices()
    for entry in entries:
        if re.fullmatch(r"\d+", entry):
            found.append(int(entry))
            continue
        matches = {index for uuid, index in by_uuid.items() if entry and uuid.startswith(entry)}
        if len(matches) != 1:
            break
        found += matches
    return list(dict.fromkeys(found))


def _indices() -> dict[str, int]:
    """The index of the card of every UUID, those of MIG instances included."""
    found: dict[str, int] = {}
    index = 0
    for line in (_run("-L") or "").splitlines():
        if card := re.match(r"GPU (\d+):", line):
            index = int(card[1])
        if uuid := re.search(r"UUID: ([^)\s]+)", line):
            found[uuid[1]] = index
    return found


def processes(index: int | None = None) -> int | None:
    """Compute processes on a GPU now (None: on any); None without a GPU or where it cannot be read."""
    rows = _ask("compute-apps", ["pid"], index)
    return None if rows is None else len(rows)


def state(index: int) -> State | None:
    """The GPU now; None where it does not answer."""
    fields = ["utilization.gpu", "memory.used", "clocks.sm", "temperature.gpu", "power.draw"]
    for reasons in REASONS:
        rows = _ask("gpu", [*fields, reasons], index)
        if rows and len(rows[0]) == len(fields) + 1:
            used, memory, clock, temperature, power = map(_number, rows[0][:-1])
            return State(
                None if used is None else used / 100, memory, clock, temperature, power, held_back(rows[0][-1])
            )
    return None


def free_bytes(index: int) -> int | None:
    """Memory of the GPU that nobody holds now; None where the driver does not tell."""
    row = next(iter(_ask("gpu", ["memory.total", "memory.used"], index) or []), [])
    total, used = map(_number, row) if len(row) == 2 else (None, None)
    return None if total is None or used is None else int((total - used) * 2**20)


def fitting(devices: Sequence[str], each_bytes: int, free: int | None) -> int:
    """How many of the processes on `devices`, from the first on, have room together in `free` bytes of the GPU.

    Those on the CPU take none; one on the GPU takes a context and `each_bytes` of arrays. Where `free` is None, all.
    """
    room = len(devices) if free is None else free // (CONTEXT_BYTES + each_bytes)
    on_gpu = [place for place, device in enumerate(devices) if device == "gpu"]
    return len(devices) if len(on_gpu) <= room else on_gpu[room]


def held_back(mask: str) -> tuple[str, ...]:
    """What keeps a card's clocks down, from the driver's bit mask as text; empty where it does not tell."""
    try:
        bits = int(mask, 16)
    except ValueError:
        return ()
    # The hardware's slowdown is the sum of heat and brake: said alone only where neither is.
    named = [why for bit, why in HELD_BACK.items() if bits & bit and not (bit == 0x08 and bits & 0xC0)]
    return tuple(named)


def driver_too_old(driver: str, cudas: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """(framework, its CUDA's version, the oldest driver for it) of each framework whose CUDA `driver` cannot run."""
    have = tuple(int(part) for part in re.findall(r"\d+", driver)[:2])
    return [
        (framework, cuda, ".".join(map(str, least)))
        for framework, cuda in cudas.items()
        if have and (least := LEAST_DRIVER.get(cuda)) and have < least
    ]


def cudas() -> dict[str, int]:
    """The CUDA that each installed framework brings, by framework; one that has none cannot use a GPU."""
    found: dict[str, int] = {}
    for framework in frameworks.listed():
        for package in framework.brings_cuda:
            try:
                importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                continue
            if version := re.search(r"cu(?:da)?(\d+)", package):
                found[framework.name] = int(version[1])
    return found


class NoDriver(RuntimeError):
    """The driver's library cannot be asked; says what is missing."""


class Library:
    """One GPU through the driver's library (NVML): `with Library(0) as gpu: gpu.state()`, in well under a millisecond.

    `index` is nvidia-smi's (None: the GPU that a worker is given, by CUDA_VISIBLE_DEVICES).
    Raises `NoDriver` on a host without NVIDIA's driver, without that GPU or without the nvidia-ml-py package.
    """

    def __init__(self, index: int | None = None) -> None:
        self.index = index

    def __enter__(self) -> Library:
        try:
            import pynvml
        except ImportError:
            raise NoDriver("sampling a GPU needs the nvidia-ml-py package") from None
        self._nvml = pynvml
        if self.index is None:
            self.index = first_index()
        if self.index is None:
            raise NoDriver(f"{VISIBLE} allows no GPU to sample")
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
        except pynvml.NVMLError as error:
            raise NoDriver(f"no NVIDIA GPU {self.index} to sample: {error}") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._nvml.nvmlShutdown()

    def state(self) -> State:
        """The GPU now."""
        nvml = self._nvml
        used, memory = self._ask("nvmlDeviceGetUtilizationRates"), self._ask("nvmlDeviceGetMemoryInfo")
        power, reasons = self._ask("nvmlDeviceGetPowerUsage"), self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return State(
            utilisation=None if used is None else used.gpu / 100,
            memory_used_mib=None if memory is None else memory.used / 2**20,
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            temperature_c=self._ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power is None else power / 1000,
            held_back=held_back(hex(reasons or 0)),
        )

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, name)(self._handle, *arguments)
        except self._nvml.NVMLError:  # not supported by this device (MIG, laptops)
            return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A], [Not Supported]
        return None


def _ask(what: str, fields: Sequence[str], index: int | None = None) -> list[list[str]] | None:
    """nvidia-smi's answer, a row a line; None where it has none."""
    only = [] if index is None else [f"--id={index}"]
    text = _run(f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits", *only)
    if text is None:
        return None
    return [[value.strip() for value in line.split(",")] for line in text.splitlines() if line.strip()]


def _run(*arguments: str) -> str | None:
    try:
        return subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, encoding="utf-8", errors="replace", timeout=20, check=True
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
