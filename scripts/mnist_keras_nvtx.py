"""MNIST in Keras with NVTX ranges, to be run under Nsight Systems or alone:

    nsys profile --trace=cuda,nvtx -o mnist-keras python mnist_keras_nvtx.py
    nsys export --type=sqlite -o mnist-keras.sqlite mnist-keras.nsys-rep
    overhead profile mnist-keras.sqlite

The ranges tell training from validation, which a count of launches cannot: 1,500 training and 375 validation
batches of 32 make 1,875, and so does one epoch of 60,000 images without a split. Ranges need the `nvtx` package
(`pip install nvtx`); without it the script trains all the same.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import argparse
from contextlib import nullcontext

import keras

from overhead.problem.data import load_mnist

try:
    import nvtx

    annotate = nvtx.annotate
except ImportError:
    annotate = nullcontext


class Ranges(keras.callbacks.Callback):
    """Opens and closes the ranges epoch > train > step and epoch > validate > step."""

    def __init__(self):
        super().__init__()
        self.open = []

    def enter(self, name):
        self.open.append((name, annotate(name)))
        self.open[-1][1].__enter__()

    def leave(self, name):
        if self.open and self.open[-1][0] == name:
            self.open.pop()[1].__exit__(None, None, None)

    def on_epoch_begin(self, epoch, logs=None):
        self.enter("epoch")
        self.enter("train")

    def on_train_batch_begin(self, batch, logs=None):
        self.enter("step")

    def on_train_batch_end(self, batch, logs=None):
        self.leave("step")

    def on_test_begin(self, logs=None):  # Keras validates before it ends the epoch
        self.leave("train")
        self.enter("validate")

    def on_test_batch_begin(self, batch, logs=None):
        self.enter("step")

    def on_test_batch_end(self, batch, logs=None):
        self.leave("step")

    def on_test_end(self, logs=None):
        self.leave("validate")

    def on_epoch_end(self, epoch, logs=None):
        self.leave("train")
        self.leave("epoch")


def main():
    parser = argparse.ArgumentParser(description="Train 784-128-10 on MNIST with NVTX ranges.")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--images", type=int, default=60_000, help="images before the split")
    parser.add_argument("--validation-split", type=float, default=0.2, help="share that validates; 0 for none")
    wanted = parser.parse_args()

    images, labels, _ = load_mnist()
    model = keras.Sequential(
        [
            keras.Input((784,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        images[: wanted.images],
        labels[: wanted.images],
        batch_size=wanted.batch_size,
        epochs=wanted.epochs,
        validation_split=wanted.validation_split,
        callbacks=[Ranges()],
        verbose=2,
    )
    print("NVTX ranges:", "none, the nvtx package is not installed" if annotate is nullcontext else "written")


if __name__ == "__main__":
    main()
