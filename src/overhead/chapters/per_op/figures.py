"""How chapter 1's operations are drawn: dots by operation, beside where they would be if time followed arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from overhead.loops.base import STEP_OPS
from overhead.showing import tables
from overhead.showing.figures import MARKERS, Figure, colour, plain_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# What each operation computes, as a reader would write it.
FORMULAS = {
    "z1": "z1 = X W1 + b1",
    "a1": "a1 = max(z1, 0)",
    "z2": "z2 = a1 W2 + b2",
    "softmax": "p = softmax(z2)",
    "dz2": "dz2 = (p − onehot(y)) / n",
    "dw2": "dW2 = a1ᵀ dz2",
    "da1": "da1 = dz2 W2ᵀ",
    "dz1": "dz1 = da1 · [z1 > 0]",
    "dw1": "dW1 = Xᵀ dz1",
    "w1": "W1 −= r dW1",
    "b1": "b1 −= r Σ dz1",
    "w2": "W2 −= r dW2",
    "b2": "b2 −= r Σ dz2",
}


def operations(frame: pd.DataFrame, flops: Mapping[str, int], batch_size: int) -> Figure:
    """A row an operation and a dot a backend, groups set apart, logarithmic microseconds.

    `frame` as of `Frames.frame`; `flops` of each operation. A hollow mark stands where the operation would be if the
    first backend's step were divided by arithmetic alone.
    """
    backends = list(dict.fromkeys(frame["backend"]))
    first = frame[frame["backend"] == backends[0]]
    whole, all_flops = first["median_us"].sum(), sum(flops[op] for op in first["op"])
    alt = (
        f"Microseconds of each operation at batch size {batch_size}. "
        + " ".join(
            f"{backend}: the longest is {rows.loc[rows['median_us'].idxmax(), 'op']} with "
            f"{tables.number(rows['median_us'].max())} us, the shortest {tables.number(rows['median_us'].min())} us."
            for backend, rows in frame.groupby("backend", sort=False)
        )
        + " Time does not follow arithmetic: hollow marks show where each would be if it did."
    )
    places: dict[str, float] = {}
    for op, group in STEP_OPS.items():
        last = list(places)[-1] if places else op
        places[op] = places.get(last, -1.0) + (1.6 if STEP_OPS[last] != group else 1.0)

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        at = [places[op] for op in STEP_OPS]
        spaced = np.linspace(-0.22, 0.22, len(backends)) if len(backends) > 1 else [0.0]
        for (backend, rows), shift, mark in zip(frame.groupby("backend", sort=False), spaced, MARKERS, strict=False):
            errors = [rows["median_us"] - rows["low_us"], rows["high_us"] - rows["median_us"]]
            axes.errorbar(
                rows["median_us"], [places[op] + shift for op in rows["op"]], xerr=errors, fmt=mark, ms=6, capsize=2,
                color=colour(str(backend), dark), label=str(backend),
                markerfacecolor=colour(str(backend), dark), mec=theme["paper"], mew=0.6,
            )  # fmt: skip
        expected = [whole * flops[op] / all_flops for op in STEP_OPS]
        axes.plot(
            expected, at, "o", mfc="none", mec=theme["faint"], ms=8, label=f"{backends[0]}, if time were arithmetic"
        )
        axes.set_yticks(at, [FORMULAS[op] for op in STEP_OPS])
        axes.invert_yaxis()
        axes.set(xscale="log", xlabel=f"microseconds (median, 95 % interval; batch size {batch_size})")
        plain_ticks(axes.xaxis)
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2, fontsize=9)

    return Figure(draw, alt, height=5.6)
