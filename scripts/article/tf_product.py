"""The article's TensorFlow micro-benchmark: (32, 784) @ (784, 128) on each device, waited for once, or each time.

    python scripts/article/tf_product.py [--calls 1000]

Prints microseconds a call as JSON. Waiting once at the end lets calls of a GPU overlap; waiting after each does not.
Both include dispatch, and neither is the time of the arithmetic (chapter 1 and 2).
"""

import argparse
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--calls", type=int, default=1000)
asked = parser.parse_args()

rng = np.random.default_rng(0)
x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((32, 784), (784, 128)))
found = {}
for device in ("CPU:0", *(f"GPU:{n}" for n in range(len(tf.config.list_physical_devices("GPU"))))):
    with tf.device(device):
        a, b = tf.constant(x), tf.constant(w)
        product = tf.matmul(a, b).numpy()  # the first call is kept out of the clock
        begun = time.perf_counter()
        for _ in range(asked.calls):
            c = tf.matmul(a, b)
        c.numpy()
        once = time.perf_counter() - begun
        begun = time.perf_counter()
        for _ in range(asked.calls):
            tf.matmul(a, b).numpy()
        each = time.perf_counter() - begun
    error = float(np.abs(product - x @ w).max() / np.abs(x @ w).max())
    us = {"waited_once_us": 1e6 * once / asked.calls, "waited_each_us": 1e6 * each / asked.calls}
    found[device] = {**us, "relative_error": error}
print(json.dumps(found))
