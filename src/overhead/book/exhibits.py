"""The pages of the loops: every file that was timed, whole, a page a framework, with a label where a loop begins."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from overhead.loops import FLOORS, LOOPS, MANY, LoopInfo

SHOWN: dict[str, LoopInfo] = {**LOOPS, **FLOORS, **MANY}


class Group(NamedTuple):
    """A page: its title, and the files on it, from `src/overhead/` and without their ending."""

    title: str
    files: tuple[str, ...]


GROUPS = {
    "numpy": Group(
        "Loops in NumPy",
        ("loops/numpy_", "loops/numpy_out", "loops/numpy_many"),
    ),
    "compiled": Group(
        "Loops in C around the library's products",
        ("loops/products", "loops/rows", "loops/compiled"),
    ),
    "sparse": Group("Loops that multiply by no zero", ("loops/sparse", "loops/sparse_many")),
    "jax": Group("Loops in JAX", ("loops/jax_", "loops/jax_many", "loops/rows_jax")),
    "tensorflow": Group(
        "Loops in TensorFlow and Keras",
        ("loops/tensorflow_", "loops/keras_", "loops/keras_many", "loops/keras_xla", "loops/rows_tensorflow"),
    ),
    "cupy": Group(
        "Loops in CuPy", ("loops/cupy_", "loops/cupy_fused", "loops/cupy_graph", "loops/cupy_persistent")
    ),
    "probes": Group(
        "The contract, the clock and the probes",
        (
            "loops/base", "loops/many", "measure/clock", "measure/spin", "measure/probes/__init__",
            "measure/probes/numpy_", "measure/probes/numpy_shapes", "measure/probes/jax_", "measure/probes/jax_shapes",
            "measure/probes/tensorflow_", "measure/probes/tensorflow_shapes", "measure/probes/cupy_",
            "measure/probes/rows",
        ),
    ),
}  # fmt: skip
ALSO_IN_C = {"loops/rows": ("c/rows.c",)}  # what a file compiles that no row of the tables names
INTRO = """(loops)=
# The loops

Every contestant is one class in one file, and does the same arithmetic on the same images in the same order. What
differs is who calls what, and how often. Each file stands whole, from top to bottom, as it ran; {ref}`method` says what
the clock includes.

"""


def group_of(loop: str) -> str | None:
    """The page on which a loop of the tables stands; None for another name."""
    info = SHOWN.get(loop)
    if info is None:
        return None
    return next(name for name, group in GROUPS.items() if f"loops/{info.module}" in group.files)


def address(loop: str) -> str | None:
    """Where a loop begins, as a link from the folder `book/`; None for a name that is no loop of the tables."""
    group = group_of(loop)
    return f"loops/{group}.html#loop-{loop}" if group else None


def pages(root: Path) -> Iterator[tuple[str, str]]:
    """Each page, by its name under `book/`, in Markdown: the overview, then one a group."""
    lines = [INTRO]
    for name, group in GROUPS.items():
        lines.append(f"## {group.title}\n\n{{doc}}`The code <loops/{name}>`\n")
        rows = [(loop, info) for loop, info in SHOWN.items() if group_of(loop) == name]
        if rows:
            lines.append("| loop | what it does | runs on |\n|---|---|---|")
            lines += [f"| [{loop}](loop-{loop}) | {info.does} | {_devices(info)} |" for loop, info in rows]
            lines.append("")
    yield "loops", "\n".join(lines)
    for name, group in GROUPS.items():
        yield f"loops/{name}", f"(loops-{name})=\n# {group.title}\n\n" + "\n".join(_file(root, f) for f in group.files)


def _devices(info: LoopInfo) -> str:
    return " and ".join(device.upper() for device in info.devices)


def _file(root: Path, name: str) -> str:
    path = root / "src" / "overhead" / f"{name}.py"
    parts = [f"## `{path.name}`\n\nIn `src/overhead/{name.rpartition('/')[0]}/`:\n"]
    lines = path.read_text(encoding="utf-8").splitlines()
    starts = class_lines(lines)
    own = {loop: info for loop, info in SHOWN.items() if name == f"loops/{info.module}"}
    rows = {starts[info.cls]: loop for loop, info in own.items() if info.cls in starts}
    begin = 0
    for line, loop in [*sorted(rows.items()), (len(lines), "")]:
        parts.append(_code(lines, begin, line))
        if loop:
            does = SHOWN[loop].does
            parts.append(
                f"(loop-{loop})=\n### {loop}\n\n{does[:1].upper()}{does[1:]}. Runs on: {_devices(SHOWN[loop])}.\n"
            )
        begin = line
    for source in dict.fromkeys([*(part for info in own.values() for part in info.sources), *ALSO_IN_C.get(name, ())]):
        code = (root / "src" / "overhead" / "loops" / source).read_text(encoding="utf-8").rstrip()
        parts.append(f"The file `src/overhead/loops/{source}`:\n\n````{{code-block}} c\n{code}\n````\n")
    return "\n".join(parts)


def class_lines(lines: Sequence[str]) -> dict[str, int]:
    """Where each class of a source begins (0-based, decorators included)."""
    return {
        node.name: min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
        for node in ast.parse("\n".join(lines)).body
        if isinstance(node, ast.ClassDef)
    }


def _code(lines: Sequence[str], begin: int, end: int) -> str:
    while begin < end and not lines[begin].strip():
        begin += 1
    code = "\n".join(lines[begin:end]).rstrip()
    return f"````{{code-block}} python\n:lineno-start: {begin + 1}\n\n{code}\n````\n" if code else ""
