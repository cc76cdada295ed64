"""What the whole sweep costs from start to last result, and what it costs to get the images into a worker."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from overhead.loops import MANY
from overhead.records.record import Record
from overhead.showing import tables
from overhead.showing.tables import NOT_MEASURED, number
from overhead.sweep.passing import WAYS

ELSEWHERE = {  # engines that are no loops of the table
    "jax-epoch": "a solo run, no losses kept",
    "jax-pool": "one process a configuration, JAX",
    "keras-pool": "one process a configuration, Keras fit",
    "article-pool": "the article's spawn pool of 5, Keras, images by pickle",
    "dask": "one process a configuration, sent out by Dask",
}


def described(engine: str) -> str:
    """The engine with what it does."""
    does = MANY[engine].does if engine in MANY else ELSEWHERE.get(engine)
    return f"{engine}: {does}" if does else engine


def table(records: Sequence[Record], epochs: int) -> str:
    """A row an engine: seconds from start to last result, and what they were spent on."""
    rows = []
    for record in records:
        row = {"engine": described(record.loop)}
        cost = record.cost
        if record.status != "ok" or cost is None:
            dash = NOT_MEASURED
            rows.append(
                row | {"from start to last result, s": dash, "processes × threads": dash, "start and imports, s": dash,
                       "compiling, s": dash, "training, s": dash, "estimated a process, MiB": dash,
                       "peak memory, MiB": dash, "note": f"{record.status}: {record.reason}"}
            )  # fmt: skip
            continue
        started = cost.get("import_s", 0.0) + cost.get("start_s", 0.0)
        rows.append(
            row | {
                "from start to last result, s": number(cost["wall_s"]),
                "processes × threads": f"{cost['processes']} × {cost.get('threads') or 'its choice'}",
                "start and imports, s": number(started),
                "compiling, s": number(cost.get("compile_s", math.nan)),
                "training, s": number(cost.get("train_s", math.nan)),
                "estimated a process, MiB": number((cost.get("process_bytes") or math.nan) / 2**20),
                "peak memory, MiB": number((cost.get("peak_rss_bytes") or math.nan) / 2**20),
                "note": "",
            }
        )  # fmt: skip
    caption = (
        f"All the rates, epochs {epochs}, one run each; start, imports, compiling and training are sums over processes "
        "that overlap; memory is of all processes that ran at once, this page's own kernel included"
    )
    return tables.as_html(pd.DataFrame(rows), caption, "the whole sweep from start to last result")


def passing_table(records: Sequence[Record]) -> str:
    """A row a way to get the images into a worker."""
    rows = []
    for record in records:
        cost = record.cost
        if cost is None:
            columns = ("s a worker", "s once, by the caller", "bytes sent a worker", "worker's peak memory, MiB")
            way = f"{WAYS[record.loop]} ({record.status}: {record.reason})"
            rows.append({"way": way, **dict.fromkeys(columns, NOT_MEASURED)})
            continue
        rows.append(
            {
                "way": WAYS[record.loop],
                "s a worker": number(cost["seconds"]),
                "s once, by the caller": number(cost["once_s"]) if cost["once_s"] else "0",
                "bytes sent a worker": f"{cost['sent_bytes']:,}",
                "worker's peak memory, MiB": number(cost["peak_rss_bytes"] / 2**20),
            }
        )
    caption = "All 60,000 images and labels, from the request until the worker holds them; one run each"
    return tables.as_html(pd.DataFrame(rows), caption, "ways to pass the images")
