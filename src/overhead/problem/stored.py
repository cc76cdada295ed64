"""A split as files: written once by the caller, mapped by every process that trains on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from overhead.problem.data import Split, in_floats


def save_split(folder: Path, split: Split) -> None:
    """Write a split for `load_split`."""
    for part in ("x", "y", "x_val", "y_val"):
        np.save(folder / f"{part}.npy", getattr(split, part))
    (folder / "name").write_text(split.name, encoding="utf-8")


def load_split(folder: Path) -> Split:
    """The arrays of `save_split`, memory-mapped: nothing is copied until a loop places them. Bytes are scaled."""
    arrays = [np.load(folder / f"{part}.npy", mmap_mode="r") for part in ("x", "y", "x_val", "y_val")]
    return in_floats(Split(*arrays, name=(folder / "name").read_text(encoding="utf-8")))
