"""Epochs of small networks as others published them, with sources: what the model predicts without having seen them.

Entries marked `calibrate` set the one constant that has to be guessed: how many times as long calls, operators and
epochs of a framework take on another's host. Arithmetic and memory are taken to be as here, GPUs as published. Those
marked `predict` set nothing; `direction` says only which of two devices was faster.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator
from scipy.optimize import brentq

from overhead.model.constants import Constants
from overhead.model.gpus import preset
from overhead.model.replay import CannotModel, on_cpu, on_gpu
from overhead.problem.workload import Workload

WITHIN = 1.5  # a factor: what counts as predicted
ENOUGH = 0.8  # the share that is aimed at
_ARTICLE = "the seed article"
_HG = "rickiepark/hg-mldl, {}, outputs of its committed versions"


class Entry(BaseModel, frozen=True, extra="forbid"):
    """One published epoch; `low_s` and `high_s` are the source's own range."""

    name: str
    use: Literal["calibrate", "predict", "direction"]
    layers: tuple[int, ...]
    batch_size: Annotated[int, Field(gt=0)]
    images: Annotated[int, Field(gt=0)]
    code: str  # what the source ran
    loop: str | None  # the nearest loop with a census; None where there is none
    device: Literal["cpu", "gpu"]
    device_name: str
    gpu: str | None = None  # the preset that stands for it
    host: Literal["rented", "other"] = "rented"
    low_s: Annotated[float, Field(gt=0)]
    high_s: Annotated[float, Field(gt=0)]
    rounded_s: float = 0.0  # half of the step to which the source rounds: Keras prints whole seconds
    source: str
    note: str = ""  # what the source leaves open, where that may be the cause of a miss
    of: str | None = None  # entries with the same text are one source's comparison of two devices

    @model_validator(mode="after")
    def _in_order(self) -> Entry:
        if self.low_s > self.high_s:
            raise ValueError(f"low_s must be at most high_s, got {self.low_s} and {self.high_s} ({self.name})")
        return self


def _colab(name: str, layers: tuple[int, ...], device: str, low: float, high: float, use: str, page: str) -> Entry:
    return Entry.model_validate({
        "name": name, "use": use, "layers": layers, "batch_size": 32, "images": 48_000, "code": "Keras fit",
        "loop": "keras-fit", "device": device, "device_name": f"Colab {device.upper()}",
        "gpu": "T4" if device == "gpu" else None, "low_s": low, "high_s": high,
        "rounded_s": 0.5, "source": _HG.format(page),
    })  # fmt: skip


def _other(name: str, layers: tuple[int, ...], batch: int, images: int, code: str, loop: str | None, device: str,
           device_name: str, low: float, high: float, source: str, **more: Any) -> Entry:  # fmt: skip
    fields = {"use": "predict", "host": "other", **more}
    return Entry.model_validate({
        "name": name, "layers": layers, "batch_size": batch, "images": images, "code": code, "loop": loop,
        "device": device, "device_name": device_name, "low_s": low, "high_s": high, "source": source, **fields,
    })  # fmt: skip


_HIDDEN, _FLAT, _BOOK = (784, 100, 10), (784, 10), (784, 128, 10)
_PLATEAU = "12 steps: a cost an epoch, which launches and calls do not make"
_DTYPE = "the source says neither its BLAS nor its threads"
_UNTOLD = "469 steps, more than 15 ms each: most of what was timed is not the step; the source does not say what"
_VALIDATED = ("Keras fit, validation and metrics", "keras-fit-validated")
_RTX, _I9 = "Quadro RTX 5000", "Core i9-10885H"

ENTRIES: tuple[Entry, ...] = (
    _colab("784-100-10, CPU 2020", _HIDDEN, "cpu", 2, 3, "calibrate", "7-2.ipynb"),
    _colab("784-100-10, GPU 2021-02", _HIDDEN, "gpu", 2, 3, "calibrate", "7-2.ipynb"),
    _colab("784-100-10, GPU 2021-06 and 08", _HIDDEN, "gpu", 3, 4, "calibrate", "7-2.ipynb"),
    _colab("784-100-10, GPU 2022", _HIDDEN, "gpu", 3, 4, "calibrate", "7-2.ipynb"),
    _colab("784-100-10, GPU 2023-03", _HIDDEN, "gpu", 4, 4, "predict", "7-2.ipynb"),
    _colab("784-100-10, GPU 2023-07 and 11", _HIDDEN, "gpu", 4, 5, "predict", "7-2.ipynb"),
    _colab("784-100-10, GPU 2024-08", _HIDDEN, "gpu", 3, 5, "predict", "7-2.ipynb"),
    _colab("784-10, CPU 2020", _FLAT, "cpu", 1, 1, "predict", "7-1.ipynb"),
    _colab("784-10, GPU 2021", _FLAT, "gpu", 2, 3, "predict", "7-1.ipynb"),
    _colab("784-10, GPU 2022", _FLAT, "gpu", 2, 2, "predict", "7-1.ipynb"),
    _colab("784-10, GPU 2023", _FLAT, "gpu", 3, 5, "predict", "7-1.ipynb"),
    _other("article, Keras, 32, GPU", _BOOK, 32, 48_000, *_VALIDATED, "gpu", _RTX,
           6.26, 6.5, _ARTICLE, gpu=_RTX, of="article, 32"),
    _other("article, Keras, 32, CPU", _BOOK, 32, 48_000, *_VALIDATED, "cpu", _I9,
           4.4, 11.31, _ARTICLE, of="article, 32"),
    _other("article, Keras, 4096, GPU", _BOOK, 4096, 48_000, *_VALIDATED, "gpu",
           _RTX, 2.3, 2.3, _ARTICLE, gpu=_RTX, of="article, 4096", note=_PLATEAU),
    _other("article, Keras, 4096, CPU", _BOOK, 4096, 48_000, *_VALIDATED, "cpu",
           _I9, 1.39, 1.39, _ARTICLE, of="article, 4096", note=_PLATEAU),
    _other("article, NumPy, 2048", _BOOK, 2048, 48_000, "NumPy", "numpy", "cpu", _I9, 0.84, 0.84, _ARTICLE,
           note=_DTYPE),
    _other("article, NumPy, 4096", _BOOK, 4096, 48_000, "NumPy", "numpy", "cpu", _I9, 1.03, 1.03, _ARTICLE,
           note=_DTYPE),
    _other("article, JAX, 4096", _BOOK, 4096, 48_000, "JAX, jit of the step", "jax-step", "cpu", _I9, 0.14, 0.14,
           _ARTICLE),
    _other("PyTorch, batch 4, GPU", (784, 64, 64, 10), 4, 60_000, "PyTorch with a loader", None, "gpu", "RTX 2080 Ti",
           8.05, 8.05, "helenehanyu/CS6220-HW1", of="PyTorch, batch 4"),
    _other("PyTorch, batch 4, CPU", (784, 64, 64, 10), 4, 60_000, "PyTorch with a loader", None, "cpu", "its host",
           8.25, 8.25, "helenehanyu/CS6220-HW1", of="PyTorch, batch 4"),
    _other("Keras on an M1", (784, 2000, 2000, 10), 32, 60_000, "Keras fit", "keras-fit", "cpu", "Apple M1",
           12, 12, "apple/tensorflow_macos#128", rounded_s=0.5, note="its arithmetic is taken to be that of this host"),
    _other("NumPy on an i7", (784, 256, 128, 10), 128, 60_000, "NumPy", "numpy", "cpu", "Core i7-11700K",
           40, 40, "a public repository's README", of="NumPy and CuPy", rounded_s=0.5, note=_UNTOLD),
    _other("CuPy on an RTX 3060", (784, 256, 128, 10), 128, 60_000, "CuPy", "cupy", "gpu", "RTX 3060", 8, 8,
           "a public repository's README", gpu="RTX 3060", of="NumPy and CuPy", rounded_s=0.5, note=_UNTOLD),
    _other("M1 Air, GPU", _BOOK, 32, 60_000, "Keras fit", None, "gpu", "Apple M1", 15, 16,
           "Apple developer forum, TensorFlow-metal 2021", use="direction", of="M1 Air"),
    _other("M1 Air, CPU", _BOOK, 32, 60_000, "Keras fit", "keras-fit", "cpu", "Apple M1", 1, 1,
           "Apple developer forum, TensorFlow-metal 2021", use="direction", of="M1 Air"),
)  # fmt: skip


def workload(entry: Entry) -> Workload:
    return Workload(layers=entry.layers, batch_size=entry.batch_size, images=entry.images)


def published_s(entry: Entry) -> float:
    """The middle of the source's range, on a logarithm."""
    return math.sqrt(entry.low_s * entry.high_s)


def ends_s(entry: Entry) -> tuple[float, float]:
    """The source's range, as wide as its rounding allows."""
    return entry.low_s - entry.rounded_s, entry.high_s + entry.rounded_s


def predicted_s(entry: Entry, constants: Constants, host_factor: float) -> float:
    """Seconds of the entry's epoch on a host whose calls take `host_factor` times as long as on that of `constants`.

    Raises `CannotModel` for code without a census and for a GPU without a preset.
    """
    if entry.loop is None:
        raise CannotModel(f"{entry.code} has no census")
    if entry.device == "cpu":
        terms = on_cpu(entry.loop, workload(entry), constants, draws=0).terms
        return terms.total_s + (host_factor - 1.0) * terms.dispatch_s
    if entry.gpu is None:
        raise CannotModel(f"{entry.device_name} has no preset")
    return on_gpu(entry.loop, workload(entry), constants, preset(entry.gpu), host_factor, draws=0).epoch_s


def rented_factor(constants: Constants) -> float:
    """How many times as long calls take on another's host: from the entries marked `calibrate` alone.

    The factor whose predictions are off by nothing in the mean of logarithms; at least 0.1, at most 100.
    """
    known = [(e, math.log(published_s(e))) for e in ENTRIES if e.use == "calibrate"]

    def off(log_factor: float) -> float:
        return sum(math.log(predicted_s(e, constants, math.exp(log_factor))) - s for e, s in known)

    low, high = math.log(0.1), math.log(100.0)
    if off(low) >= 0 or off(high) <= 0:
        return math.exp(low if off(low) >= 0 else high)
    return math.exp(float(brentq(off, low, high)))


def report(constants: Constants) -> dict[str, Any]:
    """entries, within (of those predicted, the share within `WITHIN`), directions and rented_factor, ready for JSON.

    `within_rented`: the share of those on rented hosts, of which those are that set the factor.
    """
    factor, rows = rented_factor(constants), []
    for entry in ENTRIES:
        try:
            predicted, why = predicted_s(entry, constants, factor), None
        except CannotModel as refused:
            predicted, why = None, str(refused)
        low_s, high_s = ends_s(entry)
        # The source's own range counts: inside it the prediction is off by nothing.
        off = None if predicted is None else max(low_s / predicted, predicted / high_s, 1.0)
        rows.append({**entry.model_dump(mode="json"), "predicted_s": predicted, "off": off, "why": why})
    judged = [r for r in rows if r["use"] == "predict" and r["off"] is not None]
    rented = [r for r in judged if r["host"] == "rented"]
    return {
        "rented_factor": factor,
        "entries": rows,
        "within": sum(r["off"] <= WITHIN for r in judged) / len(judged),
        "within_rented": sum(r["off"] <= WITHIN for r in rented) / len(rented),
        "predicted": len(judged),
        "directions": _directions(rows),
        "ratios": _ratios(rows),
    }


def _ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """784-10 over 784-100-10 of one year on one kind of device: as published, by the rounding, and as modelled."""
    years: dict[tuple[str, str], dict[tuple[int, ...], list[dict[str, Any]]]] = {}
    for r in rows:
        if r["predicted_s"] and r["host"] == "rented" and (year := re.search(r"20\d\d", r["name"])):
            years.setdefault((r["device"], year[0]), {}).setdefault(tuple(r["layers"]), []).append(r)
    found = []
    for (device, year), by in years.items():
        if _FLAT in by and _HIDDEN in by:
            ends = {
                layers: (
                    min(r["low_s"] - r["rounded_s"] for r in same),
                    max(r["high_s"] + r["rounded_s"] for r in same),
                )
                for layers, same in by.items()
            }
            low, high = ends[_FLAT][0] / ends[_HIDDEN][1], ends[_FLAT][1] / ends[_HIDDEN][0]
            modelled = by[_FLAT][0]["predicted_s"] / by[_HIDDEN][0]["predicted_s"]
            off = max(low / modelled, modelled / high, 1.0)
            found.append({"device": device, "year": year, "low": low, "high": high, "modelled": modelled, "off": off})
    return found


def _directions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where a source's own runs tell two devices apart and both can be predicted: which is faster."""
    found = []
    for name in dict.fromkeys(r["of"] for r in rows if r["of"]):
        of = {r["device"]: r for r in rows if r["of"] == name}
        if len(of) == 2 and all(r["predicted_s"] is not None for r in of.values()):
            faster, slower = sorted(of, key=lambda d: of[d]["high_s"])
            if of[faster]["high_s"] >= of[slower]["low_s"]:  # the source's own runs do not agree
                continue
            predicted = min(of, key=lambda d: of[d]["predicted_s"])
            found.append({"of": name, "published": faster, "predicted": predicted, "right": faster == predicted})
    return found


def published(row: Mapping[str, Any]) -> str:
    """The source's range as it prints it."""
    return f"{row['low_s']:g}" if row["low_s"] == row["high_s"] else f"{row['low_s']:g} to {row['high_s']:g}"


def verdict(row: Mapping[str, Any]) -> str:
    """What is said of an entry; a miss is said to be one, with what the source leaves open."""
    if row["predicted_s"] is None:
        return f"not predicted: {row['why']}"
    how = {"calibrate": "sets the host", "direction": "direction only"}.get(row["use"])
    if how is None:
        how = "within" if row["off"] <= WITHIN else "a miss"
    note = f" ({row['note']})" if how == "a miss" and row["note"] else ""
    return f"{how}, off by {row['off']:.2f}{note}"


def as_text(found: dict[str, Any]) -> str:
    """The report for people: a line an entry; a miss is shown as a miss."""
    lines = []
    for r in found["entries"]:
        modelled = "" if r["predicted_s"] is None else f", modelled {r['predicted_s']:.3g} s"
        lines.append(f"{r['name']}: published {published(r)} s{modelled}: {verdict(r)}")
    lines.append(
        f"within a factor of {WITHIN}: {found['within']:.0%} of {found['predicted']}; on rented hosts "
        f"{found['within_rented']:.0%}"
    )
    lines += [
        f"{d['of']}: {d['published']} faster as published, {d['predicted']} as modelled" for d in found["directions"]
    ]
    lines += [
        f"784-10 over 784-100-10, {r['device']} {r['year']}: {r['low']:.2f} to {r['high']:.2f} as published, "
        f"{r['modelled']:.2f} as modelled" for r in found["ratios"]
    ]  # fmt: skip
    lines.append(f"calls are taken to last {found['rented_factor']:.2f} times as long on others' hosts as on this one")
    return "\n".join(lines)
