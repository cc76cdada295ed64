"""The article's sweep in JAX: gradients from `grad`, five models by `vmap`, one compiled call a batch.

    python scripts/article/jax_sweep.py [--images 48000]

Prints, as JSON, the seconds of the first step (it compiles), of the epoch after it, waited for, and each rate's
validation accuracy. Each model has first weights of its own, so that rate and start are confounded (chapter 7).
"""

import argparse
import json
import time

import jax
import jax.numpy as jnp
from jax import grad, jit, random, vmap

from overhead.problem import data
from overhead.problem.workload import Workload

parser = argparse.ArgumentParser()
parser.add_argument("--images", type=int, default=48_000)
asked = parser.parse_args()


def init_params(key):
    k1, k2 = random.split(key)
    w1 = random.normal(k1, (784, 128)) * jnp.sqrt(2.0 / 784)
    w2 = random.normal(k2, (128, 10)) * jnp.sqrt(2.0 / 128)
    return w1, jnp.zeros(128), w2, jnp.zeros(10)


def logits(params, x):
    w1, b1, w2, b2 = params
    return jnp.maximum(0, x @ w1 + b1) @ w2 + b2  # (batch, 10)


def loss_fn(params, x, y):
    return -jnp.mean(jax.nn.log_softmax(logits(params, x), axis=-1)[jnp.arange(y.shape[0]), y])


def sgd_step(params, x, y, lr):
    return tuple(p - lr * g for p, g in zip(params, grad(loss_fn)(params, x, y), strict=True))


split = data.for_workload(Workload(images=asked.images))
x, y = jnp.asarray(split.x), jnp.asarray(split.y)
batches = [(x[i : i + 32], y[i : i + 32]) for i in range(0, len(y) - 31, 32)]
lr_array = jnp.array([0.001, 0.01, 0.1, 1.0, 10.0])
batched = vmap(init_params)(random.split(random.PRNGKey(42), len(lr_array)))
batched_step = jit(vmap(sgd_step, in_axes=(0, None, None, 0)))

begun = time.perf_counter()
jax.block_until_ready(batched_step(batched, *batches[0], lr_array))
first_s, begun = time.perf_counter() - begun, time.perf_counter()
for xb, yb in batches:
    batched = batched_step(batched, xb, yb, lr_array)
jax.block_until_ready(batched)
epoch_s = time.perf_counter() - begun
right = vmap(lambda p: jnp.mean(jnp.argmax(logits(p, split.x_val), axis=1) == split.y_val))(batched)
print(json.dumps({"first_step_s": first_s, "epoch_s": epoch_s, "val_accuracy": [round(float(r), 4) for r in right]}))
