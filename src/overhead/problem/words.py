"""Word pairs for skip-gram with negative sampling: from Python's own help texts, or drawn by Zipf's law.

The texts (`pydoc_data.topics`) come with every Python, so nothing is downloaded and nothing shipped; their words
differ a little between versions. The objective is that of Mikolov et al. (2013), the pairs of a batch at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

WINDOW = 2  # words on each side of a centre
NEGATIVES = 5  # drawn for each pair, by frequency to the power of 3/4 as in word2vec
DIMENSIONS = 64  # of a word's vector
RATE = 1.0  # of the mean over a batch's pairs
BATCHES = 8  # that take turns
ZIPF_WORDS = 200_000  # of a drawn text
SEED = 20260101

Array = NDArray[Any]


class Batch(NamedTuple):
    """Pairs whose gradients are taken at the same weights."""

    centres: Array  # (pairs,) int32
    targets: Array  # (pairs, 1 + NEGATIVES) int32: the context first


class Weights(NamedTuple):
    """A vector a word, as a centre and as a target: (vocabulary, DIMENSIONS) each."""

    centres: Array
    targets: Array


class Counts(NamedTuple):
    """What an update of a batch touches, on average over the batches."""

    looked_up: float  # rows read, one for each place in the batch
    touched: float  # different ones among them
    bytes: float  # of the different rows, read and written once
    dense_bytes: float  # of all weights, read and written once

    @property
    def duplicates(self) -> float:
        """Places that name a row which another place names too, as a share of all."""
        return 1 - self.touched / self.looked_up


@cache
def text() -> tuple[str, ...]:
    """The words of Python's help texts, in order. Raises `ImportError` where a Python comes without them."""
    from pydoc_data.topics import topics

    return tuple(re.findall(r"[a-z]+", " ".join(topics[name] for name in sorted(topics)).lower()))


@cache
def ids(vocabulary: int) -> Array:
    """A running text as numbers of words, the most frequent 0: int32.

    Words that are rarer than the `vocabulary` most frequent are left out. Where the text has fewer words than that,
    they are drawn: the word of rank r with a probability in proportion to 1 / r (Zipf's law).
    """
    words = np.array(text())
    names, at, uses = np.unique(words, return_inverse=True, return_counts=True)
    if vocabulary > len(names):
        chance = 1 / np.arange(1, vocabulary + 1)
        rng = np.random.default_rng(SEED)
        return rng.choice(vocabulary, ZIPF_WORDS, p=chance / chance.sum()).astype(np.int32)
    rank = np.empty(len(names), np.int32)
    rank[np.argsort(-uses, kind="stable")] = np.arange(len(names))
    found = rank[at]
    return found[found < vocabulary]


def distinct() -> int:
    """Different words of the text."""
    return len(set(text()))


def batches(vocabulary: int, pairs: int, count: int = BATCHES) -> list[Batch]:
    """The first `count` batches of a text's pairs; a text that is too short begins again."""
    words, rng = ids(vocabulary), np.random.default_rng(SEED + 1)
    offsets = [o for o in range(-WINDOW, WINDOW + 1) if o]
    needed = pairs * count
    at = np.arange(needed) // len(offsets)
    centres = words[(WINDOW + at) % len(words)]
    contexts = words[(WINDOW + at + np.tile(offsets, needed // len(offsets) + 1)[:needed]) % len(words)]
    chance = np.bincount(words, minlength=vocabulary) ** 0.75
    negatives = rng.choice(vocabulary, (needed, NEGATIVES), p=chance / chance.sum())
    targets = np.column_stack([contexts, negatives]).astype(np.int32)
    return [Batch(centres[i : i + pairs], targets[i : i + pairs]) for i in range(0, needed, pairs)]


def counts(found: Sequence[Batch], vocabulary: int) -> Counts:
    """Rows that the batches look up and touch, and their bytes in float32."""
    looked_up = np.mean([batch.centres.size + batch.targets.size for batch in found])
    touched = np.mean([len(np.unique(b.centres)) + len(np.unique(b.targets)) for b in found])
    row = 2 * 4 * DIMENSIONS
    return Counts(float(looked_up), float(touched), float(row * touched), float(2 * row * vocabulary))


def init(vocabulary: int) -> Weights:
    """The first weights, float32; those of targets are not zero, so that the first step moves both."""
    rng = np.random.default_rng(SEED)
    shape = (vocabulary, DIMENSIONS)
    return Weights(*(rng.normal(0, 0.3, shape).astype(np.float32) for _ in range(2)))


def reference_step(weights: Weights, batch: Batch, rate: float = RATE) -> Weights:
    """One step in float64, row by row, so that a row that is named twice moves twice."""
    centres, targets = (w.astype(np.float64) for w in weights)
    rate /= len(batch.centres)
    v, u = centres[batch.centres], targets[batch.targets]  # (pairs, DIMENSIONS), (pairs, 1 + NEGATIVES, DIMENSIONS)
    score = np.einsum("pd,ptd->pt", v, u)
    gradient = 1 / (1 + np.exp(-score))
    gradient[:, 0] -= 1  # the context should score high, what was drawn low
    for row, change in zip(batch.centres, rate * np.einsum("pt,ptd->pd", gradient, u), strict=True):
        centres[row] -= change
    changes = rate * gradient[:, :, None] * v[:, None]
    for row, change in zip(batch.targets.ravel(), changes.reshape(-1, changes.shape[-1]), strict=True):
        targets[row] -= change
    return Weights(centres, targets)
