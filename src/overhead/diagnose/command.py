"""`overhead diagnose`: what limits a reader's own training step."""

from __future__ import annotations

import json
from pathlib import Path

import click

from overhead.diagnose.session import Failed, Target
from overhead.diagnose.templates import TEMPLATES


@click.command(epilog="Example: overhead diagnose --template numpy > mine.py  ·  overhead diagnose mine.py:step --try")
@click.argument("step", metavar="[FILE:FUNCTION]", required=False)
@click.option("--make", default="make_batch", show_default=True, help="The function of n that gives n examples.")
@click.option("--batch-size", default=32, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=60.0, show_default=True, type=click.FloatRange(5, 3600), help="Time for all of it.")
@click.option("--try", "trying", is_flag=True, help="Make the advised change where that can be done, and measure it.")
@click.option("--template", type=click.Choice(list(TEMPLATES)), help="Print a file to begin with instead.")
@click.option("--self-check", is_flag=True, help="Diagnose steps of known mixture instead: about ten minutes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def diagnose(
    step: str | None,
    make: str,
    batch_size: int,
    seconds: float,
    trying: bool,
    template: str | None,
    self_check: bool,
    as_json: bool,
) -> None:
    """Say what limits a training step of yours, by changing one thing at a time.

    FILE has FUNCTION(batch), one step, and make_batch(n). It may have batches() (an iterator, your input pipeline),
    sync() (waits for the device), state() (what the step changes) and reset() (called before each sample). The file is
    run: give only one that you trust.
    """
    if sum([step is not None, template is not None, self_check]) != 1:
        raise click.UsageError("give one of FILE:FUNCTION, --template and --self-check")
    if template is not None:
        click.echo(TEMPLATES[template], nl=False)
    elif self_check:
        _check(as_json)
    else:
        assert step is not None
        _diagnose(_target(step, make, batch_size), seconds, trying, as_json)


def _target(step: str, make: str, batch_size: int) -> Target:
    """Raises `UsageError` for a text that names no file and function."""
    file, colon, function = step.rpartition(":")
    if not colon or not file or not function.isidentifier():
        raise click.UsageError(f"must be FILE:FUNCTION, such as mine.py:step, got {step!r}")
    path = Path(file)
    if not path.is_file():
        raise click.UsageError(f"FILE must be a file, and there is none called {path.name}")
    if path.suffix != ".py":
        raise click.UsageError(f"FILE must be a Python file (.py), got {path.name}")
    return Target(path, function, make, batch_size)


def _diagnose(target: Target, seconds: float, trying: bool, as_json: bool) -> None:
    from overhead.diagnose import report
    from overhead.machine.alone import measuring

    try:
        with measuring(force=True) as shared:
            found = report.diagnose(target, seconds, trying)
    except Failed as failed:
        raise click.ClickException(str(failed)) from None
    if shared:
        found["warnings"].append("another overhead measurement ran at the same time")
    click.echo(json.dumps(found, allow_nan=False) if as_json else report.as_text(found))
    for warning in found["warnings"]:
        click.echo(f"warning: {warning}", err=True)


def _check(as_json: bool) -> None:
    from overhead.diagnose import self_check
    from overhead.machine.alone import measuring

    with measuring():
        found = self_check.report(self_check.run(lambda line: click.echo(line, err=True)))
    shares = {key: found[key] for key in ("right_pure", "right_mixed", "wrong_certain", "right_gain")}
    click.echo(
        json.dumps(found, allow_nan=False)
        if as_json
        else "\n".join(f"{key}: {'no case' if value is None else f'{value:.1%}'}" for key, value in shares.items())
    )
    if missed := self_check.shortfalls(found):
        raise click.ClickException("; ".join(missed))
