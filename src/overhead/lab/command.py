"""`overhead lab`: exercises on a simulated device."""

from __future__ import annotations

import json

import click

from overhead.lab import exercises
from overhead.lab.device import Clock, preset
from overhead.model.gpus import GPUS


@click.command()
@click.argument("exercise", nargs=-1, type=click.Choice(list(exercises.EXERCISES)))
@click.option(
    "--gpu", default="RTX 3060", show_default=True, help=f"The simulated GPU: {', '.join(gpu.name for gpu in GPUS)}."
)
@click.option("--harness", is_flag=True, help="Also let the harness time a loop that forgets to wait (some seconds).")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def lab(exercise: tuple[str, ...], gpu: str, harness: bool, as_json: bool) -> None:
    """Launches, a queue, copies and waits of a GPU that is simulated in real time: nothing here was measured on one.

    EXERCISE: forget (to wait), queue (its depth), batch (double it), fuse, graph, predict (by chapter 8); default all.

    Example: overhead lab --gpu "RTX 3060" forget
    """
    try:
        device = preset(gpu)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    names = exercise or tuple(exercises.EXERCISES)
    found = {name: exercises.EXERCISES[name](device, Clock()) for name in names}
    document = {"device": {**device._asdict(), "simulated": True}, "exercises": found}
    if harness:
        document["harness"] = [
            {"loop": record.loop, "status": record.status, "reason": record.reason}
            for record in exercises.caught(device)
        ]
    if as_json:
        click.echo(json.dumps(document, allow_nan=False))
        return
    click.echo(f"simulated {device.name}: real time, no such device")
    for name, result in found.items():
        click.echo(f"{name:8} {result['says']}")
    for row in document.get("harness", []):
        click.echo(
            f"harness  {row['loop'].rpartition(':')[2]}: {row['status']}" + f" ({row['reason']})" * bool(row["reason"])
        )
