"""`overhead sweep`: options to a sweep, progress, and the report for people."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from overhead import sweep as sweeps
from overhead.problem.workload import MNIST_LAYERS, TRAINING_IMAGES
from overhead.sweep.cluster import SchedulerUnreachable
from overhead.sweep.plan import Sweep

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


@click.command()
@click.option("--rates", default="0.001,0.01,0.1,1,10", show_default=True, help="Numbers, or START:STOP:COUNT (log).")
@click.option("--epochs", default=1, show_default=True)
@click.option("--batch-size", default=32, show_default=True)
@click.option("--layers", multiple=True, help="784,128,10 unless given; several times for several shapes.")
@click.option("--images", default=None, type=int, help="Training images (default: 48,000).")
@click.option("--seed", default=0, show_default=True, help="Of the first parameters and the order of the images.")
@click.option("--own-weights", is_flag=True, help="Each rate its own first parameters, as in the article.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "sequential", "vmap", "stacked", "sparse", "jax-pool", "keras-pool", "dask"]),
    default="auto",
    show_default=True,
    help="auto: the best with dense arithmetic and all models in one process; sparse multiplies by no zero pixel.",
)
@click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True)
@click.option("--scheduler", help="A Dask scheduler, such as tcp://node:8786 (default: a cluster of this machine).")
@click.option("--processes", type=click.IntRange(min=1), help="Most processes of a pool at once (default: the cores).")
@click.option("--memory-limit", help="Such as 2GiB (default: four fifths of what is available).")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def sweep(as_json: bool, **options: Any) -> None:
    """Train a model for each learning rate; go on where an interrupted sweep stopped.

    Example: overhead sweep --rates 1e-3:1e1:41 --epochs 3
    """

    def tell(found: dict[str, Any]) -> None:
        click.echo(json.dumps(found, allow_nan=False) if as_json else as_text(found))

    if all_failed(run(tell, **options)):
        raise click.exceptions.Exit(1)


def run(
    tell: Callable[[dict[str, Any]], None],
    layers: Sequence[str],
    images: int | None,
    scheduler: str | None,
    processes: int | None,
    memory_limit: str | None,
    engine: str,
    **fields: Any,
) -> dict[str, Any]:
    """Run what the options say and tell the report, which is returned as well.

    Raises `click.ClickException` for what cannot run.
    """
    shapes = [_layers(text) for text in layers] or [MNIST_LAYERS]
    images = TRAINING_IMAGES if images is None else images
    asked = Sweep(layers=tuple(shapes), images=images, engine=engine, **fields)  # type: ignore[arg-type]
    if scheduler is not None and engine != "dask":
        raise click.UsageError(f"--scheduler needs --engine dask, got --engine {engine}")
    limit = bytes_of(memory_limit) if memory_limit else None
    try:
        with ExitStack() as bar:
            say = bar.enter_context(progress(len(asked.members()) * asked.epochs))

            def told(outcome: sweeps.Outcome) -> None:
                bar.close()
                tell(sweeps.report(outcome))

            outcome = sweeps.run(
                asked,
                scheduler=scheduler,
                memory_limit_bytes=limit,
                processes=processes,
                began=command_began(),
                say=say,
                tell=told,
            )
    except (sweeps.DoesNotFit, sweeps.JournalBusy, SchedulerUnreachable) as error:
        raise click.ClickException(str(error)) from None
    except ImportError as error:
        if error.name not in ("dask", "distributed"):
            raise
        raise click.ClickException(f"{error.name} is not installed: pip install 'overhead[cluster]'") from None
    return sweeps.report(outcome)


def _layers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"must be whole numbers with commas between, got {text!r}", param_hint="--layers"
        ) from None


def bytes_of(text: str) -> int:
    """A number of bytes with a unit, such as 2GiB. Raises `click.BadParameter`."""
    found = re.fullmatch(r"\s*([\d.]+)\s*([A-Za-z]*)\s*", text)
    try:
        size = int(float(found[1]) * UNITS[found[2].upper()]) if found else 0
    except (KeyError, ValueError):
        size = 0
    if size <= 0:
        raise click.BadParameter(f"must be bytes such as 2GiB or 500MB, got {text!r}", param_hint="--memory-limit")
    return size


def command_began() -> float:
    """When this process started, as of `time.time()`."""
    now = time.time()
    if sys.platform == "linux" and hasattr(
        os, "sysconf"
    ):  # psutil's goes by the time of booting, which the kernel tells in whole seconds
        ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        return min(now, now - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK"))
    import psutil

    return min(psutil.Process().create_time(), now)


@contextmanager
def progress(total: int) -> Iterator[Any]:
    """A bar on a terminal, nothing in a log."""
    if not sys.stderr.isatty():
        yield lambda told: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("epochs of models", total=total)
        yield lambda told: bar.update(task, completed=told.done)


def all_failed(found: dict[str, Any]) -> bool:
    """Whether no model could be trained; one that diverged was."""
    return all(row["status"] not in ("ok", "diverged") for row in found["rows"])


def as_text(found: dict[str, Any]) -> str:
    """The report for people: a line a model, then where the time went."""
    from overhead.showing.tables import NOT_MEASURED, number  # pandas, which nothing before needs

    shapes = len({tuple(row["layers"]) for row in found["rows"]}) > 1
    lines = []
    for row in found["rows"]:
        name = f"rate {row['rate']:g}" + (f", layers {'-'.join(map(str, row['layers']))}" if shapes else "")
        if row["status"] == "ok":
            share = row["val_accuracy"][-1]
            accuracy = NOT_MEASURED if share is None else f"{100 * share:.2f} %"
            lines.append(f"{name}: loss {number(row['loss'][-1])}, validation accuracy {accuracy}")
        else:
            lines.append(f"{name}: {row['reason'] if row['status'] == 'diverged' else 'failed: ' + row['reason']}")
    lines.append(
        f"{found['engine']}, models: {len(found['rows'])}, epochs: {found['epochs']}, "
        f"batch size: {found['batch_size']}: "
        f"{number(found['wall_s'])} s in all, {number(found['train_s'])} s of it training, "
        f"{number(found['compile_s'])} s compiling; {found['processes']} processes, {found['threads']} threads each; "
        f"{found['models_at_once']} models at once; peak memory {found['peak_rss_bytes'] / 2**20:,.0f} MiB"
    )
    if found["resumed"]:
        lines.append(f"finished by an earlier, interrupted run: {found['resumed']} of these models")
    if found["best_rate"] is not None:
        lines.append(f"best rate: {found['best_rate']:g}")
    return "\n".join(lines)
