"""The table of frameworks, and what stands for one that is not in it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from overhead import loops
from overhead.loops import frameworks
from overhead.machine import gpus
from overhead.measure import probes, worker
from overhead.problem.workload import Workload
from overhead.showing import figures
from overhead.sweep import memory

UNKNOWN = "torchlike"
# What a deuteranope sees of linear RGB (Machado, Oliveira and Fernandes 2009, severity 1), then XYZ (sRGB, D65).
DEUTERANOPE = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def seen(colour: str) -> np.ndarray:
    """CIE L*a*b* of a colour as a deuteranope sees it."""
    xyz = np.array(XYZ) @ np.clip(np.array(DEUTERANOPE) @ linear(colour), 0, 1) / [0.95047, 1.0, 1.08883]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    dim, bright = sorted(float((np.array(XYZ) @ linear(colour))[1]) for colour in (one, other))
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_are_told_apart_by_deuteranopes_and_read_as_text(dark):
    paper = (figures.DARK if dark else figures.LIGHT)["paper"]
    colours = {row.name: row.colours[dark] for row in (*frameworks.TABLE.values(), frameworks.of(UNKNOWN))}
    for name, colour in colours.items():
        assert contrast(colour, paper) >= 4.5, name
    for (one, a), (other, b) in itertools.combinations(colours.items(), 2):
        assert np.linalg.norm(seen(a) - seen(b)) >= 20, (one, other)


@pytest.mark.parametrize("name", [*loops.LOOPS, *loops.MANY])
def test_a_loop_has_the_colour_of_its_framework(name):
    family = "keras" if name.startswith("keras") else (loops.LOOPS.get(name) or loops.MANY[name]).framework
    assert figures.colour(f"{name} (cpu)", False) == frameworks.TABLE[family].colours[0]


def test_every_framework_of_a_loop_has_a_row():
    assert {row.name for row in frameworks.listed()} == set(frameworks.TABLE)


def test_a_framework_without_a_row_is_shown_under_its_own_name_and_nothing_raises():
    row = frameworks.of(UNKNOWN)
    assert (row.shown, row.distributions, row.hint) == (UNKNOWN, (UNKNOWN,), f"pip install {UNKNOWN}")
    assert figures.colour(f"{UNKNOWN}-step (cpu)", True) == row.colours[1] != figures.colour("floor", True)
    assert probes.make(UNKNOWN, "cpu", "rate", Workload()) == []
    assert set(worker.versions(UNKNOWN)) == {"python", "numpy"}
    assert memory.process_bytes(Workload(), UNKNOWN) > memory.process_bytes(Workload(), "jax")


def test_a_loop_of_such_a_framework_is_listed(monkeypatch):
    monkeypatch.setitem(loops.LOOPS, "new", loops.LoopInfo("new_", "New", UNKNOWN, ("cpu",), "…"))
    assert frameworks.listed()[-1] == frameworks.of(UNKNOWN)
    assert frameworks.of_loop("new (cpu)").name == UNKNOWN
    assert UNKNOWN not in gpus.cudas()
