"""`overhead profile`: read a profile, compare two, or make one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click

from overhead.profiles.difference import difference
from overhead.profiles.reading import read_profile
from overhead.profiles.summary import ProfileError
from overhead.profiles.text import show, show_difference


@click.command(
    epilog="Example: overhead profile run1.sqlite  ·  overhead profile before.sqlite after.sqlite  ·  "
    "overhead profile --capture --loop keras-fit --device gpu"
)
@click.argument("files", metavar="[FILE [FILE]]", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--capture", "capturing", is_flag=True, help="Profile one epoch of a loop: nsys, or JAX's profiler.")
@click.option("--loop", help="The loop to profile with --capture (default: keras-fit on a GPU, else jax-step).")
@click.option("--device", type=click.Choice(["cpu", "gpu"]), help="Where to run it (default: the GPU if there is one).")
@click.option("--out", type=click.Path(path_type=Path), help="With --capture: folder that keeps the profile.")
def profile(
    files: tuple[Path, ...], as_json: bool, capturing: bool, loop: str | None, device: str | None, out: Path | None
) -> None:
    """Say what a profile shows: host calls, queue times and kernels, which are three different things.

    FILE is an Nsight Systems export (SQLite), CSV reports of `nsys stats`, or a JAX trace (xplane.pb,
    trace.json.gz, or the folder that holds them). Two files give the difference.
    """
    wanted = {"--loop": loop, "--device": device, "--out": out}
    if capturing and files:
        raise click.UsageError(f"--capture makes a profile and reads no FILE, got {files[0].name}")
    if not capturing and (unused := [name for name, value in wanted.items() if value is not None]):
        raise click.UsageError(f"{unused[0]} goes with --capture")
    if not capturing and not 1 <= len(files) <= 2:
        raise click.UsageError(f"give one profile, or two to compare, got {len(files)}")
    try:
        if capturing:
            _capture(loop, device or ("gpu" if shutil.which("nvidia-smi") else "cpu"), out, as_json)
            return
        found = [read_profile(file) for file in files]
    except ProfileError as error:
        raise click.ClickException(str(error)) from None
    if len(found) == 1:
        _print(found[0].to_json() if as_json else show(found[0]), found[0].warnings if as_json else ())
        return
    a, b = found
    change = difference(a, b)
    notes = change.warnings if as_json else ()
    _print({"a": a.to_json(), "b": b.to_json(), **change.to_json()} if as_json else show_difference(change), notes)


def _capture(loop: str | None, device: str, out: Path | None, as_json: bool) -> None:
    from overhead.profiles.capture import capture, choose

    loop = loop or ("keras-fit" if device == "gpu" else "jax-step")
    for note in choose(loop, device)[1]:
        click.echo(f"note: {note}", err=True)
    click.echo(f"profiling one epoch of {loop} on the {device} …", err=True)
    made = capture(loop, device, out=out)
    if made.saved:
        click.echo(f"saved as {made.saved}", err=True)
    about = {"tool": made.tool, "loop": made.loop, "device": made.device, "device_name": made.device_name}
    _print({**made.summary.to_json(), "capture": {**about, "notes": made.notes}} if as_json else show(made.summary))


def _print(document: dict[str, Any] | str, warnings: tuple[str, ...] = ()) -> None:
    click.echo(document if isinstance(document, str) else json.dumps(document, indent=1, ensure_ascii=False))
    for warning in warnings:
        click.echo(f"note: {warning}", err=True)
