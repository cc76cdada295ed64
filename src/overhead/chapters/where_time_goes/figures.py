"""How the figures of chapter 3 are drawn: a step as a sum of parts, and what a wait at every dispatch costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from overhead.chapters.where_time_goes.budget import Budget
from overhead.showing import tables
from overhead.showing.figures import COLOURS, Figure, colour, error_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def budgets(found: list[Budget], batch_size: int) -> Figure:
    """A bar a loop, its terms end to end, and a marker where the measured step ends; microseconds a step."""
    names = [budget.backend for budget in found]
    terms = list(dict.fromkeys(term.name for budget in found for term, _ in budget.terms))
    alt = f"Microseconds of a step at batch size {batch_size} as a sum of parts: " + "; ".join(
        f"{b.backend}: " + ", ".join(f"{t.name} {tables.number(i.median)}" for t, i in b.terms)
        + f", measured step {tables.number(b.step.median)}"
        for b in found
    )  # fmt: skip

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        palette = dict(zip(terms, (COLOURS[k][dark] for k in ("tf", "numpy", "jax", "keras", "cupy")), strict=False))
        for row, budget in enumerate(found):
            at = 0.0
            for term, interval in budget.terms:
                width = max(interval.median, 0.0)  # a part measured below nothing has no width
                axes.barh(row, width, 0.62, left=at, color=palette[term.name], edgecolor=theme["paper"], linewidth=0.6)
                at += width
            step = budget.step
            axes.errorbar([step.median], [row], xerr=error_bars([step]), fmt="D",
                          color=theme["ink"], ms=6, capsize=3, mec=theme["paper"])  # fmt: skip
        for term in terms:
            axes.plot([], [], color=palette[term], lw=7, label=term)
        axes.plot([], [], "D", color=theme["ink"], ls="none", label="the step, measured")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set(xlabel=f"microseconds per step (medians; batch size {batch_size})", xlim=(0, None))
        axes.grid(axis="y", visible=False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3, fontsize=9)

    return Figure(draw, alt, height=1.7 + 0.5 * max(len(names), 1))


def spins(frame: pd.DataFrame) -> Figure:
    """Milliseconds that an epoch gains against the wait at each dispatch, a panel a loop, with the line expected."""
    alt = "Milliseconds that an epoch gains by a wait at every dispatch: " + "; ".join(
        f"{row.backend} slope {tables.number(row.slope.median)} of {row.expected:,}" for row in frame.itertuples()
    )
    columns = 3
    lines = -(-max(len(frame), 1) // columns)

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        panels = np.atleast_1d(canvas.subplots(lines, columns)).ravel()
        for panel, row in zip(panels, frame.itertuples(), strict=False):
            x, y = row.points["spin_us"], (row.points["epoch_s"] - row.points["epoch_s"].iloc[0]) * 1e3
            scale, unit = (1e3, "ms") if x.max() > 1e3 else (1.0, "us")
            free = row.hidden_us.median if row.threaded else 0.0
            expected = row.expected * np.maximum(0, x - x.iloc[0] - free) / 1e3
            corner = sorted([*zip(x, expected, strict=True), (x.iloc[0] + max(0.0, free), expected.iloc[0])])
            panel.plot(*(np.array(corner).T / [[scale], [1]]), ls="--", color=theme["faint"], lw=1.2)
            panel.plot(x / scale, y, "o-", color=colour(row.backend, dark), ms=5)
            panel.set_title(
                f"{row.backend}\nslope {tables.number(row.slope.median, 4)} of {row.expected:,}", fontsize=9
            )
            panel.set_xlabel(f"wait at a dispatch ({unit})", fontsize=9)
            panel.tick_params(labelsize=8)
        for panel in panels[::columns]:
            panel.set_ylabel("epoch gains (ms)", fontsize=9)
        for panel in panels[len(frame) :]:
            panel.set_visible(False)

    return Figure(draw, alt, height=0.4 + 2.3 * lines)
