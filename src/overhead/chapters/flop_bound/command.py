"""`overhead bench --calibrate`: what this host can do at most and asks at least."""

from __future__ import annotations

import json

import click

from overhead.chapters.base import results_folder
from overhead.chapters.flop_bound.chapter import FlopBound
from overhead.measure import calibration
from overhead.measure.session import PRESETS


@click.command()
@click.option("--host", default="local", show_default=True, help="A folder under the results folder.")
@click.option("--device", type=click.Choice(["auto", "cpu", "gpu"]), default="auto", show_default=True)
@click.option("--preset", type=click.Choice(["quick", "workshop", "full"]), default="quick", show_default=True)
@click.option("--force", is_flag=True, help="Measure although another measurement runs; records are marked.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def calibrate(host: str, device: str, preset: str, force: bool, as_json: bool) -> None:
    """Measure this host's ceilings and smallest costs, and keep them with its results.

    Example: overhead bench --calibrate
    """
    chapter = FlopBound.checked(host=host, preset=preset, devices=[device])
    chapter.check_host()
    devices = chapter.usable_devices()
    found = calibration.calibrate(chapter.host, devices, PRESETS[preset], results_folder(), force=force)
    click.echo(json.dumps(found, allow_nan=False) if as_json else calibration.as_text(found))
