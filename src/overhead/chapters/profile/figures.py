"""How chapter 4 draws a timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from overhead.showing.figures import Figure, colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def lanes(rows: pd.DataFrame, unit: str, alt: str) -> Figure:
    """Intervals to scale, a lane a thread, stream or range. `rows` as of `profiles.frames.timeline`."""
    names = list(dict.fromkeys(rows["lane"]))
    inks = {"call": "numpy", "kernel": "jax", "copy": "cupy", "memset": "tf", "range": "floor", "op": "jax"}
    kinds = [kind for kind in inks if kind in set(rows["kind"])]
    kinds += [kind for kind in dict.fromkeys(rows["kind"]) if kind not in inks]

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        for kind in kinds:
            for index, name in enumerate(names):
                chosen = rows[(rows["lane"] == name) & (rows["kind"] == kind)]
                spans = [(r.start_us, max(r.end_us - r.start_us, 0.0)) for r in chosen.itertuples()]
                axes.broken_barh(
                    spans, (index - 0.36, 0.72), facecolor=colour(inks.get(kind, "keras"), dark),
                    edgecolor=theme["paper"], lw=0.3,
                )  # fmt: skip
            axes.plot([], [], lw=7, color=colour(inks.get(kind, "keras"), dark), label=kind)
        axes.set_yticks(range(len(names)), [name if len(name) <= 28 else name[:27] + "…" for name in names])
        axes.invert_yaxis()
        axes.set(xlabel=unit, xlim=(0, float(rows["end_us"].max() or 1)))
        axes.grid(axis="y", visible=False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=min(5, len(kinds)), handlelength=1.2)

    return Figure(draw, alt, height=1.5 + 0.42 * max(2, len(names)))
