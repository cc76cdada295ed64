"""Every claim of the book: the chapters' own, in the order of the book. What a claim is stands in `showing.claims`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec

from overhead.chapters import CHAPTERS
from overhead.records.record import Record
from overhead.showing.claims import Claim, Finding, judged

CONCLUSIONS = {
    "C1": "A small model can train faster on a CPU.",
    "C2": "Peak TFLOPS is not a utilisation, and a bound is not a duration.",
    "C3": "Measure the whole workload: synchronisation, validation, dropped batches and compilation change the figure.",
    "C4": "Compare equivalent training, at equal validation quality.",
    "C5": "Measure your own devices: the number of parameters does not decide.",
    "C6": "Before buying other hardware, reduce dispatch and change the batch size.",
}
ROWS = tuple(f"S{number}" for number in range(1, 16))  # the article's claims, as its page numbers them


def claims() -> list[Claim]:
    """All claims, chapter by chapter. A chapter that claims anything has them in its folder's `claims.py`."""
    folders = dict.fromkeys(info.folder for info in CHAPTERS.values())
    names = [f"overhead.chapters.{folder}.claims" for folder in folders]
    return [claim for name in names if find_spec(name) for claim in import_module(name).CLAIMS]


def findings(records: Mapping[str, Sequence[Record]]) -> list[tuple[Claim, Finding]]:
    """Each claim with what a host's records (chapter → records) say of it."""
    return [(claim, judged(claim, records.get(claim.chapter))) for claim in claims()]
