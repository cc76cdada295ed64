"""Figures of the chapter on predictions. What is modelled says so in its title and in its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from overhead.model.atlas import WITHIN
from overhead.model.check import Checked
from overhead.showing.figures import MARKERS, Figure, colour, marker, plain_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# Light pages and dark ones. Fitted, held out, and known by a census alone differ by colour and marker.
INKS = (("#8c959f", "#6e7781"), ("#0072B2", "#56B4E9"), ("#D55E00", "#FF9A56"))
HIT, MISS, SET = ("#0072B2", "#56B4E9"), ("#D55E00", "#FF9A56"), ("#8c959f", "#6e7781")
CPU_WINS, GPU_WINS = "#D55E00", "#0072B2"


def against(points: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """Predicted seconds a step against measured ones, both logarithmic, a series a colour and a marker."""
    everything = [x for series in points.values() for pair in series for x in pair]
    low, high = min(everything) / 1.5, max(everything) * 1.5

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        axes.set(xscale="log", yscale="log", xlabel="predicted, us a step", ylabel="measured, us a step")
        line = np.array([low, high]) * 1e6
        axes.plot(line, line, color=theme["faint"], lw=1)
        axes.fill_between(line, line / 1.25, line * 1.25, color=theme["faint"], alpha=0.15, lw=0)
        for index, (label, series) in enumerate(points.items()):
            if series:
                x, y = np.array(series).T * 1e6
                axes.plot(x, y, MARKERS[index], ls="none", ms=5, alpha=0.85, color=INKS[index][dark], label=label)
        axes.set(xlim=line, ylim=line)
        plain_ticks(axes.xaxis)
        plain_ticks(axes.yaxis)
        axes.legend(loc="upper left", fontsize=9)

    told = "; ".join(f"{label}: {len(series)}" for label, series in points.items())
    alt = f"Predicted against measured microseconds a step, logarithmic; the band is 25 % to either side. {told}"
    return Figure(draw, alt, height=4.8)


def residuals(found: Sequence[Checked]) -> Figure:
    """Measured over predicted against batch size, with what the 90 % interval allowed; 1 is right."""
    loops = list(dict.fromkeys(c.loop for c in found))

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        axes.set(xscale="log", yscale="log", xlabel="batch size", ylabel="measured / predicted")
        axes.axhline(1.0, color=theme["faint"], lw=1)
        for index, loop in enumerate(loops):
            of = [c for c in found if c.loop == loop]
            x = np.array([c.batch_size for c in of]) * 1.04 ** (index - len(loops) / 2)
            right = np.array([c.predicted_s for c in of])
            axes.vlines(
                x, np.array([c.low_s for c in of]) / right, np.array([c.high_s for c in of]) / right,
                color=theme["faint"], lw=0.8, alpha=0.5,
            )  # fmt: skip
            y = np.array([c.measured_s for c in of]) / right
            axes.plot(x, y, marker(loop, loops), ls="none", ms=5, color=colour(loop, dark), label=loop)
        axes.set_yticks([0.5, 0.8, 1.0, 1.25, 2.0])
        plain_ticks(axes.xaxis)
        plain_ticks(axes.yaxis)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize=9)

    middle = float(np.median([c.measured_s / c.predicted_s for c in found]))
    ends = [c.measured_s / c.predicted_s for c in found]
    alt = f"Measured over predicted of {len(found)} hold-outs: median {middle:.2f}, {min(ends):.2f} to {max(ends):.2f}"
    return Figure(draw, alt, height=4.6)


def crossover_map(by_gpu: Mapping[str, Any], sizes: Sequence[int], widths: Sequence[int]) -> Figure:
    """A panel a modelled GPU: CPU time over GPU time by batch size and hidden width; even at the line."""

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        panels = canvas.subplots(1, len(by_gpu), sharey=True, squeeze=False)[0]
        from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm

        shades = LinearSegmentedColormap.from_list("even", [CPU_WINS, theme["paper"], GPU_WINS])
        shown = None
        for axes, (name, ratios) in zip(panels, by_gpu.items(), strict=True):
            value = np.log2(ratios)
            shown = axes.imshow(value, origin="lower", aspect="auto", cmap=shades, norm=TwoSlopeNorm(0.0, -4.0, 4.0))
            for (i, j), x in np.ndenumerate(ratios):
                if np.isfinite(x):
                    ink = theme["ink"] if abs(np.log2(x)) < 2.5 else "#ffffff"
                    axes.text(
                        j, i, f"{x:.0f}" if x >= 10 else f"{x:.2g}", ha="center", va="center", fontsize=7.5, color=ink
                    )
            if np.nanmin(value) < 0 < np.nanmax(value):
                axes.contour(value, levels=[0.0], colors=[theme["ink"]], linewidths=1.2)
            axes.set_title(f"modelled {name}", fontsize=8)
            axes.set_xticks(range(len(sizes)), [f"{s:,}" for s in sizes], rotation=60, fontsize=8)
            axes.set_yticks(range(len(widths)), [f"{w:,}" for w in widths])
            axes.grid(visible=False)
            axes.set_xlabel("batch size")
        panels[0].set_ylabel("hidden width")
        assert shown is not None
        bar = canvas.colorbar(shown, ax=list(panels), ticks=[-4, -2, 0, 2, 4], label="CPU time / modelled GPU time")
        bar.ax.set_yticklabels(["1/16", "1/4", "1", "4", "16"])

    told = []
    for name, ratios in by_gpu.items():
        wins = [f"width {w:,} from batch size {_from(row, sizes)}" for w, row in zip(widths, ratios, strict=True)]
        told.append(f"{name}: the GPU wins at {', '.join(wins)}")
    alt = f"Modelled, not measured: where a GPU would win. {'; '.join(told)}"
    return Figure(draw, alt, height=3.6)


def _from(row: Any, sizes: Sequence[int]) -> str:
    at = len(sizes)
    while at and row[at - 1] > 1:
        at -= 1
    return f"{sizes[at]:,} on" if at < len(sizes) else "none"


def atlas_dots(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A row an entry: the source's own range as a bar, the modelled epoch as a dot, a miss as a cross."""

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        axes.set(xscale="log", xlabel="seconds an epoch")
        for place, row in enumerate(rows):
            axes.plot([row["low_s"], row["high_s"]], [place, place], "|-", color=theme["ink"], lw=2.2, ms=8)
            used, within = row["use"] != "predict", row["off"] <= WITHIN
            ink, form = (SET, "s") if used else (HIT, "o") if within else (MISS, "X")
            axes.plot(row["predicted_s"], place, form, color=ink[dark], ms=7)
        for label, ink, form in (
            ("modelled, sets the host or tells a direction", SET, "s"), ("modelled, within", HIT, "o"),
            ("modelled, a miss", MISS, "X"),
        ):  # fmt: skip
            axes.plot([], [], form, ls="none", color=ink[dark], label=label)
        axes.plot([], [], "|-", color=theme["ink"], lw=2.2, label="published")
        axes.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=9)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        plain_ticks(axes.xaxis)
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2, fontsize=9)

    misses = [row["name"] for row in rows if row["use"] == "predict" and row["off"] > WITHIN]
    alt = f"Modelled against published seconds an epoch of {len(rows)} entries; misses: {', '.join(misses) or 'none'}"
    return Figure(draw, alt, height=1.4 + 0.27 * len(rows))
