"""How fast a training step could be at most: its FLOPs and bytes against a device's limits, in microseconds.

Counting rules. A multiply-add is two FLOPs. `gemms` and every total count the matrix products alone; `ops`
adds the elementwise work at one FLOP an element and operation (add, multiply, compare, divide, exp).
Bytes are those of float32 operands (labels: int32), each read once and each result written once, from cold
caches: data that stays in a cache between two operations can beat a limit set by bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from overhead.problem.peaks import device
from overhead.problem.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

WORD_BYTES = 4  # float32, and int32 labels
PEAK_TOO_LOW = "peak figure too low"


class Work(NamedTuple):
    """What one operation has to do."""

    name: str  # as in loops.base.STEP_OPS, with as many layers as there are
    group: str  # forward, loss, backward or update
    flops: int
    bytes: int

    @property
    def intensity_flops_per_byte(self) -> float:
        """Arithmetic intensity."""
        return self.flops / self.bytes


class Bound(NamedTuple):
    """The least time of some work; None where the limit is not known."""

    flops_bound_us: float | None
    bytes_bound_us: float | None

    @property
    def bound_us(self) -> float | None:
        """The larger of the two."""
        return max((t for t in self if t is not None), default=None)


class Share(NamedTuple):
    """How near a measured time comes to its bound."""

    share: float | None  # above 0, at most 1; None when the bound is no bound
    verdict: str  # "within bound", or why there is no share


def gemms(workload: Workload) -> list[Work]:
    """The matrix products of one step in the order in which they run: z1, z2, dw2, da1, dw1 for two layers.

    Nobody needs the gradient of the pixels, so the first layer is multiplied twice (forward, weights) and
    every later layer three times. `workload.batch_size` 1 gives the products of one image.
    """
    batch, layers = workload.batch_size, list(enumerate(pairwise(workload.layers), start=1))
    forward = [_product(f"z{i}", "forward", batch, inputs, outputs) for i, (inputs, outputs) in layers]
    backward = []
    for i, (inputs, outputs) in reversed(layers):
        backward.append(_product(f"dw{i}", "backward", inputs, batch, outputs))
        if i > 1:
            backward.append(_product(f"da{i - 1}", "backward", batch, outputs, inputs))
    return forward + backward


def _product(name: str, group: str, rows: int, inner: int, columns: int) -> Work:
    """(rows, inner) @ (inner, columns)."""
    words = rows * inner + inner * columns + rows * columns
    return Work(name, group, 2 * rows * inner * columns, WORD_BYTES * words)


def ops(workload: Workload) -> list[Work]:
    """Every operation of one step in order, elementwise work included: thirteen for two layers.

    z: product and bias. a: one comparison. softmax: maximum, difference, exp, sum, quotient along a row.
    dz of the logits: one subtraction a row, one division an element; of a hidden layer: comparison, product.
    w: rate times gradient, difference. b: sum over the batch, rate times gradient, difference.
    """
    batch, last = workload.batch_size, len(workload.layers) - 1
    products = {work.name: work for work in gemms(workload)}
    found = []
    for i, outputs in enumerate(workload.layers[1:], start=1):
        z, out = products[f"z{i}"], batch * outputs
        found.append(z._replace(flops=z.flops + out, bytes=z.bytes + WORD_BYTES * outputs))
        if i < last:
            found.append(_elementwise(f"a{i}", "forward", out, words=2 * out))
        else:
            found.append(_elementwise("softmax", "forward", 5 * out - 2 * batch, words=2 * out))
            found.append(_elementwise(f"dz{i}", "loss", out + batch, words=2 * out + batch))
    for i in range(last, 0, -1):
        found.append(products[f"dw{i}"])
        if i > 1:
            out = batch * workload.layers[i - 1]
            found.append(products[f"da{i - 1}"])
            found.append(_elementwise(f"dz{i - 1}", "backward", 2 * out, words=3 * out))
    for i, (inputs, outputs) in enumerate(pairwise(workload.layers), start=1):
        weights = inputs * outputs
        found.append(_elementwise(f"w{i}", "update", 2 * weights, words=3 * weights))
        found.append(_elementwise(f"b{i}", "update", (batch + 1) * outputs, words=batch * outputs + 2 * outputs))
    return found


def _elementwise(name: str, group: str, flops: int, *, words: int) -> Work:
    return Work(name, group, flops, WORD_BYTES * words)


def forward_flops(workload: Workload) -> int:
    """FLOPs of the matrix products from the pixels to the logits of one full batch."""
    return sum(work.flops for work in gemms(workload) if work.group == "forward")


def step_flops(workload: Workload) -> int:
    """FLOPs of the matrix products of one training step on a full batch."""
    return sum(work.flops for work in gemms(workload))


def epoch_flops(workload: Workload) -> int:
    """FLOPs of the matrix products of one epoch; a short last batch that is kept counts by its own size."""
    flops = workload.whole_batches * step_flops(workload)
    if workload.last_batch and workload.remainder == "keep":
        flops += step_flops(workload.model_copy(update={"batch_size": workload.last_batch}))
    return flops


def step_bytes(workload: Workload) -> int:
    """Bytes that a step cannot avoid: the batch and its labels read, every parameter read and written.

    Less than the sum over `gemms`, because what lies between two products need not leave the caches.
    """
    return workload.batch_bytes + WORD_BYTES * (workload.batch_size + 2 * workload.parameters)


def bound(
    flops: float,
    bytes_: float,
    peak_flops_per_s: float | None = None,
    bandwidth_bytes_per_s: float | None = None,
) -> Bound:
    """The least time for `flops` and `bytes_`: the roofline of Williams, Waterman and Patterson (2009).

    Raises `ValueError` for a peak or a bandwidth that is not finite and above 0.
    """
    return Bound(
        _least_us(flops, "peak_flops_per_s", peak_flops_per_s),
        _least_us(bytes_, "bandwidth_bytes_per_s", bandwidth_bytes_per_s),
    )


def _least_us(amount: float, name: str, per_s: float | None) -> float | None:
    return None if per_s is None else 1e6 * amount / _positive(name, per_s)


def share_of_bound(measured_us: float, bound_us: float) -> Share:
    """The bound as a share of the measured time; a time below its bound says that a limit was set too low.

    Then the clock was above the published boost, the products ran in TF32, or, against a bound set by
    bandwidth, the operands were in a cache. Raises `ValueError` for a time that is not finite and above 0.
    """
    share = _positive("bound_us", bound_us) / _positive("measured_us", measured_us)
    return Share(share, "within bound") if share <= 1 else Share(None, PEAK_TOO_LOW)


def roofline(
    frame: pd.DataFrame,
    workload: Workload,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    launch_floor_s: float | None = None,
) -> pd.DataFrame:
    """Measured operations against three limits: arithmetic, memory and the launch.

    `frame` has a row a measurement, its operation (one of `ops(workload)`) in `op` and its time in `time_us`;
    other columns stay. Added: flops, bytes, intensity_flops_per_byte, achieved_flops_per_s,
    roof_flops_per_s (the lower of the peak and intensity · bandwidth), launch_flops_per_s (the operation's
    FLOPs over the launch floor; nan without one), bound_us (without the launch floor), share, verdict.

    Raises `ValueError` for a missing column, an unknown operation, or a limit or a time that is not finite
    and above 0.
    """
    missing = {"op", "time_us"} - set(frame.columns)
    if missing:
        raise ValueError(f"frame must have the columns op and time_us, lacks {', '.join(sorted(missing))}")
    work = {w.name: w for w in ops(workload)}
    unknown = [str(op) for op in frame["op"] if op not in work]
    if unknown:
        raise ValueError(f"op must be one of {', '.join(work)}, got {unknown[0]}")
    peak = _positive("peak_flops_per_s", peak_flops_per_s)
    bandwidth = _positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    launch = math.nan if launch_floor_s is None else _positive("launch_floor_s", launch_floor_s)
    done = [work[op] for op in frame["op"]]
    bounds = [bound(w.flops, w.bytes, peak, bandwidth).bound_us for w in done]
    shares = [share_of_bound(t, b) for t, b in zip(frame["time_us"], bounds, strict=True) if b is not None]
    return frame.assign(
        flops=[w.flops for w in done],
        bytes=[w.bytes for w in done],
        intensity_flops_per_byte=[w.intensity_flops_per_byte for w in done],
        achieved_flops_per_s=[1e6 * w.flops / t for w, t in zip(done, frame["time_us"], strict=True)],
        roof_flops_per_s=[min(peak, w.intensity_flops_per_byte * bandwidth) for w in done],
        launch_flops_per_s=[w.flops / launch for w in done],
        bound_us=bounds,
        share=[math.nan if s.share is None else s.share for s in shares],
        verdict=[s.verdict for s in shares],
    )


def report(
    workload: Workload,
    peak_flops_per_s: float | None = None,
    bandwidth_bytes_per_s: float | None = None,
    device_model: str | None = None,
    ceilings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What `overhead bounds --json` prints: the products, the totals and their bounds, ready for JSON.

    The arithmetic limit is one of `peak_flops_per_s`, a published device's, and measured `ceilings`
    {flops_per_s, bandwidth_bytes_per_s (may be absent), name (may be absent)}; `bandwidth_bytes_per_s` comes
    before the device's or the ceilings' own. A bound without its limit is null.
    step_bound_us takes `step_flops` and `step_bytes`, not the sum of the products' bounds.

    Raises `ValueError` for more than one arithmetic limit, for an unknown device, or for a limit that is not
    finite and above 0.
    """
    given = {"peak_flops_per_s": peak_flops_per_s, "device_model": device_model, "ceilings": ceilings}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ValueError(f"a bound takes one of {', '.join(given)}, got {' and '.join(named)}")
    peak, bandwidth, name, source = peak_flops_per_s, None, None, "given"
    if device_model is not None:
        published = device(device_model)
        name, source, peak = published.name, published.source, published.flops_per_s
        bandwidth = published.bandwidth_bytes_per_s
    elif ceilings is not None:
        if "flops_per_s" not in ceilings:
            raise ValueError(f"ceilings must have flops_per_s, got {', '.join(ceilings) or 'nothing'}")
        name, source, peak = ceilings.get("name"), "measured", ceilings["flops_per_s"]
        bandwidth = ceilings.get("bandwidth_bytes_per_s")
    if bandwidth_bytes_per_s is not None:
        bandwidth = bandwidth_bytes_per_s
    return {
        "layers": list(workload.layers),
        "batch_size": workload.batch_size,
        "steps_per_epoch": workload.steps,
        "gemms": [_bounded(work, bound(work.flops, work.bytes, peak, bandwidth)) for work in gemms(workload)],
        "forward_flops": forward_flops(workload),
        "step_flops": step_flops(workload),
        "epoch_flops": epoch_flops(workload),
        "batch_bytes": workload.batch_bytes,
        "step_bytes": step_bytes(workload),
        "step_bound_us": bound(step_flops(workload), step_bytes(workload), peak, bandwidth).bound_us,
        "peak": {
            "device": name,
            "flops_per_s": peak,
            "bandwidth_bytes_per_s": bandwidth,
            "source": None if peak is None and bandwidth is None else source,
        },
    }


def _bounded(work: Work, limits: Bound) -> dict[str, Any]:
    return {
        "name": work.name,
        "flops": work.flops,
        "bytes": work.bytes,
        "flops_bound_us": limits.flops_bound_us,
        "bytes_bound_us": limits.bytes_bound_us,
        "bound_us": limits.bound_us,
    }


def _positive(name: str, value: float) -> float:
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    return float(value)


def as_text(found: dict[str, Any]) -> str:
    """The report for people: a line a product, then the totals."""
    lines = [f"layers {found['layers']}, batch size {found['batch_size']}, {found['steps_per_epoch']} steps an epoch"]
    for gemm in found["gemms"]:
        bound = f"{gemm['bound_us']:.4g} us" if gemm["bound_us"] is not None else "no peak given"
        lines.append(f"  {gemm['name']:<8}{gemm['flops']:>16,} FLOP{gemm['bytes']:>14,} bytes   at least {bound}")
    lines.append(
        f"step {found['step_flops']:,} FLOP (forward {found['forward_flops']:,}), epoch {found['epoch_flops']:,} FLOP"
    )
    if found["step_bound_us"] is not None:
        lines.append(
            f"a step takes at least {found['step_bound_us']:.4g} us: a bound, not a prediction and not a utilisation"
        )
    return "\n".join(lines)
