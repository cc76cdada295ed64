"""The CuPy step with its elementwise work in kernels of our own: four kinds, where CuPy launches one an operator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple, final

from overhead.loops.cupy_ import Array, OnGpu, State, place_batches
from overhead.problem.data import Split
from overhead.problem.mlp import Params
from overhead.problem.workload import Workload


class Kernel(NamedTuple):
    """A kernel in CuPy's notation: CUDA C for the element `i`, an array marked `raw` is indexed by hand."""

    inputs: str
    outputs: str
    body: str


KERNELS = {
    # Negative is tested, not positive, so that a nan stays a nan as in NumPy's maximum.
    "relu": Kernel("float32 z, float32 b", "float32 a", "float v = z + b; a = v < 0 ? 0 : v;"),
    "relu_gradient": Kernel("float32 da, float32 a", "float32 dz", "dz = da * (a > 0);"),
    # One thread an image: bias, softmax, minus the one-hot label, over the batch.
    "logit_gradient": Kernel(
        "raw float32 z, raw float32 b, raw int32 y, int32 classes, float32 batch",
        "raw float32 d",
        """
        ptrdiff_t row = i * classes;
        float top = z[row] + b[0];
        for (int c = 1; c < classes; ++c) {
            float v = z[row + c] + b[c];
            top = v > top ? v : top;
        }
        float total = 0;
        for (int c = 0; c < classes; ++c) {
            float e = expf(z[row + c] + b[c] - top);
            d[row + c] = e;
            total += e;
        }
        for (int c = 0; c < classes; ++c) {
            d[row + c] = (d[row + c] / total - (c == y[i])) / batch;
        }
        """,
    ),
    "update": Kernel("float32 gradient, float32 lr", "float32 parameter", "parameter -= lr * gradient;"),
}


def build(xp: Any, kernels: dict[str, Kernel]) -> SimpleNamespace:
    """The kernels as callables `kernel(*inputs, *outputs)`; NVRTC compiles each at its first call."""
    return SimpleNamespace(
        **{name: xp.ElementwiseKernel(*kernel, f"overhead_{name}") for name, kernel in kernels.items()}
    )


class FusedState(NamedTuple):
    arrays: State  # its parameters are updated in place
    kernels: SimpleNamespace

    @property
    def xp(self) -> Any:
        return self.arrays.xp

    @property
    def params(self) -> Any:
        return self.arrays.params


@final
class CupyFusedLoop(OnGpu):
    """CuPy's products and sums, and between them one kernel where `cupy` has up to ten."""

    def place(self, params: Params, data: Split, workload: Workload) -> FusedState:
        xp = self.array_module()
        return FusedState(place_batches(xp, params, data, workload), build(xp, KERNELS))

    def run(self, state: FusedState, steps: int) -> FusedState:
        xp, params, batches, at, lr = state.arrays
        for _ in range(steps):
            x, y = batches[at]
            fused_step(xp, state.kernels, params, x, y, lr)
            at = (at + 1) % len(batches)
        return state._replace(arrays=state.arrays._replace(at=at))


# fmt: off
def fused_step(xp: Any, k: SimpleNamespace, params: Any, x: Array, y: Array, lr: float) -> None:
    """One SGD step, `params` in place. `x`: (batch, inputs) float32; `y`: (batch,) int32."""
    inputs = [x]                                                # of each layer
    for w, b in params[:-1]:
        z = inputs[-1] @ w                                      # (batch, hidden)
        k.relu(z, b, z)
        inputs.append(z)
    w, b = params[-1]
    z = inputs[-1] @ w                                          # (batch, classes)
    d = xp.empty_like(z)
    k.logit_gradient(z, b, y, z.shape[1], len(y), d, size=len(y))
    for (w, b), a in zip(params[::-1], inputs[::-1]):
        dw, db = a.T @ d, d.sum(axis=0)                         # (inputs, outputs), (outputs,)
        if a is not x:                                          # nobody needs the gradient of the pixels
            d = d @ w.T                                         # (batch, hidden), before `w` changes
            k.relu_gradient(d, a, d)
        k.update(dw, lr, w)
        k.update(db, lr, b)
# fmt: on
