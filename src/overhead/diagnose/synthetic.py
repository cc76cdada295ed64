"""A step of known mixture, diagnosed as a reader's file is: what it is made of stands in `OVERHEAD_SYNTHETIC`.

Each part is timed by itself when the module is imported, and the step is given as much of it as makes its share of
`total_ms`: calls of an empty Python function, products, copies of arrays that no cache holds, sleeps, and a producer
that sleeps or works.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

CALLS, PRODUCTS = 100, 1  # of a piece
SIDE, WIDE = 256, 512  # of products of a size of their own, and of those with the batch
STREAM_FLOATS = 16 << 20
COPIED = 1 << 16  # floats of a piece


def asked_for() -> dict[str, Any]:
    """The mixture: shares by limit, and how they are made."""
    return {"total_ms": 10.0, "batch_size": 32, **json.loads(os.environ.get("OVERHEAD_SYNTHETIC", "{}"))}


mixture = asked_for()
FIXED = bool(mixture.get("fixed"))  # work that does not depend on the batch
total_s = mixture["total_ms"] * 1e-3

rng = np.random.default_rng(0)
weights = rng.standard_normal((WIDE, WIDE), np.float32) / WIDE
square = rng.standard_normal((SIDE, SIDE), np.float32) / SIDE
out = np.empty_like(square)
source = np.ones(STREAM_FLOATS, np.float32)
target = source.copy()
state_of = np.zeros(1)
at = 0


def nothing(x: int) -> int:
    return x


def calls(pieces: float) -> None:
    for _ in range(round(pieces * CALLS)):
        nothing(1)


def products(pieces: float, x: np.ndarray) -> None:
    for _ in range(round(pieces)):
        if FIXED:
            np.matmul(square, square, out=out)
        else:
            np.matmul(x, weights)


def stream(pieces: float, rows: int) -> None:
    global at
    floats = round(pieces * COPIED * (1 if FIXED else rows / mixture["batch_size"]))
    while floats > 0:
        count = min(floats, STREAM_FLOATS - at)
        np.copyto(target[at : at + count], source[at : at + count])
        at, floats = (at + count) % STREAM_FLOATS, floats - count


def make_batch(n: int) -> np.ndarray:
    return np.ones((n, WIDE), np.float32)


def seconds(part: Callable[[float], None], pieces: int) -> float:
    """Of a piece: the median of some runs of `pieces`."""
    part(pieces)
    took = []
    for _ in range(7):
        start = time.perf_counter()
        part(pieces)
        took.append(time.perf_counter() - start)
    return float(np.median(took)) / pieces


def amounts() -> dict[str, float]:
    """Pieces of each part; of sleeps and of the producer, seconds."""
    x = make_batch(mixture["batch_size"])
    parts: dict[str, tuple[Callable[[float], None], int]] = {
        "dispatch": (calls, 300),
        "arithmetic": (lambda pieces: products(pieces, x), 20),
        "memory": (lambda pieces: stream(pieces, mixture["batch_size"]), 200),
    }
    found = {}
    for limit in ("dispatch", "arithmetic", "memory", "input", "wait"):
        share_s = mixture.get(limit, 0) * total_s
        if share_s and limit in parts:
            share_s /= seconds(*parts[limit])
        found[limit] = share_s
    return found


pieces = amounts()
producer_calls = pieces["input"] / seconds(calls, 300) if mixture.get("busy") else 0.0


def set_part(limit: str, times: float) -> None:
    """Give the step `times` as much of a part as at first."""
    now[limit] = pieces[limit] * times


now = dict(pieces)


def step(x: np.ndarray) -> np.ndarray:
    calls(now["dispatch"])
    products(now["arithmetic"], x)
    stream(now["memory"], len(x))
    if now["wait"]:
        time.sleep(now["wait"])
    state_of[0] += 1
    return state_of


def produced() -> Iterator[np.ndarray]:
    batch = make_batch(mixture["batch_size"])
    while True:
        if producer_calls:
            calls(producer_calls * now["input"] / pieces["input"])
        else:
            time.sleep(now["input"])
        yield batch


if mixture.get("input"):
    batches = produced
