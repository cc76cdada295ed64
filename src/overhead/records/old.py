"""Records of older schemas, converted while they are read. Nothing else knows that there were any."""

from __future__ import annotations

import math
from typing import Any


def converted(fields: dict[str, Any], to: int) -> dict[str, Any]:
    """The fields of a record of an older schema as those of schema `to`; the given ones stay as they are."""
    if fields["schema"] == 1:
        fields = {**fields, "schema": 2, "timing": _with_sets(fields)}
        if isinstance(probe := fields.get("probe"), dict) and probe.get("kind") == "floor":
            fields["probe"] = {**probe, "kind": "fixed"}  # a floor is of products alone
    if isinstance(timing := fields.get("timing"), dict) and isinstance(timing.get("samples"), list):
        fields = {**fields, "timing": {**timing, "samples": [_without_unit(samples) for samples in timing["samples"]]}}
    return {**fields, "schema": to}


NOT_TIMES = {"count:page-faults": ("page-faults", "counts"), "nvml:utilisation": ("gpu-utilisation", "shares")}


def _without_unit(samples: Any) -> Any:
    """Counts and shares were once kept as if they were seconds, schema 2 included; others stay as they are."""
    if not isinstance(samples, dict) or not isinstance(samples.get("seconds"), list):
        return samples
    if not isinstance(samples.get("clock"), str) or samples["clock"] not in NOT_TIMES:
        return samples
    name, unit = NOT_TIMES[samples["clock"]]
    whole = [round(v) if isinstance(v, float) and math.isfinite(v) else v for v in samples["seconds"]]
    values = whole if unit == "counts" else samples["seconds"]
    return {**samples, "clock": name, "seconds": None, unit: values}


def _with_sets(fields: dict[str, Any]) -> Any:
    """Schema 1 did not say which set of processes a series is of.

    Every set had one process a contestant, and its number, but for the floors of `quick`: there all were of one set.
    """
    timing = fields.get("timing")
    if not isinstance(timing, dict) or not isinstance(timing.get("samples"), list):
        return timing  # not for the conversion to judge
    one_set = fields.get("preset") == "quick" and str(fields.get("loop")).startswith("floor-")
    return {**timing, "samples": [_in_set(samples, one_set) for samples in timing["samples"]]}


def _in_set(samples: Any, one_set: bool) -> Any:
    if not isinstance(samples, dict) or "process" not in samples:
        return samples
    return {**samples, "process_set": 0 if one_set else samples["process"]}
