"""Training loops in JAX: the step compiled, and the whole epoch compiled."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from overhead.loops.base import STEP_OPS, Declined, Loop, Op
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params
from overhead.problem.workload import Workload


class State(NamedTuple):
    params: Any  # a tuple of (w, b), donated to the next step
    x: Any  # (whole batches, batch, inputs), batched once before the clock starts
    y: Any  # (whole batches, batch)
    tail: Any  # (x, y) of the short last batch of remainder=keep
    batches: list[tuple[Array, Array]]  # the same batches one by one, for loops that are called by step
    at: int  # the next batch
    lr: Array  # ()


def step(params: Any, x: Array, y: Array, lr: Array) -> Any:
    """One SGD step on softmax cross-entropy. `x`: (batch, inputs) float32; `y`: (batch,) int32."""
    inputs = [x]                                                # of each layer
    for w, b in params[:-1]:
        inputs.append(jnp.maximum(inputs[-1] @ w + b, 0))       # (batch, hidden)
    w, b = params[-1]
    p = jax.nn.softmax(inputs[-1] @ w + b)                      # (batch, classes)
    d = (p - jax.nn.one_hot(y, p.shape[1], dtype=p.dtype)) / len(y)
    updated = []
    for (w, b), a in zip(params[::-1], inputs[::-1]):
        updated.append((w - lr * (a.T @ d), b - lr * d.sum(axis=0)))
        if a is not x:                                          # nobody needs the gradient of the pixels
            d = (d @ w.T) * (a > 0)                             # (batch, hidden)
    return tuple(updated[::-1])


@partial(jax.jit, donate_argnums=0)
def jitted_step(params: Any, x: Array, y: Array, lr: Array) -> Any:
    return step(params, x, y, lr)


def loss(params: Any, x: Array, y: Array) -> Array:
    """Mean softmax cross-entropy, (), whose gradient JAX derives. `x`: (batch, inputs) float32; `y`: (batch,) int32."""
    for w, b in params[:-1]:
        x = jnp.maximum(x @ w + b, 0)                           # (batch, hidden)
    w, b = params[-1]
    log_p = jax.nn.log_softmax(x @ w + b)                       # (batch, classes)
    return -jnp.mean(jnp.take_along_axis(log_p, y[:, None], axis=1))


@partial(jax.jit, donate_argnums=0)
def derived_step(params: Any, x: Array, y: Array, lr: Array) -> Any:
    return jax.tree.map(lambda p, g: p - lr * g, params, jax.grad(loss)(params, x, y))


def epoch(params: Any, x: Array, y: Array, tail: Any, lr: Array) -> Any:
    """Every step of one epoch in one program. `x`: (batches, batch, inputs); `y`: (batches, batch)."""
    params, _ = lax.scan(lambda p, xy: (step(p, xy[0], xy[1], lr), None), params, (x, y))
    return params if tail is None else step(params, tail[0], tail[1], lr)


jitted_epoch = jax.jit(epoch, donate_argnums=0)


# XLA's CPU compiler gives float32 products to YNNPACK where it thinks that this pays; without it they go to Eigen.
WITHOUT_YNNPACK = {"xla_cpu_experimental_ynn_fusion_type": ""}

tuned_epoch = jax.jit(epoch, donate_argnums=0, compiler_options=WITHOUT_YNNPACK)


def place_batches(device: str, params: Params, data: Split, workload: Workload, *, one_by_one: bool) -> State:
    """Copy the parameters and the images to the device: as one batched array, or as a list of batches."""
    where = jax.devices(device)[0]
    put = partial(jax.device_put, device=where, may_alias=False)
    whole, size = workload.whole_batches, workload.batch_size
    x = data.x[: whole * size].reshape(whole, size, -1)
    y = data.y[: whole * size].reshape(whole, size)
    tail = None
    if workload.remainder == "keep" and workload.last_batch:
        tail = put(data.x[whole * size :]), put(data.y[whole * size :])
    placed = tuple((put(w), put(b)) for w, b in params)
    lr = put(np.float32(workload.learning_rate))
    if not one_by_one:
        return jax.block_until_ready(State(placed, put(x), put(y), tail, [], 0, lr))
    batches = [(put(xb), put(yb)) for xb, yb in zip(x, y)] + ([tail] if tail else [])
    return jax.block_until_ready(State(placed, x[:0], y[:0], tail, batches, 0, lr))


def programs(function: Any) -> int:
    """How many programs a jitted function was compiled to in this process, one a set of shapes."""
    return function._cache_size()


def matmul_precision(device: str) -> str:
    """What float32 products are computed in: `float32`, or `tf32` where a GPU may use it, as JAX has it by default."""
    asked = jax.config.jax_default_matmul_precision or "default"  # pyright: ignore[reportAttributeAccessIssue]
    allowed = "TF32" in asked or asked in ("default", "high", "tensorfloat32")
    return "tf32" if device == "gpu" and allowed else "float32"


class JaxLoop(Loop):
    """What the JAX variants share: waiting, fetching, and where the arrays are."""

    framework = "jax"

    def block(self, state: State) -> None:
        jax.block_until_ready(state.params)

    def fetch(self, state: State) -> Params:
        return tuple(Layer(np.asarray(w), np.asarray(b)) for w, b in state.params)

    def transfers(self, state: State) -> int:
        steps = len(state.x) + (state.tail is not None) if len(state.x) else 1  # one call of the timed program
        try:
            with jax.transfer_guard("disallow"):
                self.block(self.run(state, steps))
        except RuntimeError:  # what JAX raises where it would have copied by itself
            return 1
        return 0

    def placed_on(self, state: State) -> tuple[str, str]:
        (device,) = state.params[0][0].devices()
        return ("gpu" if device.platform in ("gpu", "cuda", "rocm") else device.platform), device.device_kind

    def settings(self, state: State) -> dict[str, str]:
        return {"matmul_precision": matmul_precision(self.device)}


@final
class JaxOpByOpLoop(JaxLoop):
    """The step without `jit`: each operator is a call from Python and a program of its own."""

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        return place_batches(self.device, params, data, workload, one_by_one=True)

    def run(self, state: State, steps: int) -> State:
        params, at, lr = state.params, state.at, state.lr
        for _ in range(steps):
            x, y = state.batches[at]
            params = step(params, x, y, lr)
            at = (at + 1) % len(state.batches)
        return state._replace(params=params, at=at)

    def ops(self, state: State) -> list[Op]:
        if len(state.params) != 2:
            raise Declined(f"the thirteen ops are those of two layers, got {len(state.params)}")
        return step_ops(state)


# fmt: off
def step_ops(state: State) -> list[Op]:
    """The article's thirteen operations, with the operators of `step`; each waits for its own result."""
    (w1, b1), (w2, b2) = state.params
    s = SimpleNamespace(w1=w1, b1=b1, w2=w2, b2=b2, at=state.at, lr=state.lr)
    batches = state.batches

    def z1():
        s.x, s.y = batches[s.at]
        s.at = (s.at + 1) % len(batches)
        s.z1 = s.x @ s.w1 + s.b1                                # (batch, hidden)

    def a1():
        s.a1 = jnp.maximum(s.z1, 0)                             # (batch, hidden)

    def z2():
        s.z2 = s.a1 @ s.w2 + s.b2                               # (batch, classes)

    def softmax():
        s.softmax = jax.nn.softmax(s.z2)                        # (batch, classes)

    def dz2():
        labels = jax.nn.one_hot(s.y, s.softmax.shape[1], dtype=s.softmax.dtype)
        s.dz2 = (s.softmax - labels) / len(s.y)                 # (batch, classes)

    def dw2():
        s.dw2 = s.a1.T @ s.dz2                                  # (hidden, classes)

    def da1():
        s.da1 = s.dz2 @ s.w2.T                                  # (batch, hidden)

    def dz1():
        s.dz1 = s.da1 * (s.z1 > 0)                              # (batch, hidden)

    def dw1():
        s.dw1 = s.x.T @ s.dz1                                   # (inputs, hidden)

    def update_w1():
        s.w1 = s.w1 - s.lr * s.dw1

    def update_b1():
        s.b1 = s.b1 - s.lr * s.dz1.sum(axis=0)

    def update_w2():
        s.w2 = s.w2 - s.lr * s.dw2

    def update_b2():
        s.b2 = s.b2 - s.lr * s.dz2.sum(axis=0)

    def wait_for(name):
        return lambda: jax.block_until_ready(getattr(s, name))

    calls = [z1, a1, z2, softmax, dz2, dw2, da1, dz1, dw1, update_w1, update_b1, update_w2, update_b2]
    return [Op(*named, call, wait_for(named[0])) for named, call in zip(STEP_OPS.items(), calls, strict=True)]
# fmt: on


@final
class JaxStepLoop(JaxLoop):
    """One compiled step with donated parameters, called from Python once a batch."""

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        return place_batches(self.device, params, data, workload, one_by_one=True)

    def run(self, state: State, steps: int) -> State:
        params, at, lr = state.params, state.at, state.lr
        for _ in range(steps):
            x, y = state.batches[at]
            params = jitted_step(params, x, y, lr)
            at = (at + 1) % len(state.batches)
        return state._replace(params=params, at=at)

    def compilations(self) -> int:
        return programs(jitted_step)

    def program(self, state: State) -> str:
        return jitted_step.lower(state.params, *state.batches[0], state.lr).compile().as_text() or ""


@final
class JaxAutodiffLoop(JaxLoop):
    """The article's form: one compiled step whose gradients JAX derives from the loss."""

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        return place_batches(self.device, params, data, workload, one_by_one=True)

    def run(self, state: State, steps: int) -> State:
        params, at, lr = state.params, state.at, state.lr
        for _ in range(steps):
            x, y = state.batches[at]
            params = derived_step(params, x, y, lr)
            at = (at + 1) % len(state.batches)
        return state._replace(params=params, at=at)

    def compilations(self) -> int:
        return programs(derived_step)

    def program(self, state: State) -> str:
        return derived_step.lower(state.params, *state.batches[0], state.lr).compile().as_text() or ""


class JaxEpochLoop(JaxLoop):
    """The whole epoch in one compiled call: a scan over data that was batched before the clock started."""

    epoch = staticmethod(jitted_epoch)

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        return place_batches(self.device, params, data, workload, one_by_one=False)

    def run(self, state: State, steps: int) -> State:
        params, at, lr = state.params, state.at, state.lr
        whole = len(state.x)
        epoch = whole + (state.tail is not None)
        while steps:
            if at == 0 and steps >= epoch:
                params = self.epoch(params, state.x, state.y, state.tail, lr)
                steps -= epoch
            else:  # what is left over, step by step
                x, y = (state.x[at], state.y[at]) if at < whole else state.tail
                params = jitted_step(params, x, y, lr)
                steps, at = steps - 1, (at + 1) % epoch
        return state._replace(params=params, at=at)

    def steps_per_call(self, workload: Workload) -> int:
        return workload.steps

    def compilations(self) -> int:
        return programs(self.epoch)

    def program(self, state: State) -> str:
        return self.epoch.lower(state.params, state.x, state.y, state.tail, state.lr).compile().as_text() or ""


@final
class JaxEpochTunedLoop(JaxEpochLoop):
    """The whole epoch in one compiled call, with the compiler option that helps on the CPU."""

    epoch = staticmethod(tuned_epoch)

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        try:
            jax.jit(lambda: 0, compiler_options=WITHOUT_YNNPACK).lower().compile()
        except RuntimeError as error:  # what XLA raises for an option that it does not know
            raise Declined(f"this jaxlib has no option {', '.join(WITHOUT_YNNPACK)}: {error}") from None
        return super().place(params, data, workload)

    def settings(self, state: State) -> dict[str, str]:
        return {**super().settings(state), **{name: value or "none" for name, value in WITHOUT_YNNPACK.items()}}


class FloorState(NamedTuple):
    weights: list[Array]
    x: Array  # (whole batches, batch, inputs)
    tail: Array | None
    products: Any


@jax.jit
def matrix_products(weights: list[Array], x: Array, tail: Array | None) -> Any:
    """The products of every step of an epoch, each fed by the one before so that none can be dropped."""

    def products(before, xb):
        xb, _ = lax.optimization_barrier((xb, before))          # else what nobody reads might be dropped
        inputs = [xb]
        for w in weights:
            inputs.append(inputs[-1] @ w)                       # (batch, outputs)
        d, found = inputs.pop(), []                             # stands in for the gradient at the logits
        for w, a in zip(weights[::-1], inputs[::-1]):
            found.append(a.T @ d)                               # (inputs, outputs)
            if a is not xb:
                d = d @ w.T                                     # (batch, inputs)
        return found, None

    carry, _ = lax.scan(products, [jnp.zeros_like(w) for w in weights[::-1]], x)
    return carry if tail is None else (carry, products(carry, tail)[0])


@final
class XlaFloor(Loop):
    """Not a loop: the step's matrix products over all batches in order, in one XLA program."""

    framework = "jax"

    def place(self, params: Params, data: Split, workload: Workload) -> FloorState:
        state = place_batches(self.device, params, data, workload, one_by_one=False)
        return FloorState([w for w, _ in state.params], state.x, state.tail[0] if state.tail else None, None)

    def run(self, state: FloorState, steps: int) -> FloorState:
        epoch = len(state.x) + (state.tail is not None)
        if steps % epoch:
            raise Declined(f"the XLA floor runs whole epochs of {epoch} steps, got {steps}")
        products = state.products
        for _ in range(steps // epoch):
            products = matrix_products(state.weights, state.x, state.tail)
        return state._replace(products=products)

    def block(self, state: FloorState) -> None:
        jax.block_until_ready(state.products)

    def fetch(self, state: FloorState) -> Params:
        raise Declined("the floor learns nothing")

    def placed_on(self, state: FloorState) -> tuple[str, str]:
        (device,) = state.weights[0].devices()
        return ("cpu" if device.platform == "cpu" else "gpu"), device.device_kind

    def steps_per_call(self, workload: Workload) -> int:
        return workload.steps
