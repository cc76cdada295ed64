"""Many models on the same images in JAX: one after another, `vmap` of the step, `vmap` in the epoch, stacked by hand.

Every step also gives the loss of its batch before the update, so that a curve can be drawn and divergence seen.
The models share the images and differ in their learning rates and, if asked, in their first parameters.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from overhead.loops.base import Declined
from overhead.loops.many import ManyLoop
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params
from overhead.problem.workload import Workload


class State(NamedTuple):
    params: Any  # a tuple of (w, b) with a leading axis of models; a list of such without it, one after another
    rates: Array  # (models,)
    x: Any  # (batches, batch, inputs)
    y: Any  # (batches, batch)
    batches: list[tuple[Array, Array]]  # the same one by one, for what is called by step
    validation: tuple[Array, Array]  # (images, inputs), (images,)
    at: int  # the next batch
    losses: list[Array]  # of the last `run`: (steps, models), or for each model (steps,), or for each step (models,)


# fmt: off
def step(params: Any, x: Array, y: Array, lr: Array) -> Any:
    """One SGD step of one model. `x`: (batch, inputs); `y`: (batch,). Returns the parameters and the loss: ()."""
    inputs = [x]                                                # of each layer
    for w, b in params[:-1]:
        inputs.append(jnp.maximum(inputs[-1] @ w + b, 0))       # (batch, hidden)
    w, b = params[-1]
    z = inputs[-1] @ w + b                                      # (batch, classes)
    z = z - z.max(axis=1, keepdims=True)
    e = jnp.exp(z)
    total = e.sum(axis=1, keepdims=True)                        # (batch, 1)
    labels = jax.nn.one_hot(y, z.shape[1], dtype=z.dtype)
    loss = (jnp.log(total[:, 0]) - (z * labels).sum(axis=1)).mean()
    d = (e / total - labels) / len(y)                           # (batch, classes)
    updated = []
    for (w, b), a in zip(params[::-1], inputs[::-1]):
        updated.append((w - lr * (a.T @ d), b - lr * d.sum(axis=0)))
        if a is not x:
            d = (d @ w.T) * (a > 0)                             # (batch, hidden)
    return tuple(updated[::-1]), loss


def stacked_step(params: Any, x: Array, y: Array, lr: Array) -> Any:
    """One SGD step of all models, their first hidden layers side by side: one product reads the images once.

    `params`: w (inputs, models·hidden) and b (models·hidden,) of the first layer, then w (models, inputs, outputs)
    and b (models, outputs). `lr`: (models,). Returns the parameters and the losses: (models,).
    """
    (w1, b1), *later = params
    models, batch = len(lr), len(y)
    wide = x @ w1 + b1                                          # (batch, models·hidden)
    if later:
        wide = jnp.maximum(wide, 0)
    inputs = [wide.reshape(batch, models, -1).swapaxes(0, 1)]   # (models, batch, hidden), one a layer
    for w, b in later[:-1]:
        inputs.append(jnp.maximum(inputs[-1] @ w + b[:, None], 0))
    z = inputs.pop() if not later else inputs[-1] @ later[-1][0] + later[-1][1][:, None]
    z = z - z.max(axis=2, keepdims=True)                        # (models, batch, classes)
    e = jnp.exp(z)
    total = e.sum(axis=2, keepdims=True)                        # (models, batch, 1)
    labels = jax.nn.one_hot(y, z.shape[2], dtype=z.dtype)       # (batch, classes)
    losses = (jnp.log(total[..., 0]) - (z * labels).sum(axis=2)).mean(axis=1)
    d = (e / total - labels) / batch                            # (models, batch, classes)
    rate, updated = lr[:, None], []                             # (models, 1)
    for (w, b), a in zip(later[::-1], inputs[::-1]):
        updated.append((w - rate[..., None] * (a.swapaxes(1, 2) @ d), b - rate * d.sum(axis=1)))
        d = (d @ w.swapaxes(1, 2)) * (a > 0)                    # (models, batch, hidden)
    d = d.swapaxes(0, 1).reshape(batch, -1)                     # (batch, models·hidden)
    wide_rate = jnp.repeat(lr, d.shape[1] // models)            # (models·hidden,)
    updated.append((w1 - wide_rate * (x.T @ d), b1 - wide_rate * d.sum(axis=0)))
    return tuple(updated[::-1]), losses
# fmt: on


many_step = jax.vmap(step, in_axes=(0, None, None, 0))  # the same images for every model, a rate for each


@partial(jax.jit, donate_argnums=0)
def jitted_step(params: Any, x: Array, y: Array, lr: Array) -> Any:
    return step(params, x, y, lr)


@partial(jax.jit, donate_argnums=0)
def jitted_epoch(params: Any, x: Array, y: Array, lr: Array) -> Any:
    return lax.scan(lambda p, xy: step(p, *xy, lr), params, (x, y))


@partial(jax.jit, donate_argnums=0)
def jitted_many_step(params: Any, x: Array, y: Array, lr: Array) -> Any:
    return many_step(params, x, y, lr)


@partial(jax.jit, donate_argnums=0)
def jitted_many_epoch(params: Any, x: Array, y: Array, lr: Array) -> Any:
    return lax.scan(lambda p, xy: many_step(p, *xy, lr), params, (x, y))


@partial(jax.jit, donate_argnums=0)
def jitted_stacked_epoch(params: Any, x: Array, y: Array, lr: Array) -> Any:
    return lax.scan(lambda p, xy: stacked_step(p, *xy, lr), params, (x, y))


@jax.jit
def judged(params: Any, x: Array, y: Array) -> tuple[Array, Array]:
    """Accuracy on `x` (images, inputs), and whether every parameter is finite; one model after another: (models,)."""

    def judge(layers: Any) -> tuple[Array, Array]:
        a = x
        for w, b in layers[:-1]:
            a = jnp.maximum(a @ w + b, 0)
        w, b = layers[-1]
        finite = jnp.stack([jnp.isfinite(t).all() for layer in layers for t in layer]).all()
        return ((a @ w + b).argmax(axis=1) == y).mean(), finite

    return lax.map(judge, params)


def stacked(params: Sequence[Params]) -> Any:
    """A tuple of (w, b) with a leading axis of models, float32 NumPy."""
    return tuple(
        (np.stack([p[i].w for p in params]), np.stack([p[i].b for p in params])) for i in range(len(params[0]))
    )


class JaxManyLoop(ManyLoop):
    """What the variants share: images and parameters on the device, waiting, and what was learnt."""

    framework = "jax"
    program: Any  # what is compiled: a whole epoch, or a step
    by_step = False  # called once a batch: the batches lie one by one
    model_by_model = False  # one model a call

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self.programs: dict[Any, Any] = {}

    def compiled(self, program: Any, *arguments: Any) -> Any:
        """The program for arguments of these shapes, compiled before its first call; rates are arguments as others."""
        shapes = program, *(tensor.shape for tensor in jax.tree.leaves(arguments))
        if shapes not in self.programs:
            start = time.perf_counter()
            self.programs[shapes] = program.lower(*arguments).compile()
            self.compile_s += time.perf_counter() - start
        return self.programs[shapes]

    def place_many(self, params: Sequence[Params], rates: Sequence[float], data: Split, workload: Workload) -> State:
        if workload.remainder == "keep" and workload.last_batch:
            raise Declined(f"many models train on whole batches, got remainder=keep with {workload.last_batch} left")
        put = partial(jax.device_put, device=jax.devices(self.device)[0], may_alias=False)
        seen, size = workload.images_seen, workload.batch_size
        x = data.x[:seen].reshape(-1, size, workload.layers[0])
        y = data.y[:seen].reshape(-1, size)
        batches = [(put(xb), put(yb)) for xb, yb in zip(x, y)] if self.by_step else []
        whole = (x[:0], y[:0]) if self.by_step else (put(x), put(y))
        held = put(data.x_val), put(data.y_val)
        return State(self.given(params, put), put(np.asarray(rates, np.float32)), *whole, batches, held, 0, [])

    def prepare(self, params: Sequence[Params], workload: Workload, held: int) -> None:
        like = partial(jax.ShapeDtypeStruct, sharding=jax.sharding.SingleDeviceSharding(jax.devices(self.device)[0]))

        def shapes(tree: Any) -> Any:
            return jax.tree.map(lambda tensor: like(tensor.shape, tensor.dtype), tree)

        size, inputs = workload.batch_size, workload.layers[0]
        given = self.given(params, shapes)
        batches = () if self.by_step else (workload.whole_batches,)
        x, y = like((*batches, size, inputs), np.float32), like((*batches, size), np.int32)
        one, rates = (given[0], ()) if self.model_by_model else (given, (len(params),))
        self.compiled(self.program, one, x, y, like(rates, np.float32))
        models = shapes(jax.eval_shape(partial(self.by_model, models=len(params)), given))
        self.compiled(judged, models, like((held, inputs), np.float32), like((held,), np.int32))

    def given(self, params: Sequence[Params], put: Any) -> Any:
        return put(stacked(params))

    def by_model(self, params: Any, models: int) -> Any:
        """The parameters with a leading axis of models, wherever the variant keeps them."""
        return params

    def run(self, state: State, steps: int) -> State:
        """Parts of at most an epoch, each one call of the compiled epoch."""
        params, at, epoch = state.params, state.at, len(state.x)
        losses = []
        while steps:
            part = min(steps, epoch - at)
            xy = (state.x, state.y) if part == epoch else (state.x[at : at + part], state.y[at : at + part])
            params, found = self.epoch(params, *xy, state.rates)
            losses.append(found)
            steps, at = steps - part, (at + part) % epoch
        return state._replace(params=params, at=at, losses=losses)

    def epoch(self, params: Any, x: Array, y: Array, rates: Array) -> tuple[Any, Any]:
        """Every step over `x`: the parameters and the losses, (steps, models)."""
        return self.compiled(self.program, params, x, y, rates)(params, x, y, rates)

    def losses(self, state: State) -> np.ndarray:
        return np.concatenate([np.asarray(part) for part in state.losses])

    def block(self, state: State) -> None:
        jax.block_until_ready(state.params)

    def judge(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        arguments = self.by_model(state.params, len(state.rates)), *state.validation
        accuracy, finite = self.compiled(judged, *arguments)(*arguments)
        return np.asarray(accuracy), np.asarray(finite)

    def fetch_many(self, state: State) -> list[Params]:
        layers = [(np.asarray(w), np.asarray(b)) for w, b in self.by_model(state.params, len(state.rates))]
        return [tuple(Layer(w[i], b[i]) for w, b in layers) for i in range(len(state.rates))]

    def placed_on(self, state: State) -> tuple[str, str]:
        (device,) = state.rates.devices()
        return ("gpu" if device.platform in ("gpu", "cuda", "rocm") else device.platform), device.device_kind

    def settings(self, state: State) -> dict[str, str]:
        return {"matmul_precision": "float32"}

    def steps_per_call(self, workload: Workload) -> int:
        return 1 if self.by_step else workload.steps

    def compilations(self) -> int:
        return len(self.programs)


class JaxSequential(JaxManyLoop):
    """One model after another; the parameters are a list of models."""

    model_by_model = True

    def given(self, params: Sequence[Params], put: Any) -> Any:
        return [tuple((put(w), put(b)) for w, b in model) for model in params]

    def by_model(self, params: Any, models: int) -> Any:
        return jax.tree.map(lambda *tensors: jnp.stack(tensors), *params)


@final
class JaxSequentialEpochLoop(JaxSequential):
    """One model after another, each epoch one compiled call: `jax-epoch` with its losses."""

    program = staticmethod(jitted_epoch)

    def epoch(self, params: Any, x: Array, y: Array, rates: Array) -> tuple[Any, Any]:
        call = self.compiled(self.program, params[0], x, y, rates[0])
        pairs = [call(model, x, y, rate) for model, rate in zip(params, rates)]
        return [model for model, _ in pairs], [losses for _, losses in pairs]

    def losses(self, state: State) -> np.ndarray:
        return np.concatenate([np.stack([np.asarray(of_one) for of_one in part], axis=1) for part in state.losses])


@final
class JaxSequentialStepLoop(JaxSequential):
    """One model after another, one compiled step called once a batch: `jax-step` with its losses."""

    program = staticmethod(jitted_step)
    by_step = True

    def run(self, state: State, steps: int) -> State:
        trained, every, at = [], [], state.at
        call = self.compiled(self.program, state.params[0], *state.batches[0], state.rates[0])
        for params, lr in zip(state.params, state.rates):
            at, losses = state.at, []
            for _ in range(steps):
                params, loss = call(params, *state.batches[at], lr)
                losses.append(loss)
                at = (at + 1) % len(state.batches)
            trained.append(params)
            every.append(losses)
        return state._replace(params=trained, at=at, losses=every)

    def losses(self, state: State) -> np.ndarray:
        return np.asarray(state.losses).T


@final
class JaxVmapStepLoop(JaxManyLoop):
    """`vmap` of the step, called once a batch: the article's form."""

    program = staticmethod(jitted_many_step)
    by_step = True

    def run(self, state: State, steps: int) -> State:
        call = self.compiled(self.program, state.params, *state.batches[0], state.rates)
        params, at, losses = state.params, state.at, []
        for _ in range(steps):
            params, loss = call(params, *state.batches[at], state.rates)
            losses.append(loss)
            at = (at + 1) % len(state.batches)
        return state._replace(params=params, at=at, losses=losses)

    def losses(self, state: State) -> np.ndarray:
        return np.asarray(state.losses)


@final
class JaxVmapLoop(JaxManyLoop):
    """`vmap` of the step inside the compiled epoch."""

    program = staticmethod(jitted_many_epoch)


@final
class JaxStackedLoop(JaxManyLoop):
    """The hidden units of all models side by side in the compiled epoch, written by hand."""

    program = staticmethod(jitted_stacked_epoch)

    def given(self, params: Sequence[Params], put: Any) -> Any:
        (w, b), *later = stacked(params)
        return put(((w.swapaxes(0, 1).reshape(w.shape[1], -1), b.reshape(-1)), *later))

    def by_model(self, params: Any, models: int) -> Any:
        (w, b), *later = params
        return ((w.reshape(len(w), models, -1).swapaxes(0, 1), b.reshape(models, -1)), *later)
