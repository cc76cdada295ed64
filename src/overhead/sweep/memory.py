"""How much memory a sweep needs, before it starts: models at once, processes at once, threads for each."""

from __future__ import annotations

from typing import NamedTuple

from overhead.loops import frameworks
from overhead.machine import host
from overhead.problem.data import VALIDATION_IMAGES
from overhead.problem.workload import Workload

CALLER_BYTES = 620_000_000  # this process while it unpacks and splits the images
COPIES = 4  # parameters, the updated ones, the gradients, and the arrays that they were placed from
ACTIVATIONS = 4  # arrays as large as each layer's output that live at once in a step
# Parameters of all models in one call. On a CPU more were slower a model: they leave the cache (20 models of
# 784-128-10 took 15 % longer each than 5, stacked). On a GPU only memory limits them.
AT_ONCE_BYTES = {"cpu": 3_500_000, "gpu": 4_000_000_000}


class DoesNotFit(ValueError):
    """A sweep whose smallest part exceeds the memory limit; says how much it needs."""


class Allotment(NamedTuple):
    """Processes at once and threads for each; their product is at most the cores that are allowed."""

    processes: int
    threads: int
    process_bytes: int  # estimated, of each


def model_bytes(workload: Workload) -> int:
    """Bytes that one more model takes while it trains: parameters × copies + activations of a batch."""
    outputs = sum(workload.layers[1:])
    losses = 8 * workload.steps
    return 4 * (COPIES * workload.parameters + ACTIVATIONS * workload.batch_size * outputs) + losses


def process_bytes(workload: Workload, framework: str, models: int = 1) -> int:
    """Bytes of a process that trains `models` at once: the framework, the images twice (mapped and placed), the models.

    Validation runs one model after another over all images that validate.
    """
    images = 2 * 4 * (workload.images + VALIDATION_IMAGES) * workload.layers[0]
    copies = 2 if framework == "tensorflow" else 1  # `fit` makes tensors of the arrays and of the validation data
    validation = 2 * 4 * VALIDATION_IMAGES * max(workload.layers[1:])
    return frameworks.of(framework).process_bytes + copies * images + validation + models * model_bytes(workload)


def default_limit_bytes() -> int:
    """Four fifths of the memory that is available now, within the limits of this process's control groups."""
    return int(0.8 * host.memory_available_bytes())


def chunk_size(
    workload: Workload, models: int, limit_bytes: int, device: str = "cpu", side_by_side: bool = True
) -> int:
    """Models to train at once in one process: chunks of one size, so that one program serves them all.

    Models that do not train side by side leave no cache, however many there are. Raises `DoesNotFit` when not even one
    model fits.
    """
    room = limit_bytes - CALLER_BYTES - process_bytes(workload, "jax", 0)
    fits = room // model_bytes(workload)
    if fits < 1:
        needed = CALLER_BYTES + process_bytes(workload, "jax", 1)
        raise DoesNotFit(
            f"memory limit must be at least {mib(needed)} (one model of {'-'.join(map(str, workload.layers))} with "
            f"{workload.images:,} images at batch size {workload.batch_size}), got {mib(limit_bytes)}"
        )
    fast = max(1, AT_ONCE_BYTES[device] // (4 * workload.parameters)) if side_by_side else models
    chunks = -(-models // min(fits, fast))
    return -(-models // chunks)


def allot(workload: Workload, tasks: int, framework: str, limit_bytes: int, processes: int | None = None) -> Allotment:
    """How many processes of a pool may run at once, bounded by tasks, cores and memory, and threads for each.

    Raises `DoesNotFit` when not even one process fits.
    """
    each = process_bytes(workload, framework)
    fits = (limit_bytes - CALLER_BYTES) // each
    if fits < 1:
        raise DoesNotFit(
            f"memory limit must be at least {mib(CALLER_BYTES + each)} (one {framework} process), "
            f"got {mib(limit_bytes)}"
        )
    cores = host.cores_allowed()
    count = max(1, min(tasks, cores, fits, processes or cores))
    return Allotment(count, max(1, cores // count), each)


def mib(count: int) -> str:
    """Bytes in MiB for a message, rounded up."""
    return f"{-(-count // 2**20):,} MiB"
