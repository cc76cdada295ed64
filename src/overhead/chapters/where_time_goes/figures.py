"""How the figures of chapter 3 are drawn: a step as a sum of parts, and what a wait at every dispatch costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from overhead.chapters.where_time_goes.budget import Budget
from overhead.showing import tables
from overhead.showing.figures import Figure, colour, error_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# Of terms, which are no frameworks: one hue from dark to light, in light mode and in dark; the first is the ink's.
SHADES = (
    ("#0b5394", "#4a90d9", "#9cc3ee", "#d0e2f7"),
    ("#79b8ff", "#388bfd", "#1f6feb", "#12417f"),
)


def budgets(found: list[Budget], batch_size: int) -> Figure:
    """A bar a loop on a scale of its own, its terms end to end with their values, and a marker at the measured step."""
    terms = list(dict.fromkeys(term.name for budget in found for term, _ in budget.terms))
    alt = f"Microseconds of a step at batch size {batch_size} as a sum of parts: " + "; ".join(
        f"{b.backend}: " + ", ".join(f"{t.name} {tables.number(i.median)}" for t, i in b.terms)
        + f", measured step {tables.number(b.step.median)}"
        for b in found
    )  # fmt: skip

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        # A scale a row: on one scale, Keras leaves nothing of the others to be seen.
        panels = np.atleast_1d(canvas.subplots(len(found), 1)).ravel()
        inks = dict(zip(terms, (theme["ink"], *SHADES[dark]), strict=False))
        for panel, budget in zip(panels, found, strict=True):
            at = 0.0
            parts = [(term.name, interval.median, inks[term.name]) for term, interval in budget.terms]
            parts.append(("unexplained", budget.residual.median, theme["grid"]))
            whole = max(budget.step.high, sum(max(us, 0.0) for _, us, _ in parts))
            for _, us, ink in parts:
                width = max(us, 0.0)  # a part measured below nothing has no width
                panel.barh(0, width, 0.5, left=at, color=ink, edgecolor=theme["paper"], linewidth=0.8)
                if width > 0.06 * whole:
                    panel.annotate(f"{us:,.0f}", (at + width / 2, -0.42), ha="center", va="bottom", fontsize=8)
                at += width
            step = budget.step
            panel.errorbar([step.median], [0], xerr=error_bars([step]), fmt="D",
                           color=theme["ink"], ms=5, capsize=3, mec=theme["paper"])  # fmt: skip
            panel.set_title(f"{budget.backend}: {tables.number(step.median)} us a step", fontsize=9)
            panel.set(xlim=(0, 1.03 * whole), ylim=(0.4, -0.75), yticks=[])
            panel.tick_params(labelsize=8)
            panel.grid(axis="y", visible=False)
            panel.spines["left"].set_visible(False)
        panels[-1].set_xlabel(f"microseconds (medians; batch size {batch_size}; each row has a scale of its own)")
        handles = [Patch(color=inks[term], label=term) for term in terms]
        handles += [Patch(color=theme["grid"], label="unexplained")]
        handles += [Line2D([], [], marker="D", color=theme["ink"], ls="none", label="the step, measured")]
        canvas.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=9)

    return Figure(draw, alt, height=1.1 + 0.85 * max(len(found), 1))


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
