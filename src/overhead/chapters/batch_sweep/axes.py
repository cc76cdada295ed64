"""The points that chapter 5 measures: what a preset stands for, and what its parameters may ask for."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, TypeAdapter

from overhead.chapters.base import BatchSizes, a_list
from overhead.loops import LOOPS

AUTO = "auto"  # the preset's
PER_IMAGE, VALIDATED = "numpy-per-image", "keras-fit-validated"
QUICK_LOOPS = ("numpy", PER_IMAGE, "keras-fit", VALIDATED, "jax-step", "jax-epoch")
QUICK_REMAINDER = ("numpy", "jax-epoch")  # with the other remainder policy
QUICK_ON_GPU = ("cupy", "cupy-graph", "cupy-graph-epoch", "cupy-persistent")
MORE_LOOPS = (
    "jax-epoch-tuned",
    "keras-fit-tuned",
    "keras-jax-fit",
    "tf-step",
    "tf-epoch",
    "numpy-preallocated",
    "blas-epoch",
    "cupy-per-image",
)


HEADLINE_LOOPS = ("numpy", "jax-step", "jax-epoch", "keras-fit")  # in several processes in quick too


class Axes(NamedTuple):
    """The points that a preset measures where the parameters leave them open."""

    batch_sizes: tuple[int, ...]
    loops: tuple[str, ...]


AXES = {
    "quick": Axes((32, 512, 4096), QUICK_LOOPS + QUICK_ON_GPU),
    "workshop": Axes((32, 128, 512, 2048, 4096), QUICK_LOOPS + QUICK_ON_GPU + MORE_LOOPS),
    "full": Axes((32, 64, 128, 256, 512, 1024, 2048, 4096), QUICK_LOOPS + QUICK_ON_GPU + MORE_LOOPS),
}


def _sizes(value: Any) -> list[Any]:
    return [AUTO] if value in (AUTO, [AUTO]) else TypeAdapter(BatchSizes).validate_python(value)


def _loops(value: Any) -> list[str]:
    if value in (AUTO, [AUTO]):
        return [AUTO]
    names = a_list([value] if isinstance(value, str) and value in LOOPS else value, "[numpy, jax-epoch]")
    for name in names:
        if not isinstance(name, str) or name not in LOOPS:
            raise ValueError(f"must be of {', '.join(LOOPS)}, got {name!r}")
        if LOOPS[name].less_arithmetic:  # the floor of this chapter is that of dense loops
            raise ValueError(f"must be loops that multiply by every pixel, got {name!r}; `overhead bench` times it")
    return list(dict.fromkeys(names))


Loops = Annotated[list[str], BeforeValidator(_loops)]
Sizes = Annotated[list[Any], BeforeValidator(_sizes)]
