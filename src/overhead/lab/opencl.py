"""A real queue without a GPU: OpenCL on this machine's own processor, where pyopencl and a driver such as PoCL are."""

from __future__ import annotations

import time
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

# Long enough, in floating-point work, that a call has returned before it is done.
KERNEL = """
__kernel void work(__global float *a, int passes) {
    int i = get_global_id(0);
    float x = a[i];
    for (int k = 0; k < passes; ++k) x = x * 0.5f + 1.0f;
    a[i] = x;
}
"""
ELEMENTS, PASSES, COMMANDS = 1 << 18, 100, 8


class Missing(RuntimeError):
    """There is no OpenCL here; says what is missing and how to get it."""


class Command(NamedTuple):
    """A kernel in the queue: what the host waited for its call, and the device's own clock of it; nanoseconds."""

    returned_ns: int  # by the host's clock, from before the call
    submitted_ns: int  # by the device's, from when it was queued
    started_ns: int
    ended_ns: int


def queued() -> tuple[str, list[Command], int]:
    """The device's name, commands enqueued at once, and the host's nanoseconds for all with a wait at the end.

    Raises `Missing`.
    """
    with suppress(ImportError):
        import_module("pocl_binary_distribution")  # tells the loader where this package's driver is
    try:
        cl: Any = import_module("pyopencl")
    except ImportError:
        raise Missing("pyopencl is not installed (pip install pyopencl pocl-binary-distribution)") from None
    try:
        device = cl.get_platforms()[0].get_devices()[0]
    except (cl.Error, IndexError):
        raise Missing("OpenCL finds no device (pip install pocl-binary-distribution)") from None
    context = cl.Context([device])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * ELEMENTS)
    kernel = cl.Kernel(cl.Program(context, KERNEL).build(), "work")
    kernel.set_arg(0, buffer)
    kernel.set_arg(1, PASSES.to_bytes(4, "little"))
    cl.enqueue_nd_range_kernel(queue, kernel, (ELEMENTS,), None).wait()  # compiled and warm
    began, calls = time.perf_counter_ns(), []
    for _ in range(COMMANDS):
        start = time.perf_counter_ns()
        event = cl.enqueue_nd_range_kernel(queue, kernel, (ELEMENTS,), None)
        calls.append((event, time.perf_counter_ns() - start))
    queue.finish()
    waited_ns = time.perf_counter_ns() - began
    found = []
    for event, returned_ns in calls:
        at = event.profile
        found.append(Command(returned_ns, at.submit - at.queued, at.start - at.queued, at.end - at.queued))
    return device.name, found, waited_ns
