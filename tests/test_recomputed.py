"""What the pages print, computed anew from the records in plain Python: json, statistics, and arithmetic of its own.

The package only prints the pages; no figure that is expected comes from its code.
"""

from __future__ import annotations

import json
import re
from html import unescape
from math import floor
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from overhead.chapters import chapter_of
from overhead.records import record as records

HOST = Path(__file__).resolve().parents[1] / "results" / "epyc-2core"
Line = dict[str, Any]
Figures = list[tuple[str, str, float]]  # what, as printed, as computed here
FEWEST = 20  # figures of a page; a page that prints fewer of a kind says why below


def lines(chapter: str) -> list[Line]:
    return [json.loads(line) for line in (HOST / f"{chapter}.jsonl").read_text(encoding="utf-8").splitlines()]


def printed(chapter: str, table: str, preset: str) -> list[dict[str, str]]:
    """The rows of a table of a page, as its reader sees them."""
    page = chapter_of(chapter).checked(host="epyc-2core", preset=preset)
    text = getattr(page, table)(records.read(HOST / f"{chapter}.jsonl")).text
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in re.findall(r"<tr>(.*?)</tr>", text, re.S)]
    names, *body = [[unescape(cell).replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in rows]
    return [dict(zip(names, row, strict=True)) for row in body]


def seconds(sample: Line) -> list[float]:
    return sample["seconds"] if sample.get("seconds") is not None else [ns * 1e-9 for ns in sample["ns"]]


def samples(line: Line, clock: str) -> list[Line]:
    return [sample for sample in line["timing"]["samples"] if sample["clock"] == clock]


def typical_epoch(line: Line) -> float:
    """Seconds an epoch: the median over processes of each one's median."""
    steps, by_process = line["workload"]["steps"], {}
    for sample in samples(line, "wall"):
        by_process.setdefault(sample["process"], []).extend(s * steps / sample["steps"] for s in seconds(sample))
    return median(median(of) for of in by_process.values())


def turns(line: Line) -> dict[tuple[int, int], float]:
    """(set, round) → seconds an epoch, the mean of the turn; every set here has one process."""
    found: dict[tuple[int, int], list[float]] = {}
    for sample in samples(line, "wall"):
        set_ = sample["process"] if sample.get("process_set") is None else sample["process_set"]
        for round_, value in zip(sample["round"], seconds(sample), strict=True):
            found.setdefault((set_, round_), []).append(value * line["workload"]["steps"] / sample["steps"])
    return {key: mean(values) for key, values in found.items()}


def lower_decile(values: list[float]) -> float:
    """Linear between the order statistics around a tenth of the way."""
    ordered = sorted(values)
    at = 0.1 * (len(ordered) - 1)
    below = floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def undisturbed_ratio(over: Line, under: Line) -> float:
    """Lower decile through lower decile, of the turns that both have."""
    ours, theirs = turns(over), turns(under)
    shared = sorted(set(ours) & set(theirs))
    return lower_decile([ours[key] for key in shared]) / lower_decile([theirs[key] for key in shared])


def floor_of(found: list[Line], line: Line) -> Line:
    """Of the floors with as many steps at that batch size, the one with the least undisturbed time."""
    alike = [
        other
        for other in found
        if other["loop"].startswith("floor-") and other["status"] == "ok"
        and all(other["workload"][key] == line["workload"][key] for key in ("steps", "batch_size"))
    ]  # fmt: skip
    return min(alike, key=lambda other: lower_decile(list(turns(other).values())))


def per_call_us(line: Line, clock: str) -> float:
    """Microseconds a call: the median over blocks."""
    return median(s / sample["steps"] * 1e6 for sample in samples(line, clock) for s in seconds(sample))


def without_reading(line: Line) -> list[float]:
    """Microseconds of an op less an empty pair of readings, where it is not negligible (a hundredth of the op)."""
    taken = [s * 1e6 for sample in samples(line, "op") for s in seconds(sample)]
    clock = line["timer"]
    if median(taken) >= 100 * clock["pair_cost_ns"] / 1e3:
        return taken
    return [max(us - clock["empty_ns"] / 1e3, us / 100) for us in taken]


# --- the pages -------------------------------------------------------------------------------------------------------


def clocks() -> Figures:
    """One trial of each slowdown and each way of comparing, and the typical times of three loops: fewer than twenty."""
    by_op = {line["op"]: line for line in lines("00-clocks") if line["status"] == "ok" and line["op"]}
    found = []
    names = {f"injected {p} %": f"injection-{p} 1" for p in (1, 2, 5, 10)}
    names |= {
        "beside no load": "load quiet", "taking turns beside a load": "load interleaved 1",
        "one after the other beside a load": "load one-after-the-other 1",
    }  # fmt: skip
    for row in printed("00-clocks", "table", "quick"):
        if row["trial"] == "1" and (line := by_op.get(names[row["comparison"]])):
            a, b = ([s for sample in samples(line, side) for s in seconds(sample)] for side in "ab")
            ratio = median(y / x for x, y in zip(a, b, strict=False))
            found.append((row["comparison"], row["ratio b / a"], ratio))
    return found


def per_op() -> Figures:
    ops = {(line["loop"], line["op"]): line for line in lines("01-per-op-breakdown") if line["status"] == "ok"}
    found = []
    for row in printed("01-per-op-breakdown", "table", "full"):
        for loop in ("numpy", "tf-eager", "jax-op-by-op"):
            us = without_reading(ops[loop, row["op"]])
            found.append((f"{loop} {row['op']}", row[f"{loop} (cpu): median, us"], median(us)))
            found.append((f"{loop} {row['op']} mean", row[f"{loop} (cpu): mean, us"], mean(us)))
    return found


def flop_bound() -> Figures:
    probes = [line for line in lines("02-flop-lower-bound") if line.get("probe") and line["status"] == "ok"]
    rates = [line for line in probes if line["probe"]["kind"] in ("rate", "product") and not line["env"]]
    found = []
    for row, line in zip(printed("02-flop-lower-bound", "ceilings_table", "quick"), rates, strict=True):
        us = per_call_us(line, "end")
        amount = line["probe"]["bytes" if line["op"] in ("copy", "triad") else "flops"]
        found += [(row["what"], row["us a call"], us), (f"{row['what']} rate", row["rate"], amount / us / 1e3)]
    return found


def where_time_goes() -> Figures:
    floors = [
        line for line in lines("03-where-time-goes")
        if line.get("probe") and line["status"] == "ok" and line["probe"]["kind"] in ("floor", "frame")
    ]  # fmt: skip
    found = []
    for row, line in zip(printed("03-where-time-goes", "floors_table", "workshop"), floors, strict=True):
        found.append((row["what"], row["waited for, us"], per_call_us(line, "each")))
        found.append((f"{row['what']} at the end", row["one wait at the end, us"], per_call_us(line, "end")))
    return found


def profile() -> Figures:
    line = next(line for line in lines("04-profile") if line["status"] == "ok")
    named = {entry["name"][:60]: entry for kind in ("api", "ops") for entry in line["profile"][kind]}
    found = []
    for row in printed("04-profile", "own_times", "full"):
        entry = named[row["name"]]
        found.append((row["name"], row["median, us"], entry["median_ns"] / 1e3))
        found.append((f"{row['name']} total", row["total, ms"], entry["total_ns"] / 1e6))
        found.append((f"{row['name']} count", row["count"], entry["count"]))
    return found


def batch_sweep() -> Figures:
    found, taken = [], lines("05-batch-sweep")
    alone = [line for line in taken if line["op"] is None and line["member"] is None and line["status"] == "ok"]
    alone = [line for line in alone if line["workload"]["remainder"] == "drop"]
    by_key = {(line["loop"], f"{line['workload']['batch_size']:,}"): line for line in alone}
    for row in printed("05-batch-sweep", "table", "workshop"):
        line = by_key[row["loop"], row["batch size"]]
        name = f"{row['loop']} at {row['batch size']}"
        found.append((name, row["seconds per epoch"], typical_epoch(line)))
        ratio = undisturbed_ratio(line, floor_of(alone, line))
        found.append((f"{name} over its floor", row["times the floor"], ratio))
        found.append((f"{name} accuracy", row["validation accuracy"], 100 * line["val_accuracy"][-1]))
    return found


def ladder() -> Figures:
    taken = {line["loop"]: line for line in lines("06-overhead-ladder") if not line["loop"].startswith("floor")}
    below = {
        "keras-fit-tuned": "keras-fit", "tf-step": "keras-fit", "tf-epoch": "tf-step", "jax-step": "jax-op-by-op",
        "jax-epoch": "jax-step", "jax-epoch-tuned": "jax-epoch", "numpy": "numpy-per-image",
        "numpy-preallocated": "numpy",
    }  # fmt: skip
    found = []
    for row in printed("06-overhead-ladder", "table", "quick"):
        line = taken[row["rung"]]
        found.append((row["rung"], row["seconds per epoch"], typical_epoch(line)))
        found.append((f"{row['rung']} first", row["first epoch, s"], line["timing"]["first_s"]))
        if other := below.get(row["rung"]):
            gain = undisturbed_ratio(taken[other], line)
            found.append((f"{row['rung']} gain", row["gain over the rung below"], gain))
    return found


def learning_rates() -> Figures:
    taken = {
        (line["loop"], str(line["beside"])): line
        for line in lines("07-learning-rate-sweep")
        if line.get("part") == "models" and not line["loop"].startswith("floor")
    }
    found = []
    for row in printed("07-learning-rate-sweep", "models_table", "quick"):
        line = taken.get((row["engine"], row["models"]))
        if line:
            us = 1e6 * typical_epoch(line) / line["workload"]["steps"] / line["models"]
            found.append((f"{row['engine']} {row['models']}", row["µs a model and step"], us))
            first = row["first epoch with compilation, s"]
            found.append((f"{row['engine']} {row['models']} first", first, line["timing"]["first_s"]))
    return found


def agrees(text: str, value: float) -> bool:
    """Whether `text` begins with `value`, rounded to as many places as it prints."""
    number = re.match(r"-?[\d,]+(?:\.(\d+))?", text)
    if number is None:
        return False
    half = 0.5 * 10.0 ** -len(number[1] or "")
    return abs(float(number[0].replace(",", "")) - value) <= half * (1 + 1e-3) + 1e-5 * abs(value)


@pytest.mark.parametrize(
    ("page", "fewest"),
    [
        (clocks, 7), (per_op, FEWEST), (flop_bound, FEWEST), (where_time_goes, FEWEST), (profile, FEWEST),
        (batch_sweep, FEWEST), (ladder, FEWEST), (learning_rates, FEWEST),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_the_page_prints_what_its_records_hold(page, fewest):
    found = page()

    assert len(found) >= fewest
    assert [figure for figure in found if not agrees(figure[1], figure[2])] == []


def test_a_figure_that_is_off_by_a_digit_is_seen():
    assert agrees("0.204 [0.201, 0.207]", 0.2043)
    assert not agrees("0.204 [0.201, 0.207]", 0.2052)
    assert agrees("1,234", 1_234.4)
    assert not agrees("–", 1.0)
