"""Training loops in Keras: `fit` as users call it, as the article timed it, and as fast as its settings go.

Keras takes its backend from `KERAS_BACKEND` when it is first imported and has one a process; on JAX this
module imports no TensorFlow. The order of the images is the same for every loop, so `shuffle` is off.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, final

import keras
import numpy as np

from overhead.loops.base import Declined, Loop
from overhead.problem.data import Split
from overhead.problem.mlp import Params, flat, unflat
from overhead.problem.workload import Workload

XLA_PAYS_BELOW = 512  # images a batch on a CPU; found by the search that `KerasFitTunedLoop` describes


class State(NamedTuple):
    model: Any  # keras.Sequential, trained in place
    data: Any  # (x, y) of one epoch, (images, inputs) and (images,); or its batches as a tf.data.Dataset
    validation: Any  # (x, y) of the images that validate, or None
    batch_size: int
    epoch: int  # steps an epoch
    at: int  # the next batch


def sequential(params: Params) -> Any:
    """The article's model: ReLU layers, then softmax probabilities; its weights are copies of `params`."""
    *hidden, last = [w.shape for w, _ in params]
    model = keras.Sequential(
        [
            keras.Input((params[0].w.shape[0],)),
            *[keras.layers.Dense(outputs, activation="relu") for _, outputs in hidden],
            keras.layers.Dense(last[1], activation="softmax"),
        ]
    )
    model.set_weights(flat(params))
    return model


def compiled(params: Params, workload: Workload, **options: Any) -> Any:
    """The model with plain SGD and the mean cross-entropy of each batch; Keras always tracks the loss."""
    model = sequential(params)
    model.compile(
        optimizer=keras.optimizers.SGD(learning_rate=workload.learning_rate),
        loss="sparse_categorical_crossentropy",
        **options,
    )
    return model


def given(model: Any, data: Split, workload: Workload, *, validate: bool = False) -> State:
    """`model` and the arrays for `fit`, which copies them itself: whole on TensorFlow, by batches on JAX.

    They are views of `data`: a copy of ours would be the third while TensorFlow makes its own.
    """
    x, y = np.asarray(data.x)[: workload.images_seen], np.asarray(data.y)[: workload.images_seen]
    validation = (np.asarray(data.x_val), np.asarray(data.y_val)) if validate else None
    return State(model, (x, y), validation, workload.batch_size, workload.steps, 0)


def fit_arrays(state: State, first: int, steps: int, epochs: int) -> None:
    """`fit` over the rows of `steps` batches from batch `first` on; only whole epochs are validated."""
    rows = slice(first * state.batch_size, (first + steps) * state.batch_size)
    x, y = state.data
    state.model.fit(
        x[rows],                                                # (images, inputs)
        y[rows],                                                # (images,)
        batch_size=state.batch_size,
        epochs=epochs,
        validation_data=state.validation if steps == state.epoch else None,
        shuffle=False,
        verbose=0,
    )  # fmt: skip


class KerasLoop(Loop):
    """What the Keras variants share: one `fit` for all whole epochs, one for what is left over."""

    backend: ClassVar[str]

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        if keras.config.backend() != self.backend:
            raise Declined(
                f"KERAS_BACKEND must be {self.backend} before Keras is imported, got {keras.config.backend()}"
            )

    @abstractmethod
    def fit(self, state: State, first: int, steps: int, epochs: int) -> None:
        """Train on `steps` batches from batch `first` on, `epochs` times."""

    def run(self, state: State, steps: int) -> State:
        at, epoch = state.at, state.epoch
        while steps:
            if at == 0 and steps >= epoch:
                self.fit(state, 0, epoch, epochs=steps // epoch)
                steps %= epoch
            else:
                part = min(steps, epoch - at)
                self.fit(state, at, part, epochs=1)
                steps, at = steps - part, (at + part) % epoch
        return state._replace(at=at)

    def steps_per_call(self, workload: Workload) -> int:
        return workload.steps

    def settings(self, state: State) -> dict[str, str]:
        return {
            "keras": keras.version(),
            "backend": keras.config.backend(),
            "floatx": keras.config.floatx(),
            "jit_compile": "on" if state.model.jit_compile else "off",  # what "auto" came to
            "steps_per_execution": str(state.model.steps_per_execution),
            "matmul_precision": "float32",
        }


class KerasOnTensorFlow(KerasLoop):
    """Waiting and placing on TensorFlow."""

    framework = "tensorflow"
    backend = "tensorflow"

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        from overhead.loops import tensorflow_  # absent where Keras stands on JAX

        self.tf = tensorflow_
        tensorflow_.see_only(device)

    def block(self, state: State) -> None:
        self.tf.sync_devices()

    def fetch(self, state: State) -> Params:
        return unflat([weight.value.numpy() for weight in state.model.weights])

    def placed_on(self, state: State) -> tuple[str, str]:
        return self.tf.whereabouts(state.model.weights[0].value.read_value())

    def settings(self, state: State) -> dict[str, str]:
        return {**super().settings(state), "matmul_precision": self.tf.matmul_precision()}


@final
class KerasFitLoop(KerasOnTensorFlow):
    """What a user gets: arrays given to `fit`, every setting left alone, training only.

    Keras turns XLA on by itself where TensorFlow sees a GPU, even a hidden one: see `settings`.
    """

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        return given(compiled(params, workload), data, workload)

    def fit(self, state: State, first: int, steps: int, epochs: int) -> None:
        fit_arrays(state, first, steps, epochs)


@final
class KerasFitValidatedLoop(KerasOnTensorFlow):
    """As the article timed it: the accuracy metric on, and the validation images scored after each epoch."""

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        if not len(data.y_val):
            raise Declined(f"validation needs images kept for it, got 0 in the {data.name} data")
        return given(compiled(params, workload, metrics=["accuracy"]), data, workload, validate=True)

    def fit(self, state: State, first: int, steps: int, epochs: int) -> None:
        fit_arrays(state, first, steps, epochs)


@final
class KerasFitTunedLoop(KerasOnTensorFlow):
    """The best settings that Keras on TensorFlow has for this loop; only the loss is tracked.

    Searched in interleaved runs on 2 shared cores, `keras-fit` among the candidates:
    - `steps_per_execution` 1, 10, 100, the epoch at batch size 32: the more the better; the epoch also
      beats 1 at 512 and 4096.
    - NumPy arrays or a pre-batched tf.data.Dataset, plain, with `prefetch` or with `cache`: arrays, which
      Keras gathers row by row, lose at 32, 512 and 4096; `prefetch` wins or is even; `cache` is even.
    - `jit_compile`: XLA wins at 32, is even at 128 and 512, and loses at 2048 and 4096. On a GPU it was
      not searched; there it stays on, as Keras itself would have it.
    - Even in the noise at 32, so left alone: `unrolled_steps_per_execution` 8, tf.data's autotuning and
      optimisations off, a private pool of one thread for it, no parallelism within its operations.
    """

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        xla = self.device == "gpu" or workload.batch_size < XLA_PAYS_BELOW
        model = compiled(params, workload, steps_per_execution=workload.steps, jit_compile=xla)
        batches = self.tf.pre_batched(data, workload)
        return State(model, batches, None, workload.batch_size, workload.steps, 0)

    def fit(self, state: State, first: int, steps: int, epochs: int) -> None:
        batches = state.data if steps == state.epoch else state.data.skip(first).take(steps)
        state.model.fit(batches, epochs=epochs, shuffle=False, verbose=0)


@final
class KerasJaxFitLoop(KerasLoop):
    """`keras-fit` word for word on Keras's JAX backend, which compiles each step by default."""

    framework = "keras"
    backend = "jax"

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        import jax  # absent where Keras stands on TensorFlow

        self.jax = jax
        try:
            jax.devices(device)
        except RuntimeError:
            raise Declined(f"JAX must see a {device}, got {jax.default_backend()} only") from None

    @contextmanager
    def scope(self) -> Iterator[None]:
        device = self.jax.devices(self.device)[0]
        with self.jax.default_device(device), self.jax.default_matmul_precision("float32"):  # no TF32
            yield

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        with self.scope():
            return given(compiled(params, workload), data, workload)

    def fit(self, state: State, first: int, steps: int, epochs: int) -> None:
        with self.scope():
            fit_arrays(state, first, steps, epochs)

    def block(self, state: State) -> None:
        for weight in state.model.weights:
            weight.value.block_until_ready()

    def fetch(self, state: State) -> Params:
        return unflat([np.array(weight.value) for weight in state.model.weights])

    def placed_on(self, state: State) -> tuple[str, str]:
        (device,) = state.model.weights[0].value.devices()
        return ("cpu" if device.platform == "cpu" else "gpu"), device.device_kind
