"""The zeros among the pixels, and what a step must cost that multiplies by none of them.

Counting rules are those of `bounds`: a multiply-add is two FLOPs, matrix products alone are counted, and each float32
operand is read once and each result written once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overhead.problem.bounds import WORD_BYTES, gemms
from overhead.problem.workload import Workload

PIXEL_BYTES = 2  # of a pixel's number beside its value


class NonZeros(NamedTuple):
    """Counts of the images that an epoch trains on."""

    by_pixel: NDArray[np.int64]  # (inputs,): images that use the pixel
    images: int
    rows: float  # pixels that some image of a batch uses, on average over the batches

    @property
    def per_image(self) -> float:
        """Non-zero pixels of an image, on average."""
        return float(self.by_pixel.sum() / self.images)

    @property
    def ever_used(self) -> int:
        """Pixels that some image uses."""
        return int(np.count_nonzero(self.by_pixel))

    @property
    def share(self) -> float:
        """Of the pixels of all images, 0 to 1."""
        return self.per_image / len(self.by_pixel)


def count(x: NDArray[np.floating], workload: Workload) -> NonZeros:
    """The non-zeros of `x`, (images, inputs), in the batches of `workload`."""
    seen, size = x[: workload.images_seen], workload.batch_size
    uses = np.stack([np.count_nonzero(seen[i : i + size], axis=0) for i in range(0, len(seen), size)])
    return NonZeros(uses.sum(axis=0), len(seen), float(np.count_nonzero(uses, axis=1).mean()))


def step_flops(workload: Workload, found: NonZeros) -> float:
    """FLOPs of a step's products without those by a zero pixel: first layer forward and its gradient, then the rest."""
    first = 2 * 2 * workload.batch_size * found.per_image * workload.layers[1]
    return first + sum(work.flops for work in gemms(workload) if work.name not in ("z1", "dw1"))


def step_bytes(workload: Workload, found: NonZeros) -> float:
    """Bytes that such a step cannot avoid: the non-zeros with their numbers, the labels, and the weights that it uses.

    Of the first layer those are the rows of the pixels in the batch, read and written, as is the rest as a whole.
    """
    index = workload.batch_size * found.per_image * (WORD_BYTES + PIXEL_BYTES)
    unused = (workload.layers[0] - found.rows) * workload.layers[1]
    return index + WORD_BYTES * (workload.batch_size + 2 * (workload.parameters - unused))
