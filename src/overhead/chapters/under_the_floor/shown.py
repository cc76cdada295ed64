"""Tables of the page beside the rungs: images without a zero, many models, and the race to 97 %."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from overhead.chapters.under_the_floor import rungs
from overhead.chapters.under_the_floor.taking import IMPORT
from overhead.records import stats
from overhead.records.record import Record
from overhead.showing import tables
from overhead.showing.claims import scaled

RACE = "Each command in a fresh process; median [95 % interval]"


def noise(records: Sequence[Record]) -> pd.DataFrame:
    """The same rungs on images without a zero, beside the dense floor on those."""
    part = rungs.part(records, "noise")
    made = []
    for row in tables.epoch_rows(part):
        made.append(
            {
                "rung": row.record.loop, "images": "uniform noise: no zero",
                "seconds per epoch": tables.interval(row.headline_s) if row.headline_s else tables.NOT_MEASURED,
                "times the dense floor": tables.interval(row.times_floor) if row.times_floor
                else tables.NOT_MEASURED,
                "error against the reference": f"{row.record.agreement['error']:.1e}"
                if row.record.agreement and row.record.agreement.get("error") is not None else tables.NOT_MEASURED,
                "note": "" if row.record.status == "ok" else f"{row.record.status}: {row.record.reason}",
            }
        )  # fmt: skip
    return pd.DataFrame(made)


def models(records: Sequence[Record]) -> pd.DataFrame:
    """Seconds of an epoch of all models, against as many dense floors."""
    part, made = rungs.part(records, "models"), []
    for record in part:
        if record.loop.startswith("floor"):
            continue
        beside = [r for r in part if r.beside == record.beside]
        one = tables.times_floor(record, beside) if record.status == "ok" else None
        count = record.models or 1
        made.append(
            {
                "engine": record.loop, "arithmetic": kind_of_engine(record.loop), "models": count,
                "seconds, an epoch of all": tables.interval(seconds)
                if record.status == "ok" and (seconds := tables.headline(record)) else tables.NOT_MEASURED,
                "times as many dense floors": tables.interval(scaled(one, 1 / count))
                if one else tables.NOT_MEASURED,
                "note": "" if record.status == "ok" else f"{record.status}: {record.reason}",
            }
        )  # fmt: skip
    return pd.DataFrame(made)


def race(records: Sequence[Record]) -> pd.DataFrame:
    """From the command to 97 %, step by step, and the import of Keras beside it."""
    made = []
    for record in rungs.part(records, "race"):
        row = {"command": "train to the goal with `sparse`" if record.loop == "sparse" else f'python -c "{IMPORT}"'}
        cost = record.cost
        if not cost:
            made.append({**row, "note": f"{record.status}: {record.reason}"})
            continue
        accuracies = cost.get("val_accuracy") or []
        made.append(
            {
                **row,
                "seconds from start to end": tables.interval(stats.median_interval([cost["wall_s"]])),
                "epochs": str(cost["epochs"]) if accuracies else tables.NOT_MEASURED,
                "validation accuracy": f"{accuracies[-1]:.2%}" if accuracies else tables.NOT_MEASURED,
                "of it reading the images, s": tables.number(cost.get("load_s", np.nan)),
                "sorting the index, s": tables.number(cost.get("place_s", np.nan)),
                "training, s": tables.number(cost.get("train_s", np.nan)),
                "note": "",
            }
        )
    return pd.DataFrame(made).fillna(tables.NOT_MEASURED)


def kind_of_engine(loop: str) -> str:
    """As `rungs.kind`, of an engine of the sweep too."""
    return "does less arithmetic" if loop == "sparse-many" else rungs.kind(loop)
