"""What `nvidia-smi` shows, sampled while a loop runs. Utilisation is the share of the driver's sample interval with
at least one kernel running: it says nothing about how much of the device those kernels use."""

from __future__ import annotations

import statistics
import threading
import time
from types import TracebackType
from typing import Any, NamedTuple

from overhead.profiles.summary import ProfileError

FASTEST_S = 0.005


class Sample(NamedTuple):
    """One reading of the driver; None where this device does not report it."""

    time_s: float  # since the sampler started
    utilisation: float | None  # 0 to 1: time with at least one kernel running
    memory_utilisation: float | None  # 0 to 1: time with memory being read or written
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    power_w: float | None
    memory_used_bytes: float | None


class NvmlSampler:
    """Samples one GPU in a thread: `with NvmlSampler() as sampler: ...`, then `sampler.samples`.

    Raises `ProfileError` on a host without NVIDIA's driver or without the nvidia-ml-py package.
    """

    def __init__(self, device: int = 0, interval_s: float = 0.02) -> None:
        if not interval_s >= FASTEST_S:
            raise ProfileError(f"interval_s must be at least {FASTEST_S} s, got {interval_s}")
        self.device, self.interval_s = device, interval_s
        self.samples: list[Sample] = []
        self._stop = threading.Event()

    def __enter__(self) -> NvmlSampler:
        try:
            import pynvml
        except ImportError:
            raise ProfileError("sampling a GPU needs the nvidia-ml-py package") from None
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(self.device)
        except pynvml.NVMLError as error:
            raise ProfileError(f"no NVIDIA GPU {self.device} to sample: {error}") from None
        self._began = time.perf_counter()
        self._thread = threading.Thread(target=self._sample, name="nvml-sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self.samples.append(self._read())
        self._nvml.nvmlShutdown()

    def _sample(self) -> None:
        while not self._stop.wait(self.interval_s):
            self.samples.append(self._read())

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, name)(self._handle, *arguments)
        except self._nvml.NVMLError:  # not supported by this device (MIG, laptops)
            return None

    def _read(self) -> Sample:
        nvml = self._nvml
        used = self._ask("nvmlDeviceGetUtilizationRates")
        power, memory = self._ask("nvmlDeviceGetPowerUsage"), self._ask("nvmlDeviceGetMemoryInfo")
        return Sample(
            time_s=time.perf_counter() - self._began,
            utilisation=None if used is None else used.gpu / 100,
            memory_utilisation=None if used is None else used.memory / 100,
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            power_w=None if power is None else power / 1000,
            memory_used_bytes=None if memory is None else memory.used,
        )


def medians(samples: list[Sample]) -> dict[str, float | None]:
    """The median of each reading over the samples that have it; None of none."""
    found: dict[str, float | None] = {}
    for field in Sample._fields[1:]:
        values = [value for sample in samples if (value := getattr(sample, field)) is not None]
        found[field] = statistics.median(values) if values else None
    return found


def three_shares(
    samples: list[Sample], busy_share: float | None, achieved_flops_per_s: float | None, peak_flops_per_s: float | None
) -> list[tuple[str, float | None, str]]:
    """The three figures that are all called "utilisation": (name, 0 to 1 or None, what it is a share of)."""
    achieved = achieved_flops_per_s / peak_flops_per_s if achieved_flops_per_s and peak_flops_per_s else None
    return [
        (
            "nvidia-smi utilisation",
            medians(samples)["utilisation"],
            "sample intervals with at least one kernel running",
        ),
        ("kernel-busy share", busy_share, "the device's span covered by kernels, copies and memsets (union)"),
        ("achieved share of peak", achieved, "the peak floating-point rate of the device"),
    ]
