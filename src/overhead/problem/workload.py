"""What is trained: the layers, the batches and the rate, with every count that follows from them."""

from __future__ import annotations

import math
import operator
from itertools import pairwise
from numbers import Real
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

MNIST_LAYERS = (784, 128, 10)
MNIST_INPUTS, MNIST_CLASSES = 784, 10
TRAINING_IMAGES = 48_000


def _count(value: Any) -> int:
    """A whole number; a text, a bool or a float is no count."""
    problem = f"must be a whole number, got {value!r}"
    if isinstance(value, bool):
        raise ValueError(problem)
    try:
        return operator.index(value)  # also NumPy's integers; NumPy's bool and arrays have no index
    except TypeError:
        raise ValueError(problem) from None


def _rate(value: Any) -> float:
    """A finite number above 0. YAML reads `1e-3` as text, so numeric text is the number it spells."""
    problem = f"must be a finite number above 0, got {value!r}"
    if isinstance(value, bool) or not isinstance(value, Real | str):
        raise ValueError(problem)  # bytes, arrays and NumPy's bool would pass through float()
    try:
        rate = float(value)
    except (ValueError, OverflowError):
        raise ValueError(problem) from None
    if not math.isfinite(rate) or rate <= 0:
        raise ValueError(problem)
    return rate


def _layers(value: Any) -> Any:
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise ValueError(f"must be a list of two or more layer sizes, got {value!r}")
    return tuple(value)


Count = Annotated[int, BeforeValidator(_count)]
Size = Annotated[int, BeforeValidator(_count), Field(gt=0)]
LearningRate = Annotated[float, BeforeValidator(_rate)]
Layers = Annotated[tuple[Size, ...], BeforeValidator(_layers), Field(min_length=2)]


class Workload(BaseModel, frozen=True, strict=True, extra="forbid"):
    """An MLP with ReLU hidden layers and softmax cross-entropy, and the batches it is trained on by SGD.

    Arrays are float32, labels int32. The order of the images is the same in every epoch.

    Raises `pydantic.ValidationError` for a count that is no whole number above 0, for a rate that is
    not finite and above 0, and for a batch size above the number of images.
    """

    layers: Layers = MNIST_LAYERS  # inputs, hidden units …, classes
    batch_size: Count = 32  # images per step
    images: Size = TRAINING_IMAGES  # training images
    remainder: Literal["drop", "keep"] = "drop"  # what becomes of the last, partial batch
    epochs: Size = 1
    learning_rate: LearningRate = 0.1
    seed: Annotated[int, BeforeValidator(_count), Field(ge=0)] = 0  # parameters and order of images

    @model_validator(mode="after")
    def _batch_fits(self) -> Workload:
        if not 1 <= self.batch_size <= self.images:
            raise ValueError(f"batch_size must be between 1 and {self.images} (training images), got {self.batch_size}")
        return self

    @property
    def last_batch(self) -> int:
        """Images in the short last batch of an epoch; 0 when the batch size divides the images."""
        return self.images % self.batch_size

    @property
    def whole_batches(self) -> int:
        """Full batches per epoch."""
        return self.images // self.batch_size

    @property
    def steps(self) -> int:
        """Steps (parameter updates) per epoch."""
        return self.whole_batches + (self.last_batch > 0 and self.remainder == "keep")

    @property
    def images_seen(self) -> int:
        """Images that one epoch trains on."""
        return self.images if self.remainder == "keep" else self.whole_batches * self.batch_size

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return sum(inputs * outputs + outputs for inputs, outputs in pairwise(self.layers))

    @property
    def batch_bytes(self) -> int:
        """Bytes of one full batch of float32 inputs."""
        return 4 * self.batch_size * self.layers[0]

    @property
    def is_mnist(self) -> bool:
        """Whether MNIST fits the first and the last layer."""
        return self.layers[0] == MNIST_INPUTS and self.layers[-1] == MNIST_CLASSES
