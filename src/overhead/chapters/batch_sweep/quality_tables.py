"""Time to a quality as tables: equal epochs and updates, the grid of rates, seconds to the target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from overhead.chapters.batch_sweep.quality import EPOCHS, ON_GRID, TARGET, TIMED, UPDATES
from overhead.chapters.pages import Html, Markdown, plain
from overhead.loops import LOOPS
from overhead.records.levels import over_turns
from overhead.records.record import Record
from overhead.showing import tables
from overhead.showing.claims import HOLDS, first_at
from overhead.showing.figures import COLOURS, Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

GOAL = f"{100 * TARGET:.0f} %"
EVALUATES = ("keras-fit-validated",)  # its own epoch ends with an evaluation


def parts(records: Sequence[Record], part: str) -> list[Record]:
    """The members of one part."""
    return [r for r in records if r.member and r.member.get("part") == part]


def seconds(record: Record) -> list[float]:
    """Seconds from the start to the end of each epoch, training and evaluation."""
    member = record.member or {}
    return np.cumsum(np.add(member["train_s"], member["judge_s"])).tolist()


def reached_s(record: Record) -> float:
    """Seconds to the target; infinite where the epoch limit came first."""
    epoch = (record.member or {})["reached_epoch"]
    return seconds(record)[epoch - 1] if epoch else math.inf


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row a device and batch size: what its seeds took to the target.

    Columns: device, batch_size, rate, seeds, reached (seeds), epochs (median), median_s, p10_s, p90_s (order
    statistics; infinite where so many seeds did not reach it), judge_s (median of an evaluation), limit (epochs).
    """
    rows = []
    timed = [r for r in parts(records, TIMED) if r.status == "ok"]
    for device, size in sorted({(r.device, r.trained.batch_size) for r in timed}):
        runs = [r for r in timed if (r.device, r.trained.batch_size) == (device, size)]
        members = [r.member or {} for r in runs]
        times, epochs = [reached_s(r) for r in runs], [m["reached_epoch"] or math.inf for m in members]
        low, middle, high = np.quantile(times, [0.1, 0.5, 0.9], method="inverted_cdf")
        rows.append(
            {
                "device": device, "batch_size": size, "rate": members[0]["rate"], "seeds": len(runs),
                "reached": sum(map(math.isfinite, times)), "median_s": middle, "p10_s": low, "p90_s": high,
                "epochs": float(np.quantile(epochs, 0.5, method="inverted_cdf")),
                "judge_s": float(np.median([s for m in members for s in m["judge_s"]])),
                "limit": runs[0].trained.epochs,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _time(value: float, limit: int) -> str:
    return tables.number(value) if math.isfinite(value) else f"not within {limit} epochs"


def _nothing(records: Sequence[Record], part: str) -> str:
    """Why a part is missing, in words."""
    reasons = [f"{r.loop} on the {r.device}: {r.reason}" for r in records if r.member and r.status == "failed"]
    reasons += [f"{r.loop} on the {r.device}: {r.reason}" for r in records if r.member and r.status == "declined"]
    return f"Not measured here ({part}{'; ' if reasons else ''}{'; '.join(reasons)})."


def _caption(records: Sequence[Record]) -> str:
    versions: dict[str, str] = {}
    for record in records:
        versions |= record.versions
    threads = ", ".join(str(t) for t in sorted({r.threads for r in records if r.threads}))
    listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return f"784-128-10, last batch dropped, float32, threads {threads}; {listed}"


def table(records: Sequence[Record]) -> Html:
    """Seconds to the target at each batch size, each with its own rate."""
    found = frame(records)
    if found.empty:
        return Html(f"<p>{escape(_nothing(records, TIMED))}</p>")
    rows = [
        {
            "device": row.device,
            "batch size": f"{row.batch_size:,}",
            "learning rate": f"{row.rate:g}",
            "median, s": _time(row.median_s, row.limit),
            "p10, s": _time(row.p10_s, row.limit),
            "p90, s": _time(row.p90_s, row.limit),
            "epochs (median)": f"{row.epochs:g}" if math.isfinite(row.epochs) else _time(row.epochs, row.limit),
            "reached it": f"{row.reached} of {row.seeds} seeds",
        }
        for row in found.itertuples()
    ]
    title = (
        f"Seconds to {GOAL} validation accuracy, evaluation after each epoch included, compilation not; "
        "the seeds are not the one that the rate was chosen with. "
    )
    return Html(tables.as_html(pd.DataFrame(rows), title + _caption(parts(records, TIMED))))


def rates_table(records: Sequence[Record]) -> Html:
    """The grid: what each rate reached at each batch size, and which was chosen."""
    rows = []
    for r in parts(records, ON_GRID):
        member, curve = r.member or {}, r.val_accuracy or []
        if "rate" not in member:
            continue
        epoch = member["reached_epoch"]
        rows.append(
            {
                "device": r.device,
                "batch size": f"{r.trained.batch_size:,}",
                "learning rate": f"{member['rate']:g}",
                "epochs to the target": str(epoch) if epoch else tables.NOT_MEASURED,
                "best accuracy": f"{100 * max(curve):.2f} %" if curve else tables.NOT_MEASURED,
                "after epochs": str(len(curve)),
                "note": "chosen" if member["chosen"] else (r.reason or ""),
            }
        )
    if not rows:
        return Html(f"<p>{escape(_nothing(records, ON_GRID))}</p>")
    title = "All rates of a batch size side by side (vmap), until the first of them met the target. "
    return Html(tables.as_html(pd.DataFrame(rows), title + _caption(parts(records, ON_GRID))))


def updates_table(records: Sequence[Record]) -> Html:
    """Equal epochs beside equal updates: training and validation accuracy at one learning rate."""
    rows = []
    for part in (EPOCHS, UPDATES):
        for r in parts(records, part):
            member = r.member or {}
            if "updates" not in member:  # nothing came of it
                continue
            rows.append(
                {
                    "compared at": part,
                    "device": r.device,
                    "batch size": f"{r.trained.batch_size:,}",
                    "updates": f"{member['updates']:,}",
                    "epochs": tables.number(member["epochs"]),
                    "training accuracy": f"{100 * member['train_accuracy']:.2f} %",
                    "validation accuracy": f"{100 * (r.val_accuracy or [math.nan])[-1]:.2f} %",
                }
            )
    if not rows:
        return Html(f"<p>{escape(_nothing(records, EPOCHS))}</p>")
    rate = next(m["rate"] for r in records if (m := r.member) and m.get("part") in (EPOCHS, UPDATES) and "rate" in m)
    title = f"Learning rate {rate:g} throughout, one seed, 48,000 training and 12,000 validation images. "
    return Html(tables.as_html(pd.DataFrame(rows), title + _caption(parts(records, EPOCHS))))


def by_loop_table(records: Sequence[Record], rows: Sequence[Record]) -> Html:
    """Seconds to the target of every loop of the sweep, at the smallest batch size that both parts have."""
    found = frame(records)
    found = found[found["reached"] > 0] if len(found) else found
    sizes = {r.trained.batch_size for r in rows if r.status == "ok" and r.loop in LOOPS}
    common = sorted(sizes & set(found["batch_size"])) if len(found) else []
    if not common:
        return Html("<p>No batch size has both a time to the target and a time per epoch here.</p>")
    size = common[0]
    needed = found[found["batch_size"] == size].iloc[0]
    shown = []
    for r in rows:
        if r.loop in LOOPS and r.status == "ok" and r.trained.batch_size == size:
            epoch = over_turns(r.epochs())
            limit = int(needed["limit"])
            judge_s = 0.0 if r.loop in EVALUATES else needed["judge_s"]
            total = needed["epochs"] * (epoch.median + judge_s)
            shown.append((total, r.loop, r.device, tables.interval(epoch), _time(total, limit)))
    frame_ = pd.DataFrame(
        [
            {"loop": loop, "device": device, "seconds per epoch": epoch, f"seconds to {GOAL}": total}
            for _, loop, device, epoch, total in sorted(shown)
        ]
    )
    title = (
        f"Batch size {size:,}, learning rate {needed['rate']:g}: all loops make the same updates, so each needs "
        f"{needed['epochs']:g} epochs (the median seed) of its own time, and an evaluation of "
        f"{tables.number(needed['judge_s'])} s after each, where its epoch has none. "
    )
    return Html(tables.as_html(frame_, title))


def sentence(records: Sequence[Record]) -> Markdown:
    """Which batch size is first at the target, and whether the larger one's faster epochs pay."""
    found = frame(records)
    if found.empty:
        return Markdown(plain(_nothing(records, TIMED)))
    reached = found[np.isfinite(found["median_s"])]
    if reached.empty:
        return Markdown(f"No batch size reached {GOAL} within {int(found['limit'].max())} epochs here.")
    best = reached.loc[reached["median_s"].idxmin()]
    times: dict[tuple[str, int], list[float]] = {}
    for r in parts(records, TIMED):
        if r.status == "ok":
            times.setdefault((r.device, r.trained.batch_size), []).append(reached_s(r))
    named = {f"{device} {size}": of for (device, size), of in times.items()}
    first = first_at(named, f"{best['device']} {int(best['batch_size'])}").status == HOLDS
    text = (
        f"{'First' if first else 'Least in the median'} at {GOAL} validation accuracy: batch size "
        f"**{int(best['batch_size']):,}** on the {best['device'].upper()} at "
        f"rate {best['rate']:g}, after {tables.number(best['median_s'])} s and "
        f"{best['epochs']:g} epochs (median of {int(best['seeds'])} seeds; p10 to p90: "
        f"{_time(best['p10_s'], int(best['limit']))} to {_time(best['p90_s'], int(best['limit']))} s)."
    )
    if not first and len(found) > 1:
        text += " Which batch size is first is not shown: seeds of others were there before its last, or are too few."
    for row in found.itertuples():
        if row.Index == best.name:
            continue
        name = f" Batch size {row.batch_size:,} on the {row.device.upper()}"
        if math.isfinite(row.median_s):
            text += f"{name} takes {tables.number(row.median_s)} s and {row.epochs:g} epochs."
        else:
            text += f"{name}: {row.reached} of {row.seeds} seeds reach it within {row.limit} epochs."
    return Markdown(text)


def figure(records: Sequence[Record]) -> Figure | Markdown:
    """Validation accuracy against seconds: a line a seed, a colour a batch size, the target dashed."""
    timed = [r for r in parts(records, TIMED) if r.status == "ok" and r.val_accuracy]
    if not timed:
        return Markdown(plain(_nothing(records, TIMED)))
    groups = sorted({(r.trained.batch_size, r.device) for r in timed})
    inks = dict(zip(groups, list(COLOURS.values()) * len(groups), strict=False))

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        for size, device in groups:
            ink, named = inks[size, device][dark], False
            for r in timed:
                if (r.trained.batch_size, r.device) == (size, device):
                    rate = (r.member or {})["rate"]
                    label = None if named else f"{size:,} on the {device}, rate {rate:g}"
                    shares = [100 * share for share in r.val_accuracy or []]
                    axes.plot(seconds(r), shares, marker="o", ms=3.5, lw=1.2, color=ink, alpha=0.85, label=label)
                    named = True
        axes.axhline(100 * TARGET, ls="--", lw=1.2, color=theme["faint"])
        axes.annotate(
            GOAL, (1.0, 100 * TARGET), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", va="center", color=theme["faint"],
        )  # fmt: skip
        axes.set(xlabel="seconds, training and evaluation", ylabel="validation accuracy, %")
        axes.set_xlim(left=0)
        if groups:
            axes.legend(title="batch size", loc="lower right")

    alt = "Validation accuracy against seconds, a line a seed: " + "; ".join(
        f"batch size {size:,} on the {device}: "
        + ", ".join(
            f"{100 * (r.val_accuracy or [0])[-1]:.1f} % after {tables.number(seconds(r)[-1])} s"
            for r in timed
            if (r.trained.batch_size, r.device) == (size, device)
        )
        for size, device in groups
    )
    return Figure(draw, alt, height=4.2)
