"""`overhead self-check`: whether the harness is to be believed."""

from __future__ import annotations

import json

import click

from overhead.harness import self_check as checks


@click.command("self-check")
@click.option("--force", is_flag=True, help="Measure although another measurement runs; records are marked.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def self_check(force: bool, as_json: bool) -> None:
    """Measure the harness itself, at most ten minutes: each property passes or fails.

    Example: overhead self-check
    """
    found = checks.run(lambda line: click.echo(line, err=True), force=force)
    click.echo(json.dumps(checks.report(found), allow_nan=False) if as_json else "\n".join(p.line() for p in found))
    wrong = [p.name for p in found if not p.passed]
    if wrong:
        raise click.ClickException(f"{len(wrong)} of {len(found)} properties do not hold: {', '.join(wrong)}")
