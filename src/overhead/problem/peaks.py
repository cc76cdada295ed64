"""What devices can do at most, as their vendors publish it: dense float32, boost clock, memory bandwidth."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A device's published limits: dense float32 without tensor cores, at the boost clock.

    A boost clock is not the fastest clock that a card ever shows, so even a published peak can be too low:
    see `bounds.share_of_bound`. `aliases` are names that drivers and operating systems report.
    """

    name: str
    kind: Literal["cpu", "gpu"]
    cores: int  # CUDA cores of a GPU, cores of a CPU
    clock_hz: float  # boost
    flops_per_cycle: int  # float32, of one core; a fused multiply-add counts as two
    flops_per_s: float  # the vendor's figure; for a CPU cores · clock · FLOPs a cycle
    bandwidth_bytes_per_s: float  # of the device's main memory
    source: str
    tf32_flops_per_s: float | None = None  # dense, where tensor cores take float32 operands
    url: str | None = None
    aliases: tuple[str, ...] = ()


def _gpu(name: str, cores: int, mhz: float, tflops: float, gb_per_s: float, source: str, url: str,
         tf32_tflops: float | None = None, aliases: tuple[str, ...] = ()) -> Peak:  # fmt: skip
    return Peak(
        name=name,
        kind="gpu",
        cores=cores,
        clock_hz=mhz * 1e6,
        flops_per_cycle=2,
        flops_per_s=tflops * 1e12,
        bandwidth_bytes_per_s=gb_per_s * 1e9,
        source=source,
        tf32_flops_per_s=None if tf32_tflops is None else tf32_tflops * 1e12,
        url=url,
        aliases=aliases,
    )


def _cpu(name: str, cores: int, mhz: float, flops_per_cycle: int, channels: int, mega_transfers: int,
         source: str, url: str, aliases: tuple[str, ...] = ()) -> Peak:  # fmt: skip
    """CPU vendors publish no float32 rate: every core at the maximum boost, which no CPU holds, is the bound.

    Bandwidth: channels · transfers a second · 8 bytes, DDR.
    """
    return Peak(
        name=name,
        kind="cpu",
        cores=cores,
        clock_hz=mhz * 1e6,
        flops_per_cycle=flops_per_cycle,
        flops_per_s=cores * mhz * 1e6 * flops_per_cycle,
        bandwidth_bytes_per_s=channels * mega_transfers * 1e6 * 8,
        source=source,
        url=url,
        aliases=aliases,
    )


_IMAGES = "https://images.nvidia.com/aem-dam"
_DATA_SHEETS = "https://www.nvidia.com/content/dam/en-zz/Solutions"
_TURING = f"{_IMAGES}/en-zz/Solutions/design-visualization/technologies/turing-architecture"
_HOPPER = "https://resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper"

PEAKS: tuple[Peak, ...] = (
    _gpu("Quadro RTX 5000", 3072, 1815, 11.2, 448, "NVIDIA Quadro RTX 5000 data sheet",
         f"{_DATA_SHEETS}/design-visualization/quadro-product-literature/"
         "quadro-rtx-5000-data-sheet-us-nvidia-704120-r4-web.pdf"),
    # The Founders Edition's clock: the reference card's 1545 MHz (13.4 TFLOPS) was seen to be beaten.
    _gpu("RTX 2080 Ti", 4352, 1635, 14.2, 616, "NVIDIA Turing GPU Architecture whitepaper, Founders Edition",
         f"{_TURING}/NVIDIA-Turing-Architecture-Whitepaper.pdf"),
    # The data sheet gives 300 GB/s; 256 bits at 10 GT/s make 320, and the larger keeps the bound a bound.
    _gpu("T4", 2560, 1590, 8.1, 320, "NVIDIA T4 Tensor Core GPU data sheet",
         f"{_DATA_SHEETS}/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf"),
    _gpu("V100 SXM2", 5120, 1530, 15.7, 900, "NVIDIA Tesla V100 GPU Architecture whitepaper",
         "https://images.nvidia.com/content/volta-architecture/pdf/volta-architecture-whitepaper.pdf",
         aliases=("V100-SXM2-16GB", "V100-SXM2-32GB")),
    _gpu("A100 40GB", 6912, 1410, 19.5, 1555, "NVIDIA A100 Tensor Core GPU Architecture whitepaper",
         f"{_IMAGES}/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf",
         tf32_tflops=156, aliases=("A100-SXM4-40GB", "A100-PCIE-40GB")),
    _gpu("A100 80GB SXM", 6912, 1410, 19.5, 2039, "NVIDIA A100 Tensor Core GPU specifications",
         "https://www.nvidia.com/en-us/data-center/a100/",
         tf32_tflops=156, aliases=("A100-SXM4-80GB",)),
    _gpu("A100 80GB PCIe", 6912, 1410, 19.5, 1935, "NVIDIA A100 Tensor Core GPU specifications",
         "https://www.nvidia.com/en-us/data-center/a100/",
         tf32_tflops=156),
    _gpu("RTX 3090", 10496, 1695, 35.6, 936, "NVIDIA Ampere GA102 GPU Architecture whitepaper",
         "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf",
         tf32_tflops=35.6),
    _gpu("RTX 4090", 16384, 2520, 82.6, 1008, "NVIDIA Ada GPU Architecture whitepaper",
         f"{_IMAGES}/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf",
         tf32_tflops=82.6),
    # 120 TFLOPS of TF32 are published with sparsity; dense is half.
    _gpu("L4", 7424, 2040, 30.3, 300, "NVIDIA L4 Tensor Core GPU specifications",
         "https://www.nvidia.com/en-us/data-center/l4/",
         tf32_tflops=60),
    # 1980 and 1755 MHz hold without tensor cores; with them the boost is lower.
    _gpu("H100 SXM", 16896, 1980, 66.9, 3352, "NVIDIA H100 Tensor Core GPU Architecture whitepaper", _HOPPER,
         tf32_tflops=494.7, aliases=("H100 80GB HBM3", "H100 SXM5")),
    _gpu("H100 PCIe", 14592, 1755, 51.2, 2039, "NVIDIA H100 Tensor Core GPU Architecture whitepaper", _HOPPER,
         tf32_tflops=378),
    # 989 TFLOPS of TF32 are published with sparsity; dense is half, as on the H100, the same chip.
    _gpu("H200", 16896, 1980, 67, 4800, "NVIDIA H200 Tensor Core GPU specifications",
         "https://www.nvidia.com/en-us/data-center/h200/",
         tf32_tflops=494.7),
    # AVX2, two 256-bit multiply-adds a cycle.
    _cpu("Core i9-10885H", 8, 5300, 32, 2, 2933, "Intel Core i9-10885H specifications (ARK)",
         "https://ark.intel.com/content/www/us/en/ark/products/203682/"
         "intel-core-i9-10885h-processor-16m-cache-up-to-5-30-ghz.html"),
    # AVX-512, two 512-bit multiply-adds a cycle.
    _cpu("Xeon Platinum 8480+", 56, 3800, 64, 8, 4800, "Intel Xeon Platinum 8480+ specifications (ARK)",
         "https://www.intel.com/content/www/us/en/products/sku/231746/"
         "intel-xeon-platinum-8480-processor-105m-cache-2-00-ghz/specifications.html",
         aliases=("Xeon 8480+",)),
    # Zen 4 takes AVX-512 in two 256-bit halves: two 256-bit multiply-adds a cycle (AMD document 57647).
    _cpu("EPYC 9654", 96, 3700, 32, 12, 4800, "AMD EPYC 9654 specifications",
         "https://www.amd.com/en/products/processors/server/epyc/4th-generation-9004-and-8004-series/"
         "amd-epyc-9654.html"),
)  # fmt: skip


def device(name: str) -> Peak:
    """The published limits of the device called `name`: "Quadro RTX 5000", or what a driver reports for it.

    Case, vendor, "(R)" and the like do not matter. Raises `ValueError` with the nearest names for a device
    that the table does not hold.
    """
    wanted = _plain(name)
    known = {_plain(n): peak for peak in PEAKS for n in (peak.name, *peak.aliases)}
    if wanted in known:
        return known[wanted]
    inside = [n for n in known if wanted and wanted in n]
    near = inside or get_close_matches(wanted, known, n=3, cutoff=0.5) or list(known)
    names = ", ".join(dict.fromkeys(known[n].name for n in near))
    raise ValueError(f"device_model must be one of the {len(PEAKS)} devices known, got {name!r}; try {names}")


def _plain(name: str) -> str:
    """`name` without vendor, marks and clock: "Intel(R) Core(TM) i9-10885H CPU @ 2.40GHz" → "i9-10885h"."""
    plain = re.sub(r"\((r|tm)\)|@.*|\b\d+-core\b", " ", name.casefold())
    words = re.split(r"[\s_]+", plain)
    brands = {"nvidia", "geforce", "tesla", "intel", "amd", "core", "cpu", "gpu", "processor"}
    return " ".join(word for word in words if word and word not in brands)
