"""The article's flat script: the clock around each operation, the sums in a dictionary.

    python scripts/article/per_op.py [--steps 1000]

Prints microseconds a step for each operation as JSON. The clock is read twice an operation, which a step of a real loop
does not pay; chapter 1 does the same in turns and with intervals, and says what looking costs.
"""

import argparse
import json
import time
from collections import defaultdict

import numpy as np

from overhead.problem import data, mlp
from overhead.problem.workload import Workload

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
asked = parser.parse_args()

work = Workload(images=min(48_000, 32 * asked.steps))
split = data.for_workload(work)
(w1, b1), (w2, b2) = (layer for layer in mlp.init(work))  # (784, 128), (128,), (128, 10), (10,)
timings, lr, clock = defaultdict(float), np.float32(work.learning_rate), time.perf_counter
rows = np.arange(32)

for step in range(asked.steps):
    at = 32 * (step % work.steps)
    xb, yb = split.x[at : at + 32], split.y[at : at + 32]  # (32, 784), (32,)
    t = clock(); z1 = xb @ w1 + b1; timings["fwd: X @ W1 + b1"] += clock() - t  # fmt: skip # noqa: E702
    t = clock(); a1 = np.maximum(0, z1); timings["fwd: ReLU"] += clock() - t  # fmt: skip # noqa: E702
    t = clock(); z2 = a1 @ w2 + b2; timings["fwd: A1 @ W2 + b2"] += clock() - t  # fmt: skip # noqa: E702
    t = clock()
    e = np.exp(z2 - z2.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    timings["fwd: softmax"] += clock() - t
    t = clock()
    dz2 = p.copy()
    dz2[rows, yb] -= 1
    dz2 /= 32
    timings["bwd: dZ2"] += clock() - t
    t = clock(); dw2 = a1.T @ dz2; timings["bwd: A1.T @ dZ2"] += clock() - t  # fmt: skip # noqa: E702
    t = clock(); da1 = dz2 @ w2.T; timings["bwd: dZ2 @ W2.T"] += clock() - t  # fmt: skip # noqa: E702
    t = clock(); dz1 = da1 * (z1 > 0); timings["bwd: ReLU"] += clock() - t  # fmt: skip # noqa: E702
    t = clock(); dw1 = xb.T @ dz1; timings["bwd: X.T @ dZ1"] += clock() - t  # fmt: skip # noqa: E702
    t = clock(); w1 -= lr * dw1; timings["update W1"] += clock() - t  # fmt: skip # noqa: E702
    t = clock(); b1 -= lr * dz1.sum(axis=0); timings["update b1"] += clock() - t  # fmt: skip # noqa: E702
    t = clock(); w2 -= lr * dw2; timings["update W2"] += clock() - t  # fmt: skip # noqa: E702
    t = clock(); b2 -= lr * dz2.sum(axis=0); timings["update b2"] += clock() - t  # fmt: skip # noqa: E702

accuracy = float((np.argmax(np.maximum(split.x_val @ w1 + b1, 0) @ w2 + b2, axis=1) == split.y_val).mean())
us = {name: 1e6 * seconds / asked.steps for name, seconds in timings.items()}
print(json.dumps({"steps": asked.steps, "us_per_step": us, "val_accuracy": accuracy}))
