"""What `nvidia-smi` shows, sampled while a loop runs. Utilisation is the share of the driver's sample interval with
at least one kernel running: it says nothing about how much of the device those kernels use."""

from __future__ import annotations

import statistics
import threading
import time
from types import TracebackType
from typing import NamedTuple

from overhead.machine import gpus
from overhead.profiles.summary import ProfileError

FASTEST_S = 0.005
READINGS = [name for name in gpus.State._fields if name != "held_back"]


class Sample(NamedTuple):
    """One reading of the driver."""

    time_s: float  # since the sampler started
    state: gpus.State


class NvmlSampler:
    """Samples one GPU in a thread: `with NvmlSampler() as sampler: ...`, then `sampler.samples`.

    `device` is nvidia-smi's number (None: the GPU that a worker is given, by CUDA_VISIBLE_DEVICES).
    Raises `ProfileError` on a host without NVIDIA's driver or without the nvidia-ml-py package.
    """

    def __init__(self, device: int | None = None, interval_s: float = 0.02) -> None:
        if not interval_s >= FASTEST_S:
            raise ProfileError(f"interval_s must be at least {FASTEST_S} s, got {interval_s}")
        self.interval_s = interval_s
        self.samples: list[Sample] = []
        self._gpu = gpus.Library(device)
        self._stop = threading.Event()

    def __enter__(self) -> NvmlSampler:
        try:
            self._gpu.__enter__()
        except gpus.NoDriver as error:
            raise ProfileError(str(error)) from None
        self._began = time.perf_counter()
        self._thread = threading.Thread(target=self._sample, name="nvml-sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._keep()
        self._gpu.__exit__()

    def _sample(self) -> None:
        while not self._stop.wait(self.interval_s):
            self._keep()

    def _keep(self) -> None:
        self.samples.append(Sample(time.perf_counter() - self._began, self._gpu.state()))


def medians(samples: list[Sample]) -> dict[str, float | None]:
    """The median of each reading over the samples that have it; None of none."""
    found: dict[str, float | None] = {}
    for field in READINGS:
        values = [value for sample in samples if (value := getattr(sample.state, field)) is not None]
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
