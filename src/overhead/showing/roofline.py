"""The roofline with its third limit, drawn: arithmetic, memory, and the launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from overhead.showing.figures import MARKERS, Figure, colour, plain_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def roofline(frame: pd.DataFrame, ceiling: str, alt: str) -> Figure:
    """Every operation at its intensity and achieved rate, log-log, one colour a library, under three limits.

    `frame` as of `bounds.roofline` with `backend`, `group`, `peak_flops_per_s`, `bandwidth_bytes_per_s` and
    `launch_floor_s`; the roof is that of the first row. The launch limit is FLOPs over the floor (nan: none): it rises
    with the work of an operation, so it is drawn as a short line over each one.
    """

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        peak, bandwidth = frame["peak_flops_per_s"].iloc[0], frame["bandwidth_bytes_per_s"].iloc[0]
        low = frame["intensity_flops_per_byte"].min() / 2
        high = max(frame["intensity_flops_per_byte"].max() * 2, 2 * peak / bandwidth)
        at = np.geomspace(low, high, 200)
        axes.loglog(at, np.minimum(peak, at * bandwidth) / 1e9, color=theme["ink"], lw=1.6, label=f"roof: {ceiling}")
        marks = dict(zip(dict.fromkeys(frame["group"]), MARKERS, strict=False))
        for backend, rows in frame.groupby("backend", sort=False):
            ink = colour(str(backend), dark)
            launch = rows["launch_flops_per_s"] / 1e9
            axes.hlines(launch, rows["intensity_flops_per_byte"] / 1.13, rows["intensity_flops_per_byte"] * 1.13,
                        colors=ink, lw=1.8, alpha=0.7)  # fmt: skip
            for group, of_group in rows.groupby("group", sort=False):
                axes.scatter(of_group["intensity_flops_per_byte"], of_group["achieved_flops_per_s"] / 1e9, s=34,
                             marker=marks[group], color=ink, edgecolors=theme["paper"], lw=0.5, zorder=3)  # fmt: skip
            axes.plot([], [], color=ink, lw=5, label=str(backend))
        for group, mark in marks.items():
            axes.plot([], [], mark, color=theme["faint"], ls="none", label=str(group))
        if frame["launch_flops_per_s"].notna().any():
            axes.plot([], [], color=theme["faint"], lw=1.8, label="launch limit of an op")
        first = frame[frame["backend"] == frame["backend"].iloc[0]]
        place = [float(f"{v:.1e}") for v in first["intensity_flops_per_byte"]]
        for intensity, rows in first.groupby(place):  # one label for the ops at about one intensity
            rows = rows.sort_values("achieved_flops_per_s", ascending=False)
            axes.annotate(
                ", ".join(rows["op"]), (intensity, rows["achieved_flops_per_s"].iloc[0] / 1e9), xytext=(7, 2),
                textcoords="offset points", fontsize=8.5, color=theme["ink"],
            )  # fmt: skip
        axes.set(xlabel="arithmetic intensity (FLOP per byte)", ylabel="achieved GFLOP/s (median)")
        plain_ticks(axes.xaxis)
        plain_ticks(axes.yaxis)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=9)

    return Figure(draw, alt, height=5.4)
