"""Variables that change what is measured, as a page may show them: numbers, flags and known words, nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping

from overhead.loops import frameworks as known

# Recorded with every record when they are set.
TELLING = (
    *("OMP_", "OPENBLAS_", "MKL_", "BLIS_", "GOTO_", "NPROC", "ONEDNN_", "DNNL_", "MALLOC_", "GLIBC_TUNABLES"),
    *("CUDA_VISIBLE", "NVIDIA_TF32"),
    *(beginning for row in known.TABLE.values() for beginning in row.variables),
)
# What a setting of these libraries may say. A value that holds anything else (an address, a token) is not shown.
WORDS = """
    true false yes no on off none null auto default high highest all cpu gpu cuda rocm tpu numpy jax torch
    tensorflow cub cutensor cuda_malloc_async platform bfc float16 bfloat16 float32 float64 tensorfloat32 tf32
    bf16_bf16_f32 channels_last channels_first close spread master primary threads cores sockets static
    dynamic guided passive active intel gnu tbb sequential sse sse2 sse3 ssse3 sse41 sse42 sse4_1 sse4_2 avx
    avx2 avx2_vnni avx512 avx512f avx512cd avx512_skx avx512_clx avx512_cnl avx512_icl avx512_spr avx512_core
    avx512_core_vnni avx512_core_bf16 avx512_core_fp16 avx512_core_amx avx10_1_512 fma3 x86_v2 x86_v3 x86_v4
    neon sve neoversen1 neoversev1 armv8 prescott core2 penryn dunnington nehalem barcelona athlon atom
    sandybridge bulldozer piledriver haswell zen excavator steamroller skylakex cooperlake sapphirerapids
"""
KNOWN = frozenset(re.findall(r"\S+", WORDS))
FLAG = r"(?:--(?:tf_)?xla_[a-z0-9_]{1,80}|glibc\.[a-z]{1,20}(?:\.[a-z_]{1,40})*)"
NUMBER = r"[-+]?\d{1,12}(?:\.\d{1,6})?[KkMmGg]?(?:-\d{1,4})?"
SETTING = re.compile(rf"(?:({FLAG})(?:=|$))?(.*)", re.S)


def shown(value: str) -> str:
    """`value` where it is made of numbers, flags and known words; else what kind of thing is not shown."""
    if re.search(r"\b(GPU|MIG)-", value):
        return "(a UUID)"
    if "/" in value or "\\" in value:
        return "(a path)"
    between = r"[\s,:]+" if value.startswith("glibc.") else r"[\s,]+"
    return value if all(_harmless(part) for part in re.split(between, value)) else "(set)"


def _harmless(part: str) -> bool:
    found = SETTING.fullmatch(part)
    said = found[2] if found else part
    return not said or said.lower() in KNOWN or re.fullmatch(NUMBER, said) is not None


def telling_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Variables that change what is measured, each value as `shown` lets it through."""
    return {name: shown(value) for name, value in sorted(env.items()) if name.startswith(TELLING)}
