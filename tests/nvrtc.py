"""CUDA C to a program for a GPU without a GPU: NVIDIA's run-time compiler, from its package or from CUDA's folder."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
from functools import cache
from pathlib import Path

import pytest

NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")


@cache
def library() -> ctypes.CDLL | None:
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [] if spec else [])]
    packaged = [str(path) for name in NAMES for folder in folders for path in folder.glob(f"*/lib/{name}")]
    for name in [*packaged, *NAMES]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def compiled_for_hopper(text: str, *options: str) -> tuple[bytes, str]:
    """The program for compute capability 9.0 and what the compiler said; a skip where there is no NVRTC."""
    nvrtc = library()
    if nvrtc is None:
        pytest.skip("needs NVRTC (pip install nvidia-cuda-nvrtc-cu12): the kernels are compiled for sm_90")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None) == 0
    given = [b"--gpu-architecture=sm_90", *(option.encode() for option in options)]
    status = nvrtc.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    said = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, said)
    assert status == 0, said.value.decode()
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin.raw, said.value.decode()
