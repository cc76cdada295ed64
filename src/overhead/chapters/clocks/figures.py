"""How the figures of chapter 0 are drawn, from intervals and samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from overhead.records.stats import Interval, verdict
from overhead.showing.figures import COLOURS, MARKERS, Figure, colour, plain_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

ARM_A, ARM_B = COLOURS["numpy"], COLOURS["jax"]
DIFFERENT = COLOURS["jax"]


def histogram(nanoseconds: Sequence[float], unit: str, alt: str) -> Figure:
    """How often each length was shown, up to the longest but one in a hundred; the count on a logarithmic axis."""

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        values, times = np.unique(np.round(nanoseconds), return_counts=True)
        shown = values <= max(np.quantile(nanoseconds, 0.99), values[0])
        axes.vlines(values[shown], 0.8, times[shown], color=ARM_A[dark], lw=5)
        median = float(np.median(nanoseconds))
        axes.axvline(median, color=theme["ink"], ls="--", lw=1)
        axes.annotate(f"median {median:.0f}", (median, 1), xytext=(5, -10), textcoords="offset points",
                      xycoords=("data", "axes fraction"), color=theme["ink"])  # fmt: skip
        axes.set(yscale="log", xlabel=unit, ylabel=f"of {len(nanoseconds):,} pairs")
        axes.set_xlim(0, 1.15 * float(values[shown].max()))
        plain_ticks(axes.yaxis)

    return Figure(draw, alt, height=2.9)


def intervals(groups: Mapping[str, Sequence[Interval]], unit: str, alt: str) -> Figure:
    """Ratios with their 95 % intervals in order of size, a panel a group; what is called different stands out."""

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        shown = {name: sorted(found) for name, found in groups.items() if found}
        widths = [max(9, len(found)) for found in shown.values()]
        panels = canvas.subplots(1, len(shown), sharey=True, squeeze=False, width_ratios=widths)[0]
        for axes, (name, found) in zip(panels, shown.items(), strict=True):
            for at, ratio in enumerate(found):
                ink = ARM_A[dark] if verdict(ratio) == "no difference shown" else DIFFERENT[dark]
                mark = "o" if verdict(ratio) == "no difference shown" else "D"
                axes.vlines(at, ratio.low, ratio.high, color=ink, lw=1.3)
                axes.plot(at, ratio.median, mark, color=ink, ms=3.5)
            axes.axhline(1, color=theme["ink"], lw=0.9)
            axes.set_title(name)
            axes.set_xticks([])
            axes.set_xlim(-1, max(len(found), 8))
        panels[0].set_ylabel(unit)
        every = [ratio for found in shown.values() for ratio in found]
        if every:  # a few wild intervals may leave the picture, so that the others can be seen
            low, high = np.quantile([r.low for r in every], 0.1), np.quantile([r.high for r in every], 0.9)
            panels[0].set_ylim(1 - 1.2 * max(1 - low, 0.005), 1 + 1.2 * max(high - 1, 0.005))

    return Figure(draw, alt, height=3.4)


def recovered(found: Mapping[int, Sequence[Interval]], alt: str) -> Figure:
    """Slowdowns in percent, measured against injected, with 95 % intervals and the line on which they should lie."""

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        axes.plot([0, 11], [0, 11], color=theme["faint"], lw=1, ls="--")
        for percent, trials in found.items():
            for at, ratio in enumerate(trials):
                x = percent + 0.12 * (at - (len(trials) - 1) / 2)
                middle, low, high = (100 * (value - 1) for value in ratio[:3])
                axes.errorbar(x, middle, [[middle - low], [high - middle]], fmt="o", ms=4, capsize=3, color=ARM_A[dark])
        axes.annotate("what was injected", (10.2, 10.2), xytext=(-6, 6), textcoords="offset points", ha="right",
                      color=theme["faint"])  # fmt: skip
        axes.set(xlabel="busy wait injected (percent of a sample)", ylabel="slowdown found (percent, 95 % interval)")
        axes.set_xticks(list(found))

    return Figure(draw, alt, height=3.4)


def schedules(samples: Mapping[str, tuple[Sequence[float], Sequence[float], bool]], alt: str) -> Figure:
    """Milliseconds of both arms in the order in which they were taken, a panel a schedule.

    A schedule is the samples of the two arms and whether they took turns.
    """

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        panels = canvas.subplots(1, len(samples), sharey=True, squeeze=False)[0]
        for axes, (title, (a, b, turns)) in zip(panels, samples.items(), strict=True):
            order = [2 * np.arange(len(a)), 2 * np.arange(len(b)) + 1]
            if not turns:
                order = [np.arange(len(a)), len(a) + np.arange(len(b))]
            for name, at, arm, ink, mark in zip("ab", order, (a, b), (ARM_A, ARM_B), "os", strict=True):
                axes.plot(at, np.multiply(arm, 1e3), mark, ms=3.2, color=ink[dark], label=f"arm {name}")
            axes.set_title(title)
            axes.set(xlabel="samples in the order they were taken", yscale="log")
            from matplotlib.ticker import LogLocator

            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            plain_ticks(axes.yaxis)
        panels[0].set_ylabel("milliseconds a sample")
        panels[-1].legend(loc="best", handletextpad=0.2)

    return Figure(draw, alt, height=3.6)


def runs(series: Mapping[str, Sequence[float]], unit: str, alt: str) -> Figure:
    """Times of the first run and of later ones, in order, a line a contestant; logarithmic."""

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        for at, (name, values) in enumerate(series.items()):
            axes.plot(range(1, len(values) + 1), values, marker=MARKERS[at], ms=4.5, lw=1.2, color=colour(name, dark),
                      label=name)  # fmt: skip
        longest = max(map(len, series.values()), default=1)
        axes.set_xticks(range(1, longest + 1), ["first", *(str(n) for n in range(2, longest + 1))])
        axes.set(yscale="log", xlabel="run of the same program in the same process", ylabel=unit)
        plain_ticks(axes.yaxis)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(4, len(series)))

    return Figure(draw, alt, height=3.4)
