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
from overhead.showing import tables

HOST = Path(__file__).resolve().parents[1] / "results" / "epyc-2core"
Line = dict[str, Any]
Figures = list[tuple[str, str, float]]  # what, as printed, as computed here
FEWEST = 20  # figures of a page
FEWER = {"11-lab": 16}  # that has no more


def lines(chapter: str) -> list[Line]:
    found = [json.loads(line) for line in (HOST / f"{chapter}.jsonl").read_text(encoding="utf-8").splitlines()]
    for work in (line["workload"] for line in found if line.get("workload")):
        whole, rest = divmod(work["images"], work["batch_size"])
        work["steps"] = whole + (work["remainder"] == "keep" and rest > 0)
    return found


def printed(chapter: str, table: str, preset: str) -> list[dict[str, str]]:
    """The rows of a table of a page, as its reader sees them."""
    page = chapter_of(chapter).checked(host="epyc-2core", preset=preset)
    with pytest.MonkeyPatch.context() as patch:  # no row folded away, no column moved into the caption
        patch.setattr(tables, "LONG", 10**6)
        patch.setattr(tables, "ENOUGH", 10**6)
        text = getattr(page, table)(records.read(HOST / f"{chapter}.jsonl")).text
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in re.findall(r"<tr>(.*?)</tr>", text, re.S)]
    names, *body = [[unescape(cell).replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in rows]
    return [dict(zip(names, row, strict=True)) for row in body]


def said(chapter: str, part: str) -> str:
    """A generated paragraph of a page."""
    page = chapter_of(chapter).checked(host="epyc-2core")
    return getattr(page, part)(records.read(HOST / f"{chapter}.jsonl")).text


def between(text: str, before: str, after: str) -> str:
    """What stands in `text` after `before` and up to the next `after`."""
    assert before in text, before
    return text.partition(before)[2].partition(after)[0]


def seconds(sample: Line) -> list[float]:
    return sample["seconds"] if sample.get("seconds") is not None else [ns * 1e-9 for ns in sample["ns"]]


def samples(line: Line, clock: str) -> list[Line]:
    return [sample for sample in line["timing"]["samples"] if sample["clock"] == clock]


def typical_epoch(line: Line) -> float:
    """Seconds an epoch: the median over processes of each one's median turn, a turn being the mean of its samples."""
    steps, by_process = line["workload"]["steps"], {}
    for sample in samples(line, "wall"):
        turns_ = by_process.setdefault(sample["process"], {})
        for round_, value in zip(sample["round"], seconds(sample), strict=True):
            turns_.setdefault(round_, []).append(value * steps / sample["steps"])
    return median(median(mean(of) for of in turns_.values()) for turns_ in by_process.values())


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
    """A trial of each slowdown and way of comparing, when runs returned and were done, and what looking costs."""
    taken = [line for line in lines("00-clocks") if line["status"] == "ok"]
    by_op = {line["op"]: line for line in taken if line["op"]}
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
    return [*found, *runs_of_clocks(taken), *looking_of_clocks(by_op)]


def runs_of_clocks(taken: list[Line]) -> Figures:
    """When 100 steps returned and were done, and how the first run differs, of every loop and pretended device."""
    waiting, cold = (said("00-clocks", part) for part in ("waiting", "cold"))
    found = []
    for line in (line for line in taken if line["op"] is None):
        name = "pretended device" if "fake_device" in line["loop"] else f"{line['loop']} ({line['device']})"
        dispatch, wall = (
            median(1e3 * s for sample in samples(line, clock) for s in seconds(sample))
            for clock in ("dispatch", "wall")
        )
        text = between(waiting, f"- **{name}**: the call returned after ", " (n =")
        found += [
            (f"{name} returned", text, dispatch),
            (f"{name} done", between(text + "#", "the device was done after ", "#"), wall),
        ]
        if name != "pretended device":
            text = between(cold, f"- **{name}**: the first run took ", " times as long.")
            first = 1e3 * line["timing"]["first_s"]
            found += [
                (f"{name} first", text, first),
                (f"{name} later", between(text, "later ones ", " ms"), wall),
                (f"{name} first through later", text.rpartition("the first took ")[2], first / wall),
            ]
    return found


def looking_of_clocks(by_op: dict[str, Line]) -> Figures:
    """What the clock costs, and a step op by op, in its calls, and in empty calls, microseconds."""
    timer, looking = (said("00-clocks", part) for part in ("timer", "looking"))
    clock = by_op["timer"]["timer"]
    names = ["z1", "a1", "z2", "softmax", "dz2", "dw2", "da1", "dz1", "dw1", "w1", "b1", "w2", "b2"]
    ops = [[s for sample in samples(by_op[op], "op") for s in seconds(sample)] for op in names]
    added = [1e6 * sum(of) for of in zip(*ops, strict=True)]
    step = [s for sample in samples(by_op["step"], "unread") for s in seconds(sample)]
    empty = [s for sample in samples(by_op["empty"], "op") for s in seconds(sample)]
    return [
        ("a pair of readings, ns", between(timer, "pair of readings takes ", " ns"), clock["pair_cost_ns"]),
        ("the smallest step, ns", between(timer, "the next was ", " ns"), clock["resolution_ns"]),
        ("its own reading, ns", between(timer, "Every sample holds ", " ns"), clock["empty_ns"]),
        (
            "ops added up",
            between(looking, "adds up to ", " us"),
            median(added),
        ),
        ("the same calls", between(looking, "one wait at the end take ", " us"), median(1e6 * s for s in step)),
        ("empty calls", between(looking, "calls of nothing take ", " us"), median(1e6 * s for s in empty)),
    ]


def per_op() -> Figures:
    ops = {(line["loop"], line["op"]): line for line in lines("01-per-op-breakdown") if line["status"] == "ok"}
    found = []
    for row in printed("01-per-op-breakdown", "table", "full"):
        for loop in ("numpy", "tf-eager", "jax-op-by-op"):
            us = without_reading(ops[loop, row["op"]])
            of_turns: dict[int, list[float]] = {}
            rounds = [round_ for sample in samples(ops[loop, row["op"]], "op") for round_ in sample["round"]]
            for round_, value in zip(rounds, us, strict=True):
                of_turns.setdefault(round_, []).append(value)
            typical = median(median(of) for of in of_turns.values())
            found.append((f"{loop} {row['op']}", row[f"{loop} (cpu): median, us"], typical))
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
        if line.get("probe") and line["status"] == "ok" and line["probe"]["kind"] in ("floor", "fixed", "frame")
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


def your_loop() -> Figures:
    """The steps with and without each pitfall, and the time that the pitfall multiplies."""
    taken = {line["op"]: line for line in lines("10-your-loop") if line["op"] and line["status"] == "ok"}
    page = chapter_of("10-your-loop").checked(host="epyc-2core")
    rows = page.prices(records.read(HOST / "10-your-loop.jsonl")).to_dict("records")
    rows = [row for row in rows if not str(row["times"]).startswith("failed")]
    found = []
    for row, (op, line) in zip(rows, taken.items(), strict=True):
        without, with_it = (
            [1e6 * s / sample["steps"] for sample in samples(line, clock) for s in seconds(sample)]
            for clock in ("plain", "pitfall")
        )
        ratio = median(y / x for x, y in zip(without, with_it, strict=True))
        found += [
            (f"{op} without", row["without, us"], median(without)), (f"{op} with", row["with, us"], median(with_it)),
            (f"{op} times", row["times"], ratio),
        ]  # fmt: skip
    return found


def under_the_floor() -> Figures:
    """Every rung: its undisturbed epoch, over the dense floor, and with what is placed before it."""
    taken = [line for line in lines("09-under-the-floor") if line["status"] == "ok" and line.get("timing")]
    alone = [line for line in taken if not line.get("part") and line.get("workload")]

    def name(line: Line) -> str:
        return f"{line['loop']}, 1 thread" if line["loop"] == "sparse" and line["threads"] == 1 else line["loop"]

    by_key = {(name(line), f"{line['workload']['batch_size']:,}"): line for line in alone}
    found = []
    for row in printed("09-under-the-floor", "rungs_table", "workshop"):
        line = by_key.get((row["rung"], row["batch size"]))
        if line is None:
            continue
        of = f"{row['rung']} at {row['batch size']}"
        found.append((of, row["seconds per epoch"], lower_decile(list(turns(line).values()))))
        found.append(
            (f"{of} over the floor", row["times the dense floor"], undisturbed_ratio(line, floor_of(alone, line)))
        )
        placed = line["placed_s"]
        found.append((f"{of} placed", row["placing, index included, s"], placed))
        found.append((f"{of} first", row["first epoch with placing, s"], placed + line["timing"]["first_s"]))
    return found


def crossover() -> Figures:
    """How far the formula and simpler ways are off for products that were left out, of every library and threads."""
    held = next(line["model"] for line in lines("08-crossover") if line.get("op") == "constants")
    found = []
    for row in printed("08-crossover", "products_table", "workshop"):
        rivals = held["products"][row["products of"]][row["threads"]]["rivals"]
        found += [
            (f"{row['products of']} {row['threads']} {how}", row[how], 100 * error) for how, error in rivals.items()
        ]
    return found


def lab() -> Figures:
    """The simulated epochs, waited for and not, over the fastest one, and the ratio to the prediction beside it."""
    taken = [line for line in lines("11-lab") if line["status"] == "ok" and line.get("workload")]

    def of(line: Line, clock: str) -> float:
        return median(s for sample in samples(line, clock) for s in seconds(sample))

    short = {line["loop"]: line for line in taken if line["workload"]["images"] == 30_000}
    found = []
    for row in printed("11-lab", "forgot", "workshop"):
        line = short[row["loop"]]
        found.append((row["loop"], row["until the last call returned, ms"], 1e3 * of(line, "returned")))
        found.append((f"{row['loop']} done", row["until the device was done, ms"], 1e3 * of(line, "wall")))
    whole = {
        line["loop"]: of(line, "wall") for line in taken
        if line["workload"]["images"] == 48_000 and line["workload"]["batch_size"] == 32
    }  # fmt: skip
    for row in printed("11-lab", "changes", "workshop"):
        epoch = whole[row["loop"]]
        found.append((f"{row['loop']} epoch", row["epoch, s"], epoch))
        found.append((f"{row['loop']} times", row["times the fastest"], epoch / min(whole.values())))
        off = abs(float(row["simulated / predicted"]) * float(row["predicted by chapter 8, s"]) / epoch - 1)
        found.append((f"{row['loop']} over the prediction", f"{off:.2f}", 0.0))
    return found


def agrees(text: str, value: float) -> bool:
    """Whether `text` begins with `value`, rounded to as many places as it prints."""
    number = re.match(r"-?[\d,]+(?:\.(\d+))?", text)
    if number is None:
        return False
    half = 0.5 * 10.0 ** -len(number[1] or "")
    return abs(float(number[0].replace(",", "")) - value) <= half * (1 + 1e-3) + 1e-5 * abs(value)


PAGES = {
    "00-clocks": clocks, "01-per-op-breakdown": per_op, "02-flop-lower-bound": flop_bound,
    "03-where-time-goes": where_time_goes, "04-profile": profile, "05-batch-sweep": batch_sweep,
    "06-overhead-ladder": ladder, "07-learning-rate-sweep": learning_rates, "08-crossover": crossover,
    "09-under-the-floor": under_the_floor, "10-your-loop": your_loop, "11-lab": lab,
}  # fmt: skip
MEASURED = sorted(path.stem for path in HOST.glob("*.jsonl"))


@pytest.mark.parametrize("chapter", MEASURED)
def test_the_page_prints_what_its_records_hold(chapter):
    found = PAGES[chapter]()

    assert len(found) >= FEWER.get(chapter, FEWEST)
    assert [figure for figure in found if not agrees(figure[1], figure[2])] == []


def test_a_figure_that_is_off_by_a_digit_is_seen():
    assert agrees("0.204 [0.201, 0.207]", 0.2043)
    assert not agrees("0.204 [0.201, 0.207]", 0.2052)
    assert agrees("1,234", 1_234.4)
    assert not agrees("–", 1.0)
