"""Probes in CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.loops.cupy_ import usable_cupy
from overhead.measure.probes import FIXED, Probe
from overhead.measure.probes.numpy_ import GPU_STREAM_BYTES, LARGE, product_operands, uniform
from overhead.problem import bounds
from overhead.problem.workload import Workload


def waiter(cp: Any) -> Any:
    stream = cp.cuda.get_current_stream()
    return stream.synchronize


def fixed_costs(device: str, workload: Workload) -> list[Probe]:
    cp = usable_cupy()
    host = uniform(workload.batch_size, workload.layers[0])
    one, out, batch = cp.ones(1, np.float32), cp.empty(1, np.float32), cp.asarray(host)
    pinned = np.frombuffer(cp.cuda.alloc_pinned_memory(host.nbytes), np.float32, host.size).reshape(host.shape)
    pinned[:] = host
    wait, size = waiter(cp), f"one batch ({host.nbytes:,} bytes)"
    return [
        Probe("launch", FIXED, "CuPy's add of one element", lambda: cp.add(one, one, out=out), wait),
        Probe("to-device", FIXED, f"{size} to the device, pageable", lambda: batch.set(host), wait,
              bytes=host.nbytes),
        Probe("to-device-pinned", FIXED, f"{size} to the device, pinned", lambda: batch.set(pinned), wait,
              bytes=host.nbytes),
        Probe("to-host", FIXED, f"{size} from the device, pageable", lambda: batch.get(out=host), wait,
              bytes=host.nbytes),
        Probe("to-host-pinned", FIXED, f"{size} from the device, pinned", lambda: batch.get(out=pinned), wait,
              bytes=host.nbytes),
        Probe("synchronise", FIXED, "a wait for a stream with nothing in it", wait),
    ]  # fmt: skip


def rates(device: str, workload: Workload) -> list[Probe]:
    cp, n = usable_cupy(), 8 * LARGE
    a, c = cp.asarray(uniform(n, n)), cp.empty((n, n), np.float32)
    x, y, z = (cp.ones(GPU_STREAM_BYTES // 4, np.float32) for _ in range(3))
    triad = cp.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x + 3 * y", "triad")
    wait = waiter(cp)
    return [
        Probe("sgemm-large", "rate", f"({n}, {n}) @ ({n}, {n})", lambda: cp.matmul(a, a, out=c), wait,
              flops=2 * n**3, bytes=12 * n**2),
        Probe("copy", "rate", "copy of 1 GiB on the device", lambda: cp.copyto(z, x), wait,
              bytes=2 * GPU_STREAM_BYTES),
        Probe("triad", "rate", "a = b + 3 c over 1 GiB arrays", lambda: triad(x, y, z), wait,
              bytes=3 * GPU_STREAM_BYTES),
    ]  # fmt: skip


def products(device: str, workload: Workload) -> list[Probe]:
    cp, found = usable_cupy(), []
    for work in bounds.gemms(workload):
        a, b = (cp.asarray(operand) for operand in product_operands(work, workload))
        out = cp.empty((a.shape[0], b.shape[1]), np.float32)
        does = f"{a.shape} @ {b.shape}"
        found.append(
            Probe(work.name, "product", does, lambda a=a, b=b, out=out: cp.matmul(a, b, out=out), waiter(cp),
                  flops=work.flops, bytes=work.bytes)
        )  # fmt: skip
    return found


def micro(device: str, workload: Workload) -> list[Probe]:
    cp, work = usable_cupy(), bounds.gemms(workload)[0]
    x, w = (cp.asarray(operand) for operand in product_operands(work, workload))
    return [Probe("product", "micro", f"{x.shape} @ {w.shape}", lambda: x @ w, waiter(cp),
                  flops=work.flops, bytes=work.bytes)]  # fmt: skip


MAKERS = {FIXED: fixed_costs, "rate": rates, "product": products, "micro": micro}
