"""One process a learning rate, as the article sketches it: a spawn pool, Keras, the images passed as an argument.

    python scripts/article_pool.py --rates 0.001,0.01,0.1,1,10 --epochs 1

`spawn` starts this file again in every process, which is why the last lines stand behind a main guard: without it
each process would open a pool of its own. Prints one JSON document: seconds from the first line of this file to
the last result, imports included, and each rate's history.
"""

import time

START = time.time()

import argparse  # noqa: E402  (the clock starts before the imports, since they are part of what this costs)
import json  # noqa: E402
import multiprocessing  # noqa: E402
import os  # noqa: E402


def train(task):
    """Train one configuration in this process; the images came with the task, by pickle."""
    rate, epochs, batch_size, threads, x, y = task
    arrived = time.time()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", KERAS_BACKEND="tensorflow", TF_NUM_INTRAOP_THREADS=str(threads))
    import keras

    imported = time.time()
    keras.utils.set_random_seed(int(rate * 1000) % 2**31)  # each rate its own first weights, as in the article
    model = keras.Sequential(
        [
            keras.Input((784,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.SGD(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(x, y, batch_size=batch_size, epochs=epochs, validation_split=0.2, verbose=0).history
    return {
        "rate": rate,
        "import_s": imported - arrived,
        "fit_s": time.time() - imported,
        "loss": [float(value) for value in history["loss"]],
        "val_accuracy": [float(value) for value in history["val_accuracy"]],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="0.001,0.01,0.1,1,10")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--processes", type=int, default=5, help="the article's pool has 5, whatever the cores")
    parser.add_argument("--threads", type=int, default=0, help="TensorFlow threads a process; 0: TensorFlow's choice")
    parser.add_argument("--images", type=int, default=60_000)
    asked = parser.parse_args()

    from overhead.problem.data import load_mnist

    mnist = load_mnist()
    x, y = mnist.images[: asked.images], mnist.labels[: asked.images]
    rates = [float(rate) for rate in asked.rates.split(",")]
    tasks = [(rate, asked.epochs, asked.batch_size, asked.threads, x, y) for rate in rates]
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        rows = pool.map(train, tasks, chunksize=1)
    for row in rows:  # a rate that diverged has no number to show, and JSON has no nan
        row["loss"] = [value if value == value and abs(value) < float("inf") else None for value in row["loss"]]
    print(
        json.dumps(
            {
                "wall_s": time.time() - START,
                "processes": asked.processes,
                "passed_bytes": sum(t[4].nbytes + t[5].nbytes for t in tasks),
                "rows": rows,
            }
        )
    )


if __name__ == "__main__":
    main()
