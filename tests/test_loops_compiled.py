"""Compiled loops without a compiler, without a cache folder, and with what an earlier process compiled."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from overhead.loops import Declined, compiled, make
from overhead.problem import data
from overhead.problem.mlp import init
from overhead.problem.workload import Workload

DEFINES = {"OWN": 1, "TILE": 1, "WIDE": 1, "CLASSES": 3}


@pytest.fixture(autouse=True)
def _nothing_remembered():
    compiled.version.cache_clear()
    yield
    compiled.version.cache_clear()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder; skips where there is no compiler."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        compiled.compiler()
    except Declined as reason:
        pytest.skip(str(reason))
    return tmp_path / "overhead" / "compiled"


@pytest.mark.parametrize("name", ["sparse", "blas-epoch"])
def test_without_a_compiler_the_loop_declines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiled, "ZIG", "no_such_package")
    workload = Workload(images=64)
    with pytest.raises(Declined, match=r"needs a C compiler \(cc, gcc, clang, or the Python package .*\), found none"):
        make(name).place(init(workload), data.for_workload(workload), workload)


def test_a_compiler_that_is_named_and_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    with pytest.raises(Declined, match="CC must name a C compiler, got 'no-such-compiler', which is not there"):
        compiled.compiler()


def test_what_was_compiled_is_used_again(cache: Path) -> None:
    first = compiled.load("sparse.c", DEFINES)
    second = compiled.load("sparse.c", DEFINES)
    other = compiled.load("sparse.c", {**DEFINES, "CLASSES": 4})

    assert (first.cached, second.cached, other.cached) == (False, True, False)
    assert first.options == second.options
    assert len(list(cache.iterdir())) == 2


def test_another_process_uses_what_was_compiled_and_the_first_run_compiles(cache: Path) -> None:
    script = (
        "from overhead.loops import compiled, make\nfrom overhead.problem import data, mlp\n"
        "from overhead.problem.workload import Workload\n"
        "w = Workload(layers=(20, 16, 3), images=64)\nloop = make('sparse')\n"
        "state = loop.place(mlp.init(w), data.for_workload(w), w)\nprint(compiled.cache_folder().exists(), end=' ')\n"
        "loop.run(state, 2)\nprint(len(list(compiled.cache_folder().iterdir())))\n"
        f"print(compiled.load('sparse.c', {{**{DEFINES}, 'CLASSES': 6}}).cached)"
    )
    said = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert said == [["False", "1", "False"], ["True", "2", "True"]]


def test_a_cache_that_cannot_be_written_to_costs_the_compilation_only(cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")

    assert compiled.load("sparse.c", DEFINES).functions.epoch
    assert not compiled.load("sparse.c", DEFINES).cached


def test_a_damaged_library_in_the_cache_is_made_anew(cache: Path) -> None:
    compiled.load("sparse.c", {**DEFINES, "CLASSES": 5})
    for path in cache.iterdir():
        os.replace(path, path.with_suffix(".away"))  # it is loaded in this process
        path.write_bytes(b"half of it")

    assert compiled.load("sparse.c", {**DEFINES, "CLASSES": 5}).functions.epoch


def test_a_compiler_that_refuses_says_why(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = tmp_path / "refusing"
    refusing.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo refusing 1.0 && exit 0\necho 'error: no' >&2\nexit 1\n"
    )
    refusing.chmod(refusing.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CC", str(refusing))

    with pytest.raises(Declined, match=r"refusing could not compile sparse\.c: error: no"):
        compiled.load("sparse.c", DEFINES)
    assert list(cache.iterdir()) == []


def test_arrays_begin_at_a_cache_line() -> None:
    for shape in ((3,), (7, 16), (2, 3, 16)):
        array = compiled.aligned(*shape)
        assert array.ctypes.data % 64 == 0
        assert (array.shape, array.dtype, array.any()) == (shape, np.float32, False)
    lanes = compiled.LANES
    assert [compiled.whole(n) for n in (1, lanes, lanes + 1)] == [lanes, lanes, 2 * lanes]


@pytest.mark.parametrize(
    ("flags", "machine", "lanes"),
    [("flags : fma avx2 avx512f", "x86_64", 16), ("flags : fma avx2", "x86_64", 8), ("Features : asimd", "aarch64", 4)],
)
def test_a_vector_is_as_wide_as_a_register(
    flags: str, machine: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "processor", lambda: flags)
    monkeypatch.setattr(compiled.platform, "machine", lambda: machine)
    assert compiled.lanes() == lanes
