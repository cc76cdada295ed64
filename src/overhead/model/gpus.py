"""GPUs that are not here, from published figures. What is predicted with them is *modelled*, and said to be so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple


class Given(NamedTuple):
    """A constant, where it stands, when that was read or measured, and whether it is another device's."""

    value: float
    source: str
    date: str
    interpolated: bool = False  # of a device of the same kind, or between two


class Gpu(NamedTuple):
    """What the replay takes of a device. Seconds and units a second."""

    name: str
    driver: Literal["linux", "windows-wddm", "unknown"]  # what the launch figures were measured under
    flops_per_s: float  # float32 products at best
    bytes_per_s: float  # of its memory
    launch_s: float  # the host's enqueue of one kernel or graph
    kernel_s: float  # the least time between the starts of two kernels that follow each other
    copy_s: float  # a small copy from the host
    copy_bytes_per_s: float  # pageable, to the device
    synchronise_s: float  # a wait for the device that has nothing to do
    python_op_s: float  # an operator called from CuPy, on the host
    half: float  # rows, columns or depth at which a product reaches half its rate in that direction
    uncertainty: float  # of launches and rates: the interval takes them so much larger and smaller
    given: dict[str, Given]

    def saturation(self, m: float, n: float, k: float) -> float:
        return m / (m + self.half) * (n / (n + self.half)) * (k / (k + self.half))


_GRAPHS = "NVIDIA blog, Getting Started with CUDA Graphs (V100: 9.6 us a step with a wait, 3.8 overlapped)"
_H100 = "medians of cudaLaunchKernel and cudaStreamSynchronize in a public H100 nsys export"
_NVBENCH = "NVBench logs in R100001/Programming-Massively-Parallel-Processors"
_GDR = "NVIDIA/gdrcopy README: small cudaMemcpy 6 to 7 us"
_CUPY = "cupy/cupy#3298: an elementwise call takes 11 us on the host"
_T4 = "a public catalogue of T4 measurements: 6.9 GB/s to the device, pageable"


def _gpu(
    name: str, tflops: float, gb_per_s: float, sheet: str, sheet_date: str, launch: Given, kernel: Given,
    driver: Literal["linux", "windows-wddm", "unknown"] = "linux", half: float = 64.0,
) -> Gpu:  # fmt: skip
    given = {
        "flops_per_s": Given(tflops * 1e12, sheet, sheet_date),
        "bytes_per_s": Given(gb_per_s * 1e9, sheet, sheet_date),
        "launch_s": launch,
        "kernel_s": kernel,
        "copy_s": Given(6.5e-6, _GDR, "2024", interpolated=True),
        "copy_bytes_per_s": Given(6.9e9, _T4, "2026-06", interpolated=name != "T4"),
        "synchronise_s": Given(6.4e-6, _H100, "2026", interpolated=not name.startswith("H")),
        "python_op_s": Given(11e-6, _CUPY, "2020", interpolated=True),
        "half": Given(half, "assumed: a tile of cuBLAS is 64 to 128 wide", "2026", interpolated=True),
    }
    return Gpu(name, driver, **{k: v.value for k, v in given.items()}, uncertainty=0.3, given=given)


_LAUNCH_V100 = Given(2.7e-6, "ahrefs/ocannl#488: empty kernels, enqueue 2.6 to 2.8 us", "2026", interpolated=True)
_LAUNCH_H100 = Given(5.4e-6, _H100, "2026")
_KERNEL_V100 = Given(3.8e-6, _GRAPHS, "2019", interpolated=True)
_KERNEL_3060 = Given(5.15e-6, f"{_NVBENCH}: back to back 5.1 to 5.2 us", "2023")
_KERNEL_H100 = Given(1.3e-6, "Hazy Research, Look Ma, No Bubbles: gap inside a graph on H100", "2025")

GPUS: tuple[Gpu, ...] = (
    _gpu("Quadro RTX 5000", 11.2, 448, "NVIDIA Quadro RTX 5000 data sheet", "2018",
         _LAUNCH_V100, _KERNEL_V100, driver="unknown"),
    _gpu("T4", 8.1, 320, "NVIDIA T4 Tensor Core GPU data sheet", "2019", _LAUNCH_V100, _KERNEL_V100),
    _gpu("P100", 9.3, 732, "NVIDIA Tesla P100 PCIe 16 GB data sheet", "2016", _LAUNCH_V100, _KERNEL_V100),
    _gpu("RTX 3060", 12.7, 360, "NVIDIA GeForce RTX 3060 specifications", "2021",
         Given(5.15e-6, f"{_NVBENCH}: back to back 5.1 to 5.2 us", "2023"), _KERNEL_3060, driver="unknown"),
    _gpu("A100", 19.5, 1555, "NVIDIA A100 Tensor Core GPU Architecture whitepaper", "2020",
         _LAUNCH_H100._replace(interpolated=True), _KERNEL_H100._replace(interpolated=True), half=96.0),
    _gpu("H100", 66.9, 3352, "NVIDIA H100 Tensor Core GPU Architecture whitepaper", "2022",
         _LAUNCH_H100, _KERNEL_H100, half=128.0),
    _gpu("H200", 67.0, 4800, "NVIDIA H200 Tensor Core GPU specifications", "2024",
         _LAUNCH_H100._replace(interpolated=True), _KERNEL_H100._replace(interpolated=True), half=128.0),
)  # fmt: skip


def preset(name: str) -> Gpu:
    """The GPU called `name`; case does not matter. Raises `ValueError`, listing the known, for another."""
    known = {gpu.name.casefold(): gpu for gpu in GPUS}
    found = known.get(name.strip().casefold())
    if found is None:
        near = get_close_matches(name.casefold(), known, n=1, cutoff=0.6)
        hint = f"; did you mean {known[near[0]].name}?" if near else ""
        raise ValueError(f"--gpu must be one of {', '.join(g.name for g in GPUS)}, got {name!r}{hint}")
    return found


YOURS = "your GPU"
NEEDED = ("flops_per_s", "bytes_per_s")
CONSTANTS = tuple(GPUS[0].given)


def changed(base: Gpu | None, given: Sequence[str]) -> Gpu:
    """`base` with other constants, each as "NAME=VALUE"; without one, a GPU of these and, for the rest, of T4's.

    Raises `ValueError` naming the constant for one that is none, for a value that is no number above 0, and without a
    base where one of `NEEDED` is missing.
    """
    values: dict[str, float] = {}
    for text in given:
        name, _, number = text.partition("=")
        if name not in CONSTANTS:
            raise ValueError(f"--gpu-constant must be one of {', '.join(CONSTANTS)} with =VALUE, got {text!r}")
        try:
            values[name] = float(number)
        except ValueError:
            values[name] = math.nan
        if not 0 < values[name] < math.inf:
            raise ValueError(f"--gpu-constant {name} must be a number above 0, got {number!r}")
    if base is None and (missing := [name for name in NEEDED if name not in values]):
        raise ValueError(f"--gpu-constant needs {', '.join(missing)} where no --gpu is named, got {', '.join(values)}")
    of = base or preset("T4")
    told = {name: Given(value, "given as an option", "now") for name, value in values.items()}
    fields: dict[str, Any] = {"name": of.name if base else YOURS, "given": {**of.given, **told}, **values}
    return of._replace(**fields)
