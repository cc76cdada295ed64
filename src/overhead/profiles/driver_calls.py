"""Launches of CUDA's driver that a launch of its runtime made: one launch, traced twice."""

from __future__ import annotations

import numpy as np

from overhead.profiles.events import Calls, Ints


def fold(calls: Calls, matched: Ints, found: list[tuple[Ints, Ints]]) -> tuple[Calls, Ints]:
    """Leave out driver launches that a runtime launch made: they are the same launch, not another.

    They are those inside a runtime launch of the same thread, or with its correlation id. Kernels matched
    to one are matched to the runtime call instead.
    """
    row, key = (np.concatenate(column) for column in zip(*found, strict=True))
    runtime = calls.named([name.startswith("cuda") for name in calls.names])[row]
    outer, outer_key, inner, inner_key = row[runtime], key[runtime], row[~runtime], key[~runtime]
    made_by = np.full(len(calls), -1, np.int32)
    if len(outer) and len(inner):
        order = np.argsort(outer_key, kind="stable")
        at = np.minimum(np.searchsorted(outer_key[order], inner_key), len(outer) - 1)
        same = (outer_key[order][at] == inner_key) & (inner_key >= 0)
        made_by[inner[same]] = outer[order][at[same]]
        around = _last_before(calls, outer, inner)
        ends = calls.start[around] + calls.duration[around]
        within = (around >= 0) & (calls.start[inner] + calls.duration[inner] <= ends)
        made_by[inner[within]] = around[within]
    keep = made_by < 0
    target = np.where(keep, np.arange(len(calls), dtype=np.int32), made_by)
    renumbered = (np.cumsum(keep) - 1).astype(np.int32)
    matched = np.where(matched < 0, -1, renumbered[target[matched]]).astype(np.int32)
    for column in ("start", "duration", "name", "thread"):
        setattr(calls, column, getattr(calls, column)[keep])
    return calls, matched


def _last_before(calls: Calls, outer: Ints, inner: Ints) -> Ints:
    """For each row of `inner` the last of `outer` that began on its thread before it or with it; -1: none."""
    rows = np.concatenate([outer, inner])
    is_inner = np.arange(len(rows)) >= len(outer)
    order = np.lexsort((is_inner, calls.start[rows], calls.thread[rows]))
    sorted_rows, sorted_inner = rows[order], is_inner[order]
    last = np.maximum.accumulate(np.where(sorted_inner, -1, np.arange(len(rows))))
    found = np.where(last < 0, -1, sorted_rows[np.maximum(last, 0)])
    same = (found >= 0) & (calls.thread[np.maximum(found, 0)] == calls.thread[sorted_rows])
    result = np.full(len(rows), -1, np.int64)
    result[order] = np.where(same, found, -1)
    return result[len(outer) :]
