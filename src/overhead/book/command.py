"""`overhead run`, `book` and `check-host`: from a measurement to a page, and whether a folder may become one."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import yaml

from overhead.book.build import build
from overhead.book.check_host import findings
from overhead.chapters import CHAPTERS, chapter_of
from overhead.chapters.base import ParameterError, results_folder

results_option = click.option(
    "--results", type=click.Path(path_type=Path), help="Results folder (default: OVERHEAD_RESULTS, else ./results)."
)


@click.command()
@click.argument("notebook", nargs=-1)
@click.option("--host", default="local", show_default=True, help="Folder under the results folder.")
@click.option("--preset", type=click.Choice(["quick", "workshop", "full"]), default="quick", show_default=True)
@click.option("--device", type=click.Choice(["auto", "cpu", "gpu"]), default="auto", show_default=True)
@click.option(
    "-p", "parameters", nargs=2, multiple=True, metavar="NAME VALUE", help="A notebook parameter; VALUE is YAML."
)
@results_option
@click.option("--if-missing", is_flag=True, help="Skip notebooks that this host already has.")
@click.option("--fresh", is_flag=True, help="Measure all anew, also what a run that was ended early has finished.")
@click.option(
    "--from-records", is_flag=True, help="Measure nothing: make the pages anew from the records that are there."
)
def run(
    notebook: tuple[str, ...],
    host: str,
    preset: str,
    device: str,
    parameters: tuple[tuple[str, str], ...],
    results: Path | None,
    if_missing: bool,
    fresh: bool,
    from_records: bool,
) -> None:
    """Execute NOTEBOOKs (default: all) on this host and keep what they measured.

    Example: overhead run 05-batch-sweep -p batch_sizes '[32, 512]'
    """
    from overhead.book import execute  # needs what native Windows has not, where `book` works
    from overhead.chapters import keeping

    chapters = [Path(name).stem for name in notebook] or list(CHAPTERS)
    given = {name: _yaml(name, value) for name, value in parameters}
    shared = {"host": host, "preset": preset, "devices": [device], **given}
    for chapter in chapters:  # everything is checked before anything is measured
        execute.find(chapter)
    known = {name: None for chapter in chapters for name in chapter_of(chapter).model_fields}
    if unknown := [name for name in given if name not in known]:
        whose = chapters[0] if len(chapters) == 1 else "the notebooks"
        raise ParameterError(f"-p must be a parameter of {whose} ({', '.join(known)}), got {', '.join(unknown)}")
    folder = results or results_folder()
    if from_records:
        had = [name for name in chapters if notebook or (folder / host / f"{name}.jsonl").exists()]
        for chapter in had:
            path = execute.render(chapter, host, folder)
            click.echo(f"{chapter}: {path.parent.name}/{path.name}, from its records", err=True)
        return
    chosen = {
        chapter: {k: v for k, v in shared.items() if k in chapter_of(chapter).model_fields} for chapter in chapters
    }
    for chapter in chapters:
        execute.check(chapter, chosen[chapter], folder)
    os.environ.setdefault("OVERHEAD_RUN", f"{time.time_ns()}-{os.getpid()}")  # chapters share one calibration
    for chapter in chapters:
        if if_missing and execute.is_complete(folder, str(shared["host"]), [chapter]):
            had = keeping.parameters_of(folder / str(shared["host"]), chapter).get("preset", "quick")
            click.echo(
                f"{chapter}: measured already, preset {had} (ask for it again with FRESH=1, or without --if-missing)",
                err=True,
            )
            continue
        in_force = chosen[chapter]
        click.echo(f"{chapter}: measuring on {in_force['host']}, preset {in_force['preset']}", err=True)
        path = execute.run(chapter, chosen[chapter], folder, fresh=fresh, say=lambda line: click.echo(line, err=True))
        click.echo(f"{chapter}: {path.parent.name}/{path.name}", err=True)


def _yaml(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise click.UsageError(f"-p {name}: must be YAML, got {text!r}") from None


@click.command()
@results_option
@click.option("--out", type=click.Path(path_type=Path), default=Path("_build"), show_default=True)
def book(results: Path | None, out: Path) -> None:
    """Render what was measured; measures nothing. Prints the path of the first page.

    Example: overhead book
    """
    say = partial(click.echo, err=True)
    index = build((results or results_folder()).resolve(), out.resolve(), say)
    click.echo(os.path.relpath(index))


@click.command("check-host")
@click.argument("folder", type=click.Path(path_type=Path))
def check_host(folder: Path) -> None:
    """Look through a contributed host's folder: whole, private, harmless? A line a finding; exit status 1 with any.

    Example: overhead check-host results/gpu-box
    """
    found = findings(folder.absolute())
    for line in found:
        click.echo(line)
    if found:
        raise click.exceptions.Exit(1)
    click.echo(f"{folder.name}: whole, private, harmless")
