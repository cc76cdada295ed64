"""Groupings of word2vec's look-ups and updates: what a batch touches, what each grouping takes, which one wins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from overhead.measure import probing
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables

CASE = re.compile(r"(.+), (\d+) words, (\d+) pairs")
DENSE = "dense"


class Timed(NamedTuple):
    """A grouping at one vocabulary and batch size."""

    grouping: str
    device: str
    vocabulary: int
    pairs: int
    us: Interval  # a step, one wait at the end of a block
    record: Record


def timed(records: Sequence[Record]) -> list[Timed]:
    """Every grouping that was timed."""
    found = []
    for record in probing.select(records, "rows"):
        if case := CASE.fullmatch(record.op or ""):
            us = probing.interval_us(record, "end")
            found.append(Timed(case[1], record.device, int(case[2]), int(case[3]), us, record))
    return found


def shown(row: Timed) -> str:
    """A grouping's name, with its device where that is no CPU."""
    return row.grouping if row.device == "cpu" else f"{row.grouping} ({row.device})"


def cases(found: Sequence[Timed]) -> list[tuple[int, int]]:
    """Vocabularies and batch sizes in order."""
    return sorted({(row.vocabulary, row.pairs) for row in found})


def of_case(found: Sequence[Timed], vocabulary: int, pairs: int) -> list[Timed]:
    """The groupings of one case, the quickest first."""
    return sorted(
        (row for row in found if (row.vocabulary, row.pairs) == (vocabulary, pairs)), key=lambda row: row.us.median
    )


def counts(records: Sequence[Record]) -> dict[tuple[int, int], dict[str, Any]]:
    """What a batch touches, by vocabulary and pairs."""
    kept = [r.cost for r in records if r.part == "words" and r.cost]
    return {(cost["vocabulary"], cost["pairs"]): cost for cost in kept}


def touched_table(records: Sequence[Record]) -> pd.DataFrame:
    """A row a vocabulary and batch size: places, different rows among them, duplicates, bytes."""
    return pd.DataFrame(
        [
            {
                "vocabulary": f"{vocabulary:,}",
                "words from": cost["source"],
                "pairs in a batch": f"{pairs:,}",
                "rows looked up": f"{cost['looked_up']:,.0f}",
                "different rows": f"{cost['touched']:,.0f}",
                "duplicates": f"{1 - cost['touched'] / cost['looked_up']:.1%}",
                "bytes that must move": f"{cost['bytes']:,.0f}",
                "bytes of a dense update": f"{cost['dense_bytes']:,.0f}",
            }
            for (vocabulary, pairs), cost in sorted(counts(records).items())
        ]
    )


def table(records: Sequence[Record]) -> pd.DataFrame:
    """A row a case and grouping, the quickest first: time a step and a pair, and GB/s of different rows."""
    found, made = timed(records), []
    for vocabulary, pairs in cases(found):
        for row in of_case(found, vocabulary, pairs):
            moved = probing.facts(row.record)["bytes"]
            made.append(
                {
                    "vocabulary": f"{vocabulary:,}",
                    "pairs in a batch": f"{pairs:,}",
                    "grouping": shown(row),
                    "what it does": probing.facts(row.record)["does"],
                    "us a step": tables.interval(row.us),
                    "ns a pair": tables.number(1e3 * row.us.median / pairs),
                    "GB/s of what must move": tables.number(moved / row.us.median / 1e3),
                    "blocks": row.us.n,
                }
            )
    return pd.DataFrame(made)


def sure(rows: Sequence[Timed]) -> bool:
    """Whether the quickest one's interval lies below those of all others."""
    return len(rows) > 1 and rows[0].us.high < min(row.us.low for row in rows[1:])


def winners(records: Sequence[Record]) -> pd.DataFrame:
    """A row a case: the quickest grouping of all, and of those in NumPy."""
    found, made = timed(records), []
    for vocabulary, pairs in cases(found):
        rows = of_case(found, vocabulary, pairs)
        ours = [row for row in rows if row.grouping.startswith("numpy")]
        made.append(
            {
                "vocabulary": f"{vocabulary:,}",
                "pairs in a batch": f"{pairs:,}",
                "quickest": _won(rows),
                "quickest in NumPy": _won(ours) if ours else tables.NOT_MEASURED,
                "dense softmax over the quickest": _times(rows),
            }
        )
    return pd.DataFrame(made)


def _won(rows: Sequence[Timed]) -> str:
    return shown(rows[0]) if sure(rows) else f"{shown(rows[0])} (not clear of {shown(rows[1])})" if rows[1:] else "–"


def _times(rows: Sequence[Timed]) -> str:
    dense = [row for row in rows if DENSE in row.grouping]
    few = [row for row in rows if DENSE not in row.grouping]
    return tables.number(dense[0].us.median / few[0].us.median) if dense and few else tables.NOT_MEASURED
