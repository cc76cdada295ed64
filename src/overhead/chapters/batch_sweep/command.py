"""`overhead bench`: chapter 5 without a notebook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from overhead.chapters.batch_sweep import bench as benches
from overhead.chapters.flop_bound.command import calibrate
from overhead.harness.command import self_check

OTHER_SPELLINGS = {"self_check": (self_check, ("force",)), "calibrate": (calibrate, ("force", "device", "preset"))}


def _numbers(ctx: click.Context, parameter: click.Parameter, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"must be whole numbers with commas between, got {text!r}", param_hint=parameter.opts[0]
        ) from None


@click.command()
@click.option("--loops", default="all", show_default=True, help="all, or names with commas between.")
@click.option("--batch-sizes", default="32,512,4096", show_default=True, callback=_numbers)
@click.option("--layers", default="784,128,10", show_default=True, callback=_numbers)
@click.option("--remainder", type=click.Choice(["drop", "keep"]), default="drop", show_default=True)
@click.option("--images", default=None, type=int, help="Training images (default: 48,000).")
@click.option("--learning-rate", default="0.1", show_default=True)
@click.option("--threads", default="all", show_default=True, help="all, or numbers with commas between.")
@click.option("--preset", type=click.Choice(["quick", "workshop", "full"]), default="quick", show_default=True)
@click.option("--device", type=click.Choice(["auto", "cpu", "gpu"]), default="auto", show_default=True)
@click.option("--processes", type=click.IntRange(1, 9), help="Fresh processes a loop (default: the preset's).")
@click.option("--without-floor", is_flag=True, help="The loops alone: a glance, without times the floor.")
@click.option(
    "--records", type=click.Path(path_type=Path), help="Keep the samples in this file; an early end keeps what it has."
)
@click.option("--force", is_flag=True, help="Measure although another measurement runs; records are marked.")
@click.option("--self-check", is_flag=True, help="The same as `overhead self-check`.")
@click.option("--calibrate", is_flag=True, help="Measure the host's ceilings and smallest costs instead.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_context
def bench(ctx: click.Context, as_json: bool, **options: Any) -> None:
    """Time loops against the measured floor, without a notebook.

    Example: overhead bench --loops numpy,keras-fit,jax-epoch --batch-sizes 32,512 --json
    """
    for name, (command, takes) in OTHER_SPELLINGS.items():
        if options.pop(name):
            _refuse_others(ctx, name, takes)
            ctx.invoke(command, as_json=as_json, **{taken: options[taken] for taken in takes})
            return
    found = benches.bench(**options, say=lambda line: click.echo(line, err=True))
    click.echo(json.dumps(found, allow_nan=False) if as_json else benches.as_text(found))
    if not any(row["status"] == "ok" for row in found["rows"]):
        raise click.ClickException("no loop that was asked for could be timed; its row says why")


def _refuse_others(ctx: click.Context, name: str, takes: tuple[str, ...]) -> None:
    """Raise `click.UsageError` for an option that was given and means nothing beside `name`."""
    for other in ctx.params:
        given = ctx.get_parameter_source(other) is not ParameterSource.DEFAULT
        if given and other not in (name, "as_json", *takes):
            raise click.UsageError(f"--{other.replace('_', '-')} means nothing with --{name.replace('_', '-')}")
