"""CUDA C to a program for a GPU without a GPU, by the compiler of `scripts/driver_only.py`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "driver_only.py"


def _script() -> ModuleType:
    spec: Any = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


driver_only: Any = _script()


def compiled_for_hopper(text: str, *options: str) -> tuple[bytes, str]:
    """The program for compute capability 9.0 and what the compiler said; a skip where there is no NVRTC."""
    if driver_only.nvrtc() is None:
        pytest.skip("needs NVRTC (pip install nvidia-cuda-nvrtc-cu12): the kernels are compiled for sm_90")
    return driver_only.compiled(text, *options)
