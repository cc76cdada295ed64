"""What a sweep trains: a model for each learning rate and shape, from the same first parameters on the same images."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from numbers import Real
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from overhead.problem.workload import (
    MNIST_CLASSES,
    MNIST_INPUTS,
    MNIST_LAYERS,
    TRAINING_IMAGES,
    Count,
    Layers,
    LearningRate,
    Size,
    Workload,
)

RATES = (0.001, 0.01, 0.1, 1.0, 10.0)  # the article's
MOST_MODELS = 100_000
SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
RANGE = re.compile(r"\s*([^:,]+):([^:,]+):(\d+)\s*")
Engine = Literal["auto", "sequential", "vmap", "stacked", "sparse", "jax-pool", "keras-pool", "dask"]


class Member(NamedTuple):
    """One model of a sweep."""

    rate: float
    seed: int  # of its first parameters
    layers: tuple[int, ...]


def rates_of(value: Any) -> tuple[float, ...]:
    """Learning rates in order, duplicates kept: of numbers, of numeric texts, and of ranges START:STOP:COUNT.

    A range is logarithmic and holds both its ends. Integers, floats and NumPy scalars of one value are one rate.
    Raises `ValueError` for anything that is no finite number above 0.
    """
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, Real) and not isinstance(parts, bool):
        parts = [parts]
    if isinstance(parts, bytes | dict) or not hasattr(parts, "__iter__"):
        raise ValueError(f"must be numbers, or a range such as 1e-3:1e1:41, got {value!r}")
    found: list[float] = []
    for part in parts:
        if isinstance(part, str) and (ends := RANGE.fullmatch(part)):
            count = int(ends[3])
            low, high = _rate(ends[1]), _rate(ends[2])
            if not 2 <= count <= MOST_MODELS:
                raise ValueError(f"range must have 2 to {MOST_MODELS} rates, got {part!r}")
            found.extend(float(f"{rate:.12g}") for rate in np.geomspace(low, high, count))
        else:
            found.append(_rate(part))
    if not 1 <= len(found) <= MOST_MODELS:
        raise ValueError(f"must be 1 to {MOST_MODELS} rates, got {len(found)}")
    return tuple(found)


def _rate(value: Any) -> float:
    if isinstance(value, np.floating):
        value = str(value)  # the shortest decimal: the float32 that prints 0.1 is the rate 0.1
    text = value.strip() if isinstance(value, str) else value
    try:
        rate = float(text) if isinstance(text, str | Real) and not isinstance(text, bool) else math.nan
    except (ValueError, OverflowError):
        rate = math.nan
    if not math.isfinite(rate) or rate <= 0:
        raise ValueError(f"must be finite numbers above 0, got {value!r}")
    if not SMALLEST <= rate <= LARGEST:
        raise ValueError(f"must be between {SMALLEST:.2g} and {LARGEST:.2g} (float32), got {value!r}")
    return rate


def _shapes(value: Any) -> tuple[Any, ...]:
    """One list of layers, or several."""
    several = not isinstance(value, str | bytes) and hasattr(value, "__iter__") and len(value) > 0
    several = several and all(hasattr(part, "__iter__") and not isinstance(part, str) for part in value)
    return tuple(value) if several else (value,)


class Sweep(BaseModel, frozen=True, strict=True, extra="forbid"):
    """Learning rates, and what every one of them trains. Raises `pydantic.ValidationError` naming what is wrong."""

    rates: Annotated[tuple[LearningRate, ...], BeforeValidator(rates_of)] = RATES
    epochs: Size = 1
    batch_size: Count = 32  # images per step
    layers: Annotated[tuple[Layers, ...], BeforeValidator(_shapes)] = (MNIST_LAYERS,)
    images: Size = TRAINING_IMAGES
    seed: Annotated[Count, Field(ge=0)] = 0  # first parameters, and the order of the images
    own_weights: bool = False  # each rate its own first parameters, as in the article
    engine: Engine = "auto"
    device: Literal["cpu", "gpu"] = "cpu"

    @model_validator(mode="after")
    def _fits(self) -> Sweep:
        for layers in self.layers:
            if layers[0] != MNIST_INPUTS or layers[-1] != MNIST_CLASSES:
                raise ValueError(
                    f"layers must begin with {MNIST_INPUTS} (pixels) and end with {MNIST_CLASSES} (classes), "
                    f"got {'-'.join(map(str, layers))}"
                )
            self.workload(layers)
        return self

    def workload(self, layers: Sequence[int]) -> Workload:
        """What each model of these layers trains on; its learning rate is the member's."""
        return Workload(
            layers=tuple(layers), batch_size=self.batch_size, images=self.images, epochs=self.epochs, seed=self.seed
        )

    def members(self) -> list[Member]:
        """A model for each shape and rate, in order."""
        return [
            Member(rate, fold_in(self.seed, rate) if self.own_weights else self.seed, layers)
            for layers in self.layers
            for rate in self.rates
        ]


def fold_in(seed: int, rate: float) -> int:
    """A seed of its own for a rate: another model in the sweep changes it for no other, and equal rates share it."""
    bits = int(np.float32(rate).view(np.uint32))
    return int(np.random.SeedSequence([seed, bits]).generate_state(1)[0])
