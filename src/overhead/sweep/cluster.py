"""A sweep's tasks on Dask: a cluster of this machine's processes, or any scheduler by its address.

Scheduling, transport and another try after a worker was lost are Dask's. A scheduler runs whatever code it is
handed; ours takes it from nobody but us, since all its connections are encrypted with a key that this run makes. Each
task trains in a process that the Dask worker starts, so that threads and devices are set before a framework is
imported, there as here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from overhead.sweep.train import Task, Trained, failed, train

CONNECT_LIMIT_S = 5.0
IDLE_LIMIT_S = 120  # a cluster that we no longer use ends by itself, should we be killed


class SchedulerUnreachable(RuntimeError):
    """No scheduler answered at the address, or one that has no worker for what is asked."""


@contextmanager
def client(scheduler: str | None, processes: int, device: str = "cpu") -> Iterator[Any]:
    """A client of the scheduler at `scheduler`, or of a cluster of `processes` workers that ends with the block.

    On a GPU the cluster is one worker, since it has the GPU to itself.
    Raises `SchedulerUnreachable` within ten seconds, and `ImportError` without Dask or what makes its keys.
    """
    import dask.config
    from distributed import Client, Security
    from distributed.deploy.subprocess import SubprocessCluster

    # A heartbeat that is late on a busy machine is no lost worker, and comm retries would wait for minutes.
    settings = {"distributed.comm.timeouts.connect": f"{CONNECT_LIMIT_S:g}s", "distributed.comm.retry.count": 0}
    with dask.config.set(settings):
        if scheduler is None:
            ours = "overhead.sweep.cluster_member"
            workers = {"memory_limit": 0, "death_timeout": IDLE_LIMIT_S, "preload": ours, "preload_nanny": ours}
            security = Security.temporary()
            os.environ["OVERHEAD_CLUSTER_OF"] = str(os.getpid())
            # Subprocesses, not multiprocessing: a script without a main guard would start itself again.
            with (
                _inherited(security),
                SubprocessCluster(
                    n_workers=1 if device == "gpu" else processes, threads_per_worker=1, dashboard_address=None,  # type: ignore[arg-type]
                    worker_kwargs=workers | ({"resources": {"GPU": 1}} if device == "gpu" else {}),
                    scheduler_kwargs={"idle_timeout": f"{IDLE_LIMIT_S} s", "preload": ours}, silence_logs=40,
                    security=security,
                ) as cluster,
                Client(cluster) as found,
            ):  # fmt: skip
                yield found
            return
        try:
            found = Client(scheduler, timeout=f"{CONNECT_LIMIT_S:g}s")
        except (OSError, TimeoutError, ValueError) as error:
            why = str(error) or type(error).__name__
            raise SchedulerUnreachable(
                f"no Dask scheduler answered at {scheduler} within {CONNECT_LIMIT_S:g} s: {why.splitlines()[0][:120]}"
            ) from None
        with found:
            _has_workers(found, scheduler, device)
            yield found


@contextmanager
def _inherited(security: Any) -> Iterator[None]:
    """What the processes of a cluster need to speak TLS, in the environment that they are started with."""
    held = {"CA_FILE": security.tls_ca_file}
    for role in ("scheduler", "worker", "client"):
        held |= {f"{role.upper()}__{what.upper()}": getattr(security, f"tls_{role}_{what}") for what in ("cert", "key")}
    ours = {f"DASK_DISTRIBUTED__COMM__TLS__{name}": value for name, value in held.items()}
    ours |= {"DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME": "tls", "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True"}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _has_workers(client: Any, scheduler: str, device: str) -> None:
    """Raise `SchedulerUnreachable` where the tasks would wait for ever."""
    try:
        client.wait_for_workers(1, timeout=CONNECT_LIMIT_S / 2)
    except TimeoutError:
        raise SchedulerUnreachable(f"the Dask scheduler at {scheduler} must have a worker, got 0") from None
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if device == "gpu" and not any(worker["resources"].get("GPU", 0) >= 1 for worker in workers):
        raise SchedulerUnreachable(
            f"a worker at {scheduler} must offer the resource GPU (dask worker --resources GPU=1), got none"
        )


def trained(client: Any, tasks: Sequence[Task]) -> Iterator[Trained]:
    """The tasks as they end, each once. A task on a GPU asks for the worker resource `GPU`."""
    from distributed import as_completed

    futures = {
        client.submit(
            train, task, pure=False, retries=2, resources={"GPU": 1} if task.device == "gpu" else None
        ): task
        for task in tasks
    }  # fmt: skip
    for future in as_completed(list(futures)):
        error = future.exception()
        yield future.result() if error is None else failed(futures[future], "failed", f"Dask gave up: {error}")
