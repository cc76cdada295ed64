"""The chapters that measure: one study a notebook. Listing them imports no study."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overhead.studies.base import Study

STUDIES: dict[str, tuple[str, str]] = {
    "00-clocks": ("clocks", "Clocks"),
    "01-per-op-breakdown": ("per_op", "PerOp"),
    "02-flop-lower-bound": ("flop_bound", "FlopBound"),
    "03-where-time-goes": ("where_time_goes", "WhereTimeGoes"),
    "04-profile": ("profile", "Profile"),
    "05-batch-sweep": ("batch_sweep", "BatchSweep"),
    "06-overhead-ladder": ("ladder", "OverheadLadder"),
    "07-learning-rate-sweep": ("learning_rates", "LearningRates"),
}


def study(stem: str) -> type[Study]:
    """The study class of a notebook's stem. Raises `KeyError` for a stem that is none."""
    module, cls = STUDIES[stem]
    return getattr(import_module(f"overhead.studies.{module}"), cls)
