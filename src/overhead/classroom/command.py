"""`overhead check` and `overhead class`."""

from __future__ import annotations

from pathlib import Path

import click

from overhead.book.folder import FolderError
from overhead.classroom import gathering, judging
from overhead.classroom.answers import MissingRecord
from overhead.classroom.judging import AnswerError


@click.command()
@click.argument("exercise")
@click.argument("answer", nargs=-1)
@click.option("--host", default="local", show_default=True, help="Folder under the results folder: your own records.")
@click.option(
    "--results", type=click.Path(path_type=Path), help="Results folder (default: OVERHEAD_RESULTS, else ./results)."
)
@click.option("--hint", "step", type=int, metavar="STEP", help="The hint of a step, from 1, and no judgement.")
def check(exercise: str, answer: tuple[str, ...], host: str, results: Path | None, step: int | None) -> None:
    """Judge an ANSWER to an EXERCISE of the workshop by your own records; exit status 1 where it is not right.

    Example: overhead check sweep-dropped 45056
    """
    try:
        if step is not None:
            click.echo(judging.hint(exercise, step))
            return
        found = judging.check(exercise, *answer, host=host, results=results)
    except AnswerError as fault:
        raise click.UsageError(str(fault)) from None
    except MissingRecord as missing:
        raise click.ClickException(str(missing)) from None
    click.echo(found.says)
    if not found.right:
        raise click.exceptions.Exit(1)


@click.command("class")
@click.argument("folder", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The page to write, one HTML file.")
def gather(folder: tuple[Path, ...], out: Path) -> None:
    """Gather the results of many students, a FOLDER each, on one page of dots. Only names of folders are shown.

    A FOLDER is a host's, such as results/local under another name, or one that holds such folders. What cannot be
    used is named and left out.

    Example: overhead class class/* --out class.html
    """
    try:
        found = gathering.gathered(folder)
    except FolderError as fault:
        raise click.UsageError(str(fault)) from None
    for name, why in found.left_out.items():
        click.echo(f"{name}: left out: {why}", err=True)
    if not found.students:
        raise click.ClickException("no folder has a batch sweep; each student runs: overhead run 05-batch-sweep")
    gathering.write(found, out)
    click.echo(f"{out}: {len(found.students)} folders, {len(found.left_out)} left out")
