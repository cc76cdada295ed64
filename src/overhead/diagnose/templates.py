"""Files to begin with: a training step in each framework, which `overhead diagnose` runs as they are."""

from __future__ import annotations

DATA = '''
def make_batch(n):
    """n examples: images (n, 784) and labels (n,)."""
    rng = np.random.default_rng(0)
    return rng.random((n, 784), np.float32), rng.integers(10, size=n).astype(np.int32)
'''

INPUT = """

# The input pipeline, where you have one; without it, the same batch is used again and again.
# def batches():
#     while True:
#         yield make_batch(32)
"""

NUMPY = '''"""A training step for `overhead diagnose`."""

import numpy as np

rng = np.random.default_rng(0)
w1 = rng.normal(0, 0.05, (784, 128)).astype(np.float32)
w2 = rng.normal(0, 0.05, (128, 10)).astype(np.float32)

DATA
def step(batch):
    """One step of SGD; returns the loss."""
    x, y = batch
    h = np.maximum(x @ w1, 0)
    z = h @ w2
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    p[np.arange(len(y)), y] -= 1
    p /= len(y)
    dh = (p @ w2.T) * (h > 0)
    w2[:] -= 0.1 * (h.T @ p)
    w1[:] -= 0.1 * (x.T @ dh)
    return loss
'''

JAX = '''"""A training step for `overhead diagnose`."""

import jax
import jax.numpy as jnp
import numpy as np

rng = np.random.default_rng(0)
params = [jnp.array(rng.normal(0, 0.05, shape), jnp.float32) for shape in ((784, 128), (128, 10))]


def loss_of(params, x, y):
    w1, w2 = params
    return -jnp.take_along_axis(jax.nn.log_softmax(jnp.maximum(x @ w1, 0) @ w2), y[:, None], axis=1).mean()


@jax.jit
def update(params, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
    return [w - 0.1 * g for w, g in zip(params, gradients)], loss

DATA
def step(batch):
    """One step of SGD; returns what can be waited for: the parameters and the loss."""
    global params
    params, loss = update(params, *batch)
    return params, loss
'''

KERAS = '''"""A training step for `overhead diagnose`."""

import keras
import numpy as np

model = keras.Sequential(
    [keras.Input((784,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10, activation="softmax")]
)
model.compile(optimizer=keras.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy")

DATA
def step(batch):
    """One step of SGD; returns the loss, for which Keras waits."""
    return model.train_on_batch(*batch)
'''

TORCH = '''"""A training step for `overhead diagnose`."""

import numpy as np
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_of = torch.nn.CrossEntropyLoss()


def make_batch(n):
    """n examples: images (n, 784) and labels (n,), on the device."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((n, 784), np.float32))
    return x.to(device), torch.from_numpy(rng.integers(10, size=n)).to(device)


def step(batch):
    """One step of SGD; returns the loss, which `overhead diagnose` waits for."""
    x, y = batch
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    loss.backward()
    optimizer.step()
    return loss
'''

TF = '''"""A training step for `overhead diagnose`."""

import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
w1 = tf.Variable(rng.normal(0, 0.05, (784, 128)).astype(np.float32))
w2 = tf.Variable(rng.normal(0, 0.05, (128, 10)).astype(np.float32))

DATA
@tf.function
def update(x, y):
    with tf.GradientTape() as tape:
        logits = tf.nn.relu(x @ w1) @ w2
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
    for w, gradient in zip((w1, w2), tape.gradient(loss, (w1, w2))):
        w.assign_sub(0.1 * gradient)
    return loss


def step(batch):
    """One step of SGD; returns the loss, which `overhead diagnose` waits for."""
    return update(*batch)
'''

TEMPLATES = {
    name: text.replace("\nDATA", DATA) + INPUT
    for name, text in {"jax": JAX, "numpy": NUMPY, "keras": KERAS, "torch": TORCH, "tf": TF}.items()
}
