"""The constants of a host, as a file: what `overhead calibrate` writes and every prediction reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from overhead.machine import host as hosts
from overhead.model.products import Fit
from overhead.records import record as records

FILE = "constants.json"
SCHEMA = 1
TERMS = ("epoch_s", "call_s", "op_s", "logit_s", "product_factor", "memory_factor")

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Curve = Annotated[list[tuple[Positive, NotNegative]], Field(min_length=2)]  # array bytes, seconds a byte


class NoConstants(ValueError):
    """Constants that are missing, damaged or of another machine; says what to do."""


class Frame(BaseModel, frozen=True, extra="forbid"):
    """What a loop pays besides its products and passes, from its own steps at sizes made for it.

    `draws` are the same constants from resampled steps. `at` and `weights`: what the sum leaves over at those steps,
    smoothed (`kriging`). `residuals`: log(measured / predicted) of each step by constants that never saw it.
    """

    epoch_s: NotNegative  # an epoch
    call_s: NotNegative  # a step
    op_s: NotNegative  # an operator of a step
    logit_s: NotNegative  # a logit of a step
    product_factor: Positive  # products in the step over products by themselves
    memory_factor: NotNegative  # passes in the step over passes by themselves
    draws: Annotated[list[tuple[float, float, float, float, float, float]], Field(min_length=1)]
    residuals: Annotated[list[float], Field(min_length=1)]
    at: list[tuple[float, float, float]] = []
    weights: list[float] = []
    timed: list[tuple[tuple[int, ...], int, int, Positive]] = []  # layers, batch size, images, seconds an epoch


class Library(BaseModel, frozen=True, extra="forbid"):
    """The products of one library with one number of threads."""

    fits: dict[str, Fit]  # by layout: nn, tn, nt
    residuals: Annotated[list[float], Field(min_length=1)]  # log(measured / predicted) of products left out
    rivals: dict[str, float]  # median |log error| of the formula and of simpler ways, each on products left out


class Constants(BaseModel, frozen=True, extra="forbid"):
    """All of one host: `host` holds the facts by which another machine is told."""

    version: Annotated[int, Field(ge=1, le=SCHEMA)] = SCHEMA
    name: str
    host: dict[str, Any]
    versions: dict[str, str]
    started: str
    seconds: NotNegative  # that the calibration took
    threads: Annotated[int, Field(gt=0)]  # of frames and of the first choice
    far_bytes: Positive  # an epoch larger than this is read from memory
    products: dict[str, dict[str, Library]]  # by library, by number of threads
    passes: dict[str, Curve]  # by framework: elementwise work on arrays that are there
    fresh: Curve  # what a new array costs on top, in NumPy: allocation and page faults
    frames: dict[str, Frame]


def path_of(results: Path, name: str) -> Path:
    return results / name / FILE


def write(path: Path, constants: Constants) -> None:
    """Keep constants, whole or not at all."""
    records.write_text(path, json.dumps(_short(constants.model_dump(mode="json")), allow_nan=False) + "\n")


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, list) else value


def read(results: Path, name: str, here: dict[str, Any] | None = None) -> Constants:
    """The constants of the host `name`. `here` holds this machine's facts; with it, another machine's are refused.

    Raises `NoConstants` where there are none, where the file is damaged, and for those of another machine.
    """
    path = path_of(results, name)
    if not path.exists():
        raise NoConstants(f"constants of host {name!r} must be measured first: overhead calibrate --host {name}")
    try:
        found = Constants.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise NoConstants(f"{name}/{FILE}: {where}: {first['msg']}; overhead calibrate --host {name} anew") from None
    except (OSError, UnicodeDecodeError) as error:
        raise NoConstants(f"{name}/{FILE} cannot be read: {error}") from None
    if here is not None and (why := hosts.other_host(found.host, here)):
        raise NoConstants(f"{name}/{FILE} is of another machine: {why}; overhead calibrate --host {name} here")
    return found
