"""Figures of the learning-rate chapter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from overhead.chapters.learning_rates.curves import member
from overhead.records.record import Record
from overhead.showing.figures import MARKERS, Figure, label_ends, plain_ticks
from overhead.showing.tables import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# Okabe and Ito's, one a line; light pages and dark ones.
INKS = [
    ("#0072B2", "#56B4E9"), ("#D55E00", "#FF9A56"), ("#007A5E", "#3FCFA4"), ("#8E4585", "#E39AD0"),
    ("#B8860B", "#F0C95A"), ("#1f2328", "#e6edf3"), ("#C2185B", "#FF80AB"),
]  # fmt: skip
FLOOR_INK = ("#57606a", "#9aa4ae")
MOST_LABELLED = 12


def curves(records: Sequence[Record]) -> Figure:
    """Left: training loss against epoch, a line a rate. Right: accuracy against rate, both kinds of first parameters.

    A diverged rate has no line; it stands as a cross at the lower edge, off the scale of accuracy.
    """
    same = [r for r in records if not member(r)["own_weights"]]
    shown = [r for r in same if member(r)["loss"] and member(r)["loss"][0] is not None]

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        left, right = canvas.subplots(1, 2, width_ratios=[1.15, 1])
        for index, record in enumerate(shown):
            losses = [value for value in member(record)["loss"] if value is not None]
            ink = _ink(index, len(shown), dark)
            label = f"{member(record)['rate']:g}" if len(shown) <= MOST_LABELLED else None
            left.plot(range(1, len(losses) + 1), losses, marker="o", ms=4, lw=1.4, color=ink, label=label)
        left.set(xlabel="epoch", ylabel="mean training loss, nats", title="Loss")
        left.set_ylim(bottom=0)
        epochs = max((len(member(r)["loss"]) for r in records), default=1)
        left.set_xlim(0.7, epochs + 0.3)
        left.xaxis.get_major_locator().set_params(integer=True)
        if shown and len(shown) <= MOST_LABELLED:
            left.legend(title="rate", fontsize=9)
        for own, form, ink in ((False, "o", INKS[0][dark]), (True, "^", INKS[1][dark])):
            alike = [r for r in records if member(r)["own_weights"] is own]
            fine = sorted(
                (member(r)["rate"], 100 * r.val_accuracy[-1]) for r in alike if r.status == "ok" and r.val_accuracy
            )
            label = "own first parameters" if own else "same first parameters"
            if fine:
                right.plot(
                    *zip(*fine, strict=True), form, ls="-" if not own else ":", color=ink, ms=5, lw=1.2, label=label
                )
            bad = [member(r)["rate"] for r in alike if r.status == "diverged"]
            if bad and not own:
                at = right.get_xaxis_transform()
                right.plot(bad, [0.03] * len(bad), "x", color=theme["ink"], ms=7, transform=at, label="diverged")
        right.set(xscale="log", xlabel="learning rate", ylabel="validation accuracy, %", title="After the last epoch")
        plain_ticks(right.xaxis)
        right.margins(y=0.12)
        if right.get_legend_handles_labels()[0]:
            right.legend(fontsize=9, loc="lower center", bbox_to_anchor=(0.55, 0.06))

    told = "; ".join(
        f"rate {member(r)['rate']:g}: "
        + (f"accuracy {100 * r.val_accuracy[-1]:.1f} %" if r.status == "ok" and r.val_accuracy else r.status)
        for r in same[:MOST_LABELLED]
    )
    alt = f"Left: training loss against epoch, one line a learning rate. Right: accuracy against rate. {told}"
    return Figure(draw, alt, height=3.9)


def _ink(index: int, count: int, dark: bool) -> Any:
    if count <= len(INKS):
        return INKS[index][dark]
    import matplotlib

    low, high = (0.25, 1.0) if dark else (0.0, 0.85)
    return matplotlib.colormaps["viridis"](low + (high - low) * index / (count - 1))


def models(frame: pd.DataFrame) -> Figure:
    """Microseconds a model and step against the number of models, log-log, a line an engine and a panel a device."""
    timed = frame[frame["status"] == "ok"] if len(frame) else frame
    devices = list(dict.fromkeys(timed["device"])) if len(timed) else []
    engines = [engine for engine in dict.fromkeys(timed["engine"]) if engine != "floor"] if len(timed) else []
    counts = sorted(int(count) for count in timed["models"].unique()) if len(timed) else []
    height = 4.6

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        panels = np.atleast_1d(canvas.subplots(max(1, len(devices)), 1))
        for axes, device in zip(panels, devices or ["cpu"], strict=True):
            here = timed[timed["device"] == device] if len(timed) else timed
            axes.set(xscale="log", yscale="log", xlabel="models", ylabel="µs a model and step", title=device.upper())
            ends = []
            for engine in [*engines, "floor"]:
                rows = here[here["engine"] == engine].sort_values("models") if len(here) else here
                if not len(rows):
                    continue
                ink = (FLOOR_INK if engine == "floor" else INKS[engines.index(engine) % len(INKS)])[dark]
                axes.errorbar(
                    rows["models"], rows["us"], yerr=[rows["us"] - rows["low_us"], rows["high_us"] - rows["us"]],
                    color=ink, marker=None if engine == "floor" else MARKERS[engines.index(engine)],
                    ls="--" if engine == "floor" else "-", ms=5, capsize=3, lw=1.4,
                )  # fmt: skip
                text = "floor (products)" if engine == "floor" else engine
                ends.append((rows["models"].iloc[-1], rows["us"].iloc[-1], text, ink))
            plain_ticks(axes.xaxis, counts)
            plain_ticks(axes.yaxis)
            axes.margins(y=0.1)
            label_ends(axes, ends, height)

    told = "; ".join(
        f"{row.engine} ({row.device}) at {int(row.models)}: {number(row.us)}"  # type: ignore[arg-type]
        for row in timed.itertuples()
        if math.isfinite(row.us)  # type: ignore[arg-type]
    )
    alt = f"Microseconds a model and step against the number of models, both axes logarithmic, 95 % intervals: {told}"
    return Figure(draw, alt, height=height * max(1, len(devices)))
