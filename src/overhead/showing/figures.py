"""pandas to Matplotlib: one style, drawn once for light pages and once for dark ones."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from overhead.loops import frameworks
from overhead.records.stats import Interval

if TYPE_CHECKING:  # a host that only measures needs no Matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# One colour a framework (`frameworks.TABLE`), the floor's for what is of none; variants differ by marker.
LIGHT = {"ink": "#1f2328", "faint": "#6e7781", "grid": "#d8dee4", "paper": "#ffffff"}
DARK = {"ink": "#e6edf3", "faint": "#9aa4ae", "grid": "#3a424b", "paper": "#14181e"}
FLOOR = ("#57606a", "#9aa4ae")
COLOURS = {row.shown: row.colours for row in frameworks.TABLE.values()} | {"floor": FLOOR}
FLOOR_IS = {"cpu": "products alone", "gpu": "launch-bound: products and their launches"}
MARKERS = "os^Dv<>pXhP*"
WIDTH_INCHES = 7.2


class Figure:
    """A drawing that shows itself in the page's light or dark mode; elsewhere (and in PNG) in the light one.

    `draw(axes_or_figure, theme)` is called once for each mode; `alt` says in words what the picture shows.
    """

    def __init__(self, draw: Callable[[Canvas, dict[str, str], bool], None], alt: str, height: float = 4.0) -> None:
        self.draw, self.alt, self.height = draw, alt, height

    def _render(self, dark: bool, form: str) -> bytes:
        import matplotlib
        from matplotlib.figure import Figure as Canvas

        theme = DARK if dark else LIGHT
        style: Any = {
            "figure.facecolor": theme["paper"], "axes.facecolor": theme["paper"], "savefig.facecolor": theme["paper"],
            "text.color": theme["ink"], "axes.labelcolor": theme["ink"], "axes.edgecolor": theme["faint"],
            "xtick.color": theme["ink"], "ytick.color": theme["ink"], "grid.color": theme["grid"],
            "axes.grid": True, "grid.linewidth": 0.6, "axes.axisbelow": True, "font.size": 10.5,
            "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
            "svg.fonttype": "none", "svg.hashsalt": "overhead", "font.family": "sans-serif",
            "font.sans-serif": ["DejaVu Sans"], "axes.titlesize": 11, "axes.titlelocation": "left",
        }  # fmt: skip
        with matplotlib.rc_context():
            matplotlib.rcdefaults()  # a matplotlibrc of the reader's own may ask for LaTeX
            matplotlib.rcParams.update(style)
            canvas = Canvas(figsize=(WIDTH_INCHES, self.height), layout="constrained")
            self.draw(canvas, theme, dark)
            out = io.BytesIO()
            metadata: Any = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
            canvas.savefig(out, format=form, dpi=144, metadata=metadata)
        return out.getvalue()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        images = []
        for name, dark in (("light", False), ("dark", True)):
            data = base64.b64encode(self._render(dark, "png")).decode()
            hidden = ' style="display:none"' if dark else ""
            images.append(
                f'<img class="overhead-figure for-{name}"{hidden} alt="{escape(self.alt)}" '
                f'src="data:image/png;base64,{data}">'
            )
        return {"text/html": "\n".join(images), "text/plain": self.alt}


def colour(loop: str, dark: bool) -> str:
    """The colour of a loop's framework, or of the floor."""
    return (FLOOR if loop.startswith("floor") else frameworks.of_loop(loop).colours)[dark]


def marker(loop: str, loops: list[str]) -> str:
    """A marker that tells the variants of one framework apart."""
    family = [name for name in loops if name.partition("-")[0] == loop.partition("-")[0]]
    return MARKERS[family.index(loop) % len(MARKERS)]


def plain_ticks(axis: Any, values: list[int] | None = None) -> None:
    """Plain numbers on a logarithmic axis: 0.1, 1, 10; for batch sizes the sizes themselves."""
    if values:
        axis.set_ticks(values, labels=[f"{v:,}" for v in values])
        axis.set_ticks([], minor=True)
    else:
        from matplotlib import ticker

        axis.set_major_formatter(ticker.FuncFormatter(lambda v, _: f"{v:g}"))
        axis.set_minor_formatter(ticker.NullFormatter())


def label_ends(axes: Axes, ends: list[tuple[float, float, str, str]], height: float) -> None:
    """Names at the right ends of lines, pushed apart so that none covers another. (x, y, text, colour); log y."""
    low, high = np.log10(axes.get_ylim())
    least = 0.052 * (high - low) * 4.0 / height
    placed: list[float] = []
    for x, y, text, ink in sorted(ends, key=lambda end: end[1]):
        at = max(np.log10(y), placed[-1] + least if placed else -np.inf)
        placed.append(at)
        axes.annotate(
            text, (x, y), xytext=(1.03, (at - low) / (high - low)), textcoords=("axes fraction", "axes fraction"),
            va="center", color=ink, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": ink, "lw": 0.5, "alpha": 0.6, "shrinkB": 3},
        )  # fmt: skip


IN_COLOUR = ("keras-fit", "tf-step", "numpy", "jax-step", "jax-epoch", "cupy", "cupy-graph")  # the story's own loops
MOST_IN_COLOUR = 5


def against_batch_size(frame: pd.DataFrame, floor: pd.DataFrame, value: str, unit: str, alt: str) -> Figure:
    """`value` over the floor against batch size, log-log, a line a loop and device, five in colour.

    `frame` as of `tables.epochs_frame` with only the rows to draw; `floor` has batch_size, device and epoch_s. Where a
    size has no floor, seconds are drawn as they are. A size that a loop lacks breaks its line. Lines of a GPU are
    dotted where a CPU's are drawn too.
    """
    several = frame["device"].nunique() > 1
    sizes = sorted(int(size) for size in frame["batch_size"].unique())
    floors = {(row.batch_size, row.device): row.epoch_s for row in floor.itertuples()}
    over = all((row.batch_size, row.device) in floors for row in frame.itertuples())
    timed = list(dict.fromkeys(frame["loop"]))
    told = [name for name in [*IN_COLOUR, *timed] if name in timed][:MOST_IN_COLOUR]

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        label = f"times the floor{unit[unit.find(' (') :] if '(' in unit else ''}" if over else unit
        axes.set(xscale="log", yscale="log", xlabel="batch size (images per step)", ylabel=label)
        ends = []
        groups = list(frame.sort_values("batch_size").groupby(["loop", "device"], sort=False))
        for (loop, device), rows in sorted(groups, key=lambda group: group[0][0] in told):  # colour over grey
            at = np.array([floors[size, device] if over else 1.0 for size in rows["batch_size"]])
            whole = rows.assign(y=rows[value] / at).set_index("batch_size").reindex(sizes)
            ink = colour(str(loop), dark) if loop in told else theme["grid"]
            style: dict[str, Any] = {"color": ink, "ls": ":" if several and device == "gpu" else "-"}
            if loop not in told:
                axes.plot(sizes, whole["y"], marker=".", ms=4, lw=1.0, **style)
                continue
            spans = [(rows[value] - rows["low_s"]) / at, (rows["high_s"] - rows[value]) / at]
            axes.errorbar(rows["batch_size"], rows[value] / at, yerr=spans, fmt="none", ecolor=ink, capsize=3, lw=1.2)
            axes.plot(sizes, whole["y"], marker=marker(str(loop), told), ms=5, lw=1.6, **style)
            last = whole["y"].dropna()
            ends.append((last.index[-1], last.iloc[-1], f"{loop} ({device})" if several else str(loop), ink))
        if over:
            axes.axhline(1.0, ls="--", color=colour("floor", dark), lw=1.4)
            ends.append((sizes[-1], 1.0, "floor (products alone)", colour("floor", dark)))
            from matplotlib.ticker import LogLocator

            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        if len(told) < len(timed):
            axes.plot([], [], color=theme["grid"], marker=".", label="other loops (in the table)")
            axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0))
        plain_ticks(axes.xaxis, sizes)
        plain_ticks(axes.yaxis)
        axes.margins(y=0.08)
        label_ends(axes, ends, 4.6)

    return Figure(draw, alt, height=4.6)


def error_bars(intervals: Iterable[Interval]) -> np.ndarray:
    """The distances from the medians down and up: (2, intervals)."""
    return np.array([(i.median - i.low, i.high - i.median) for i in intervals]).reshape(-1, 2).T


def bars(
    names: list[str], series: dict[str, list[float]], unit: str, alt: str, errors: dict[str, Any] | None = None
) -> Figure:
    """Horizontal bars, a group a name and a bar a series, the value at the end of each; logarithmic unit axis."""

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        thickness = 0.8 / len(series)
        for index, (label, values) in enumerate(series.items()):
            at = np.arange(len(names)) + (index - (len(series) - 1) / 2) * thickness
            spans = errors.get(label) if errors else None
            axes.barh(
                at, values, thickness * 0.92, label=label, color=colour(label, dark),
                xerr=spans, error_kw={"ecolor": theme["ink"], "capsize": 2, "lw": 0.9},
                hatch="////" if "(gpu)" in label else None, edgecolor=theme["paper"], linewidth=0,
            )  # fmt: skip
        axes.set_yticks(np.arange(len(names)), names)
        axes.invert_yaxis()
        axes.set(xscale="log", xlabel=unit)
        axes.grid(axis="y", visible=False)
        plain_ticks(axes.xaxis)
        if len(series) > 1:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(4, len(series)))

    return Figure(draw, alt, height=max(2.4, 0.9 + 0.2 * len(names) * (1 + len(series)) * 0.85))


def dots(
    names: list[str], series: dict[str, list[float]], unit: str, alt: str, errors: dict[str, Any] | None = None
) -> Figure:
    """A row a name (coloured by its framework) and a marker a series, joined by a line; logarithmic unit axis.

    `errors[series]` is the distances below and above: (2, names). A value that is nan is left out.
    """

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        at = np.arange(len(names))
        table = np.array(list(series.values()), dtype=float)  # (series, names)
        inks = [colour(name, dark) for name in names]
        axes.hlines(at, np.nanmin(table, axis=0), np.nanmax(table, axis=0), colors=inks, lw=1.2, alpha=0.6)
        for index, (label, values) in enumerate(series.items()):
            spans = errors.get(label) if errors else None
            axes.errorbar(values, at, xerr=spans, fmt="none", ecolor=theme["ink"], capsize=2, lw=0.9)
            axes.scatter(values, at, s=52, marker=MARKERS[index], c=inks, zorder=3, edgecolors=theme["paper"], lw=0.6)
            axes.plot([], [], MARKERS[index], color=theme["faint"], ls="none", label=label)
        axes.set_yticks(at, names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set(xscale="log", xlabel=unit)
        axes.grid(axis="y", visible=False)
        low, high = axes.get_xlim()
        if high < 100 * low:  # a decade line or two would leave the axis without numbers
            from matplotlib.ticker import LogLocator

            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        plain_ticks(axes.xaxis)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(3, len(series)))

    return Figure(draw, alt, height=max(2.2, 1.2 + 0.42 * len(names)))


def ladder(rungs: list[tuple[str, str, Any, bool]], floors: dict[str, float], unit: str, alt: str) -> Figure:
    """Seconds per epoch, a bar a rung from top to bottom, families set apart, each device's floor as a dashed line.

    `rungs`: (loop, device, Interval in seconds, whether it is the first of its family). `floors`: seconds by device.
    """
    places, at = [], 0.0
    for index, (_, _, _, first) in enumerate(rungs):
        at += 0.55 if first and index else 0.0
        places.append(at)
        at += 1.0

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        several = len({device for _, device, _, _ in rungs}) > 1
        for place, (loop, device, epoch, _) in zip(places, rungs, strict=True):
            errors = [[epoch.median - epoch.low], [epoch.high - epoch.median]]
            axes.barh(
                place, epoch.median, 0.78, color=colour(loop, dark), alpha=0.6 if device == "gpu" else 1.0,
                xerr=errors, error_kw={"ecolor": theme["ink"], "capsize": 2, "lw": 0.9},
            )  # fmt: skip
            axes.annotate(
                f"{epoch.median:.3g} s", (epoch.high, place), xytext=(6, 0), textcoords="offset points", va="center"
            )
        names = [f"{loop} ({device})" if several else loop for loop, device, _, _ in rungs]
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.set(xscale="log", xlabel=unit)
        low = min([epoch.low for _, _, epoch, _ in rungs] + list(floors.values()))
        high = max(epoch.high for _, _, epoch, _ in rungs)
        axes.set_xlim(low / 2, high * 2.2)
        axes.grid(axis="y", visible=False)
        plain_ticks(axes.xaxis)
        for line, (device, floor_s) in enumerate(floors.items()):
            axes.axvline(floor_s, ls="--", color=colour("floor", dark), lw=1.4)
            label = f"floor, {device} ({FLOOR_IS[device]})" if len(floors) > 1 else "floor (products alone)"
            axes.annotate(
                label, (floor_s, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 4 + 14 * line),
                textcoords="offset points", ha="center", color=colour("floor", dark),
            )  # fmt: skip

    return Figure(draw, alt, height=1.2 + 0.32 * at)
