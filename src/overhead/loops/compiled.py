"""C compiled at its first use by the compiler that is there, kept on disk between processes where the folder allows."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overhead.loops.base import Declined

COMPILERS = ("cc", "gcc", "clang")
ZIG = "ziglang"  # the Python package that brings a C compiler
OPTIONS = ("-std=gnu11", "-O3", "-fno-strict-aliasing", "-shared", "-fPIC")
LIBRARIES = ("-lm",)
NATIVE = ("-march=native", "-mcpu=native")  # the first is refused by Clang on some ARM, the second by GCC on x86
LIMIT_S = 120  # a compiler that takes longer hangs
ALIGNMENT = 64  # bytes of a cache line and of the widest register
NO_CLASS = -1e30  # the bias of a class that only fills a vector: its probability is 0


class Library(NamedTuple):
    """A loaded library, and what made it."""

    functions: ctypes.CDLL
    compiler: str  # its own first line
    options: str
    cached: bool  # whether an earlier process had compiled it


def compiler() -> list[str]:
    """The command of the C compiler: `CC`, else the first of `COMPILERS`, else Zig's from its Python package.

    Raises `Declined` where there is none.
    """
    named = shlex.split(os.environ.get("CC", ""))
    for command in ([named] if named else [[name] for name in COMPILERS]):
        if found := shutil.which(command[0]):
            return [found, *command[1:]]
    if named:
        raise Declined(f"CC must name a C compiler, got {named[0]!r}, which is not there")
    if importlib.util.find_spec(ZIG):
        return [sys.executable, "-m", ZIG, "cc"]
    raise Declined(f"needs a C compiler ({', '.join(COMPILERS)}, or the Python package {ZIG}), found none")


@lru_cache(maxsize=1)
def version() -> str:
    """The first line that the compiler says of itself. Raises `Declined` where there is none."""
    return _run([*compiler(), "--version"]).stdout.partition("\n")[0].strip()


def load(source: str, defines: Mapping[str, int]) -> Library:
    """The library made of `c/SOURCE` for this processor, from the cache where it holds it. Raises `Declined`."""
    command = compiler()
    folder = resources.files("overhead.loops") / "c"
    text = "".join((folder / part).read_text(encoding="utf-8") for part in ("vectors.h", source))
    wanted = [*OPTIONS, *(f"-D{name}={value}" for name, value in ({"LANES": LANES} | dict(defines)).items())]
    key = "\n".join([text, version(), *command, *wanted, *NATIVE, processor()])
    name = f"{Path(source).stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    with tempfile.TemporaryDirectory(prefix="overhead-", ignore_cleanup_errors=True) as temporary:
        for folder in (cache_folder() or Path(temporary), Path(temporary)):
            for native in NATIVE:
                with suppress(OSError):  # not there, or damaged
                    found = ctypes.CDLL(str(folder / f"{name}{native}.so"))
                    return Library(found, version(), " ".join([*wanted, native]), True)
            if _writable(folder):
                path, native = _compile(command, wanted, text, folder / name)
                return Library(ctypes.CDLL(str(path)), version(), " ".join([*wanted, native]), False)
    raise Declined("needs a folder to compile into: neither the cache nor the temporary folder can be written to")


def cache_folder() -> Path | None:
    """Where libraries lie: `XDG_CACHE_HOME`, else `~/.cache`, and there `overhead/compiled`; None without a home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "overhead" / "compiled"
    except RuntimeError:  # neither HOME nor a line in the password file
        return None


def processor() -> str:
    """What must be the same for a library to be used again: the processor's name and its instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    telling = ("model name", "flags", "CPU part", "Features")
    return "\n".join(sorted({line for line in lines if line.startswith(telling)}))


def lanes() -> int:
    """Floats in a register of this processor: 16 with AVX-512, 8 on other x86, 4 elsewhere."""
    if re.search(r"\bavx512f\b", processor()):
        return 16
    return 8 if platform.machine().lower() in ("x86_64", "amd64", "i686") else 4


LANES = lanes()  # floats in a vector of c/vectors.h


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _compile(command: list[str], options: list[str], text: str, stem: Path) -> tuple[Path, str]:
    """Compile into a file of its own and rename it, so that no other process loads half of it; and the last option."""
    said = ""
    for native in NATIVE:
        descriptor, made = tempfile.mkstemp(dir=stem.parent, suffix=".so")
        os.close(descriptor)
        done = _run([*command, *options, native, "-x", "c", "-", "-o", made, *LIBRARIES], text)
        if done.returncode == 0:
            path = stem.with_name(f"{stem.name}{native}.so")
            os.replace(made, path)
            return path, native
        os.unlink(made)
        said = said or next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
    raise Declined(f"{Path(command[0]).name} could not compile {stem.name.rpartition('-')[0]}.c: {said or 'no reason'}")


def _run(command: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=text, capture_output=True, encoding="utf-8", timeout=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Declined(f"the C compiler {Path(command[0]).name} cannot be run: {error}") from None


def whole(count: int) -> int:
    """`count` filled up to whole vectors."""
    return -(-count // LANES) * LANES


def aligned(*shape: int) -> NDArray[np.float32]:
    """Zeros, float32, that begin at a cache line."""
    size = 4 * math.prod(shape)
    room = np.zeros(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size].view(np.float32).reshape(shape)


def address(array: NDArray) -> ctypes.c_void_p:
    """Where a contiguous array begins."""
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def addresses(arrays: Iterable[NDArray]) -> Any:
    """A C structure of pointers to contiguous arrays."""
    found = [address(array) for array in arrays]
    return (ctypes.c_void_p * len(found))(*found)
