"""The processor: its name, instruction sets and caches, on x86 and on ARM."""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# Linux names an ARM core by numbers (MIDR_EL1): its implementer, and the implementer's part. As in util-linux's lscpu.
IMPLEMENTERS = {
    0x41: "ARM",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x50: "APM",
    0x51: "Qualcomm",
    0x53: "Samsung",
    0x61: "Apple",
    0x6D: "Microsoft",
    0xC0: "Ampere",
}
PARTS = {
    0x41: {
        0xD03: "Cortex-A53", 0xD04: "Cortex-A35", 0xD05: "Cortex-A55", 0xD07: "Cortex-A57", 0xD08: "Cortex-A72",
        0xD09: "Cortex-A73", 0xD0A: "Cortex-A75", 0xD0B: "Cortex-A76", 0xD0C: "Neoverse-N1",
        0xD0D: "Cortex-A77", 0xD40: "Neoverse-V1", 0xD41: "Cortex-A78", 0xD42: "Cortex-A78AE",
        0xD44: "Cortex-X1", 0xD46: "Cortex-A510", 0xD47: "Cortex-A710", 0xD48: "Cortex-X2",
        0xD49: "Neoverse-N2", 0xD4D: "Cortex-A715", 0xD4E: "Cortex-X3", 0xD4F: "Neoverse-V2",
        0xD80: "Cortex-A520", 0xD81: "Cortex-A720", 0xD82: "Cortex-X4", 0xD84: "Neoverse-V3",
        0xD85: "Cortex-X925", 0xD87: "Cortex-A725", 0xD8E: "Neoverse-N3",
    },
    0x43: {
        0x0AF: "ThunderX2",
    },
    0x46: {
        0x001: "A64FX",
    },
    0x48: {
        0xD01: "TaiShan-v110", 0xD02: "TaiShan-v120",
    },
    0x4E: {
        0x004: "Carmel",
    },
    0x61: {
        0x022: "Icestorm-M1", 0x023: "Firestorm-M1", 0x032: "Blizzard-M2", 0x033: "Avalanche-M2",
    },
    0xC0: {
        0xAC3: "Ampere-1", 0xAC4: "Ampere-1a",
    },
}  # fmt: skip
SIMD = {
    "AVX-512": "avx512f",
    "AVX2": "avx2",
    "AVX": "avx",
    "SSE": "sse2",
    "SVE2": "sve2",
    "SVE": "sve",
    "NEON": "asimd",
    "NEON (32 bits)": "neon",
}  # widest first, with Linux's name


def cpu_model() -> str:
    """The CPU's name; of an ARM core its implementer and part, by number where they have no name here."""
    return (_values("model name") or [""])[0] or _arm_name() or platform.processor() or platform.machine()


def cpu_flags() -> set[str]:
    """Instruction sets that the CPU offers, as Linux names them; empty elsewhere."""
    return set((_values("flags") or _values("Features") or [""])[0].split())


def best_simd(flags: set[str]) -> str:
    """The widest of SSE, AVX, AVX2 and AVX-512, or of NEON, SVE and SVE2; "unknown" where flags cannot be read."""
    return next((name for name, flag in SIMD.items() if flag in flags), "unknown")


def caches() -> dict[str, int]:
    """Bytes of the data caches that one core sees, by level."""
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if (index / "type").read_text(encoding="utf-8").strip() != "Instruction":
                size = (index / "size").read_text(encoding="utf-8").strip()
                scale = {"K": 1024, "M": 1024**2}.get(size[-1], 1)
                found[f"L{(index / 'level').read_text(encoding='utf-8').strip()}"] = int(size.rstrip("KM")) * scale
        except (OSError, ValueError):
            continue
    return found


def _arm_name() -> str:
    """The names of all kinds of core, in the order of /proc/cpuinfo; empty where it has no numbers of ARM's."""
    names = []
    for implementer, part in zip(_values("CPU implementer"), _values("CPU part"), strict=False):
        try:
            maker, core = int(implementer, 0), int(part, 0)
        except ValueError:
            continue
        name = PARTS.get(maker, {}).get(core, f"part {part}")
        names.append(f"{IMPLEMENTERS.get(maker, f'implementer {implementer}')} {name}")
    return " + ".join(dict.fromkeys(names))


def _values(key: str) -> list[str]:
    """What /proc/cpuinfo says of `key`, a value a core."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return [line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == key]
