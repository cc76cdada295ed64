"""The `overhead` command. Results on stdout, progress on stderr; 0 success, 2 wrong use, 1 failure."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import yaml
from pydantic import ValidationError

PRESET_NAMES = ["quick", "workshop", "full"]


class Command(click.Command):
    """A command that turns the package's faults into click's: wrong use exits with 2, a failure with 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            told = _told(error)
            if told is None:
                raise
            raise told from None


def _told(error: Exception) -> click.ClickException | None:
    """The line that a user is told, or None for a fault of ours. What names a fault is imported when there is one."""
    from overhead.book.build import BookError
    from overhead.book.execute import NotebookFailed
    from overhead.chapters.base import ParameterError, in_words
    from overhead.measure.rounds import Busy
    from overhead.problem.data import DataError
    from overhead.records.record import RecordError

    if isinstance(error, ParameterError):
        return click.UsageError(str(error))
    if isinstance(error, ValidationError):
        return click.UsageError(in_words(error, "workload", {}))
    if isinstance(error, BookError | Busy | DataError | NotebookFailed | RecordError):
        return click.ClickException(str(error))
    if isinstance(error, OSError):
        where = f": {Path(error.filename).name}" if error.filename else ""
        return click.ClickException(f"{error.strerror or error}{where}")
    return None


class Group(click.Group):
    """The commands below and `profile`, which is imported when it is asked for: its readers take a while to load."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "profile"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "profile":
            return super().get_command(ctx, cmd_name)
        from overhead.profiles.command import profile

        return profile


def _numbers(name: str) -> Callable[[click.Context, click.Parameter, str], list[int]]:
    def read(_: click.Context, __: click.Parameter, text: str) -> list[int]:
        try:
            return [int(part) for part in text.split(",")]
        except ValueError:
            raise click.BadParameter(
                f"must be whole numbers with commas between, got {text!r}", param_hint=name
            ) from None

    return read


results_option = click.option(
    "--results", type=click.Path(path_type=Path), help="Results folder (default: OVERHEAD_RESULTS, else ./results)."
)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="overhead")
def cli() -> None:
    """Why does my small model train faster on the CPU than on the GPU? Measure it here.

    Example: overhead bench --loops numpy,jax-epoch --batch-sizes 32
    """


@cli.command()
@click.argument("notebook", nargs=-1)
@click.option("--host", default="local", show_default=True, help="Folder under the results folder.")
@click.option("--preset", type=click.Choice(PRESET_NAMES), default="quick", show_default=True)
@click.option("--device", type=click.Choice(["auto", "cpu", "gpu"]), default="auto", show_default=True)
@click.option(
    "-p", "parameters", nargs=2, multiple=True, metavar="NAME VALUE", help="A notebook parameter; VALUE is YAML."
)
@click.option(
    "--results", type=click.Path(path_type=Path), help="Results folder (default: OVERHEAD_RESULTS or ./results)."
)
@click.option("--if-missing", is_flag=True, help="Skip notebooks that this host already has.")
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
    from_records: bool,
) -> None:
    """Execute NOTEBOOKs (default: all) on this host and keep what they measured.

    Example: overhead run 05-batch-sweep -p batch_sizes '[32, 512]'
    """
    from overhead.book import execute
    from overhead.chapters import CHAPTERS, chapter_of
    from overhead.chapters.base import ParameterError, results_folder

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
        for chapter in chapters:
            path = execute.again(chapter, host, folder)
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
            click.echo(
                f"{chapter}: measured already (ask for it again with FRESH=1, or without --if-missing)", err=True
            )
            continue
        click.echo(f"{chapter}: measuring on {host}, preset {preset}", err=True)
        path = execute.run(chapter, chosen[chapter], folder)
        click.echo(f"{chapter}: {path.parent.name}/{path.name}", err=True)


def _yaml(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise click.UsageError(f"-p {name}: must be YAML, got {text!r}") from None


@cli.command()
@click.option(
    "--results", type=click.Path(path_type=Path), help="Results folder (default: OVERHEAD_RESULTS or ./results)."
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("_build"), show_default=True)
def book(results: Path | None, out: Path) -> None:
    """Render what was measured; measures nothing. Prints the path of the first page.

    Example: overhead book
    """
    from overhead.book import build as builder
    from overhead.chapters.base import results_folder

    index = builder.build((results or results_folder()).resolve(), out.resolve())
    click.echo(os.path.relpath(index))


@cli.command()
@click.option("--loops", default="all", show_default=True, help="all, or names with commas between.")
@click.option("--batch-sizes", default="32,512,4096", show_default=True, callback=_numbers("--batch-sizes"))
@click.option("--layers", default="784,128,10", show_default=True, callback=_numbers("--layers"))
@click.option("--remainder", type=click.Choice(["drop", "keep"]), default="drop", show_default=True)
@click.option("--images", default=None, type=int, help="Training images (default: 48,000).")
@click.option("--learning-rate", default="0.1", show_default=True)
@click.option("--threads", default="all", show_default=True, help="all, or numbers with commas between.")
@click.option("--preset", type=click.Choice(PRESET_NAMES), default="quick", show_default=True)
@click.option("--device", type=click.Choice(["auto", "cpu", "gpu"]), default="auto", show_default=True)
@click.option("--force", is_flag=True, help="Measure although another measurement runs; records are marked.")
@click.option("--self-check", is_flag=True, help="Measure the harness itself instead: at most ten minutes.")
@click.option("--calibrate", is_flag=True, help="Measure the host's ceilings and floors instead, and keep them.")
@click.option("--host", default="local", show_default=True, help="Whose calibration it is: a folder under results.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def bench(self_check: bool, calibrate: bool, host: str, as_json: bool, **options: Any) -> None:
    """Time loops against the measured floor, without a notebook.

    Example: overhead bench --loops numpy,keras-fit,jax-epoch --batch-sizes 32,512 --json
    """
    from overhead.chapters.batch_sweep import bench as benches

    if self_check:
        _check_the_harness(as_json, options["force"])
        return
    if calibrate:
        _calibrate(host, options["device"], options["preset"], options["force"], as_json)
        return
    found = benches.bench(**options, say=lambda line: click.echo(line, err=True))
    click.echo(json.dumps(found, allow_nan=False) if as_json else benches.as_text(found))


def _check_the_harness(as_json: bool, force: bool) -> None:
    """Print a line a property, or one document; a property that does not hold ends with status 1."""
    from overhead.harness import self_check as selfcheck

    found = selfcheck.run(lambda line: click.echo(line, err=True), force=force)
    click.echo(json.dumps(selfcheck.report(found), allow_nan=False) if as_json else "\n".join(p.line() for p in found))
    wrong = [p.name for p in found if not p.passed]
    if wrong:
        raise click.ClickException(f"{len(wrong)} of {len(found)} properties do not hold: {', '.join(wrong)}")


def _calibrate(host: str, device: str, preset: str, force: bool, as_json: bool) -> None:
    """Measure this host's ceilings and floors and keep them with its results."""
    from overhead.chapters.base import results_folder
    from overhead.chapters.flop_bound.chapter import FlopBound
    from overhead.measure import calibration
    from overhead.measure import rounds as runner

    chapter = FlopBound.checked(host=host, preset=preset, devices=[device])
    chapter.check_host()
    found = calibration.calibrate(
        chapter.host, chapter.usable_devices(), runner.PRESETS[preset], results_folder(), force=force
    )
    click.echo(json.dumps(found, allow_nan=False) if as_json else calibration.as_text(found))


@cli.command()
@click.option("--batch-size", default=32, show_default=True)
@click.option("--layers", default="784,128,10", show_default=True, callback=_numbers("--layers"))
@click.option("--images", default=None, type=int, help="Training images (default: 48,000).")
@click.option("--remainder", type=click.Choice(["drop", "keep"]), default="drop", show_default=True)
@click.option("--peak-tflops", type=float, help="A peak in TFLOPS (1e12 FLOP/s).")
@click.option("--device-model", help='A published device, such as "Quadro RTX 5000".')
@click.option("--host", help="A host whose ceilings were measured: a folder under results.")
@click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True, help="With --host.")
@results_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def bounds(
    batch_size: int,
    layers: list[int],
    images: int | None,
    remainder: str,
    peak_tflops: float | None,
    device_model: str | None,
    host: str | None,
    device: str,
    results: Path | None,
    as_json: bool,
) -> None:
    """FLOPs, bytes and the least time a training step could take.

    Example: overhead bounds --batch-size 32 --peak-tflops 11
    """
    from overhead.chapters.base import results_folder
    from overhead.measure import calibration
    from overhead.problem import bounds as limits
    from overhead.problem.workload import TRAINING_IMAGES, Workload

    workload = Workload(
        layers=tuple(layers),
        batch_size=batch_size,
        images=TRAINING_IMAGES if images is None else images,
        remainder=remainder,  # type: ignore[arg-type]
    )
    if sum(given is not None for given in (peak_tflops, device_model, host)) > 1:
        raise click.UsageError("--peak-tflops, --device-model and --host exclude each other")
    peak = peak_tflops * 1e12 if peak_tflops is not None else None
    try:
        ceilings = calibration.of_host(results or results_folder(), host, device) if host is not None else None
        found = limits.report(workload, peak_flops_per_s=peak, device_model=device_model, ceilings=ceilings)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    click.echo(json.dumps(found, allow_nan=False) if as_json else limits_text(found))


def limits_text(found: dict[str, Any]) -> str:
    """The report for people: a line a product, then the totals."""
    lines = [f"layers {found['layers']}, batch size {found['batch_size']}, {found['steps_per_epoch']} steps an epoch"]
    for gemm in found["gemms"]:
        bound = f"{gemm['bound_us']:.4g} us" if gemm["bound_us"] is not None else "no peak given"
        lines.append(f"  {gemm['name']:<8}{gemm['flops']:>16,} FLOP{gemm['bytes']:>14,} bytes   at least {bound}")
    lines.append(
        f"step {found['step_flops']:,} FLOP (forward {found['forward_flops']:,}), epoch {found['epoch_flops']:,} FLOP"
    )
    if found["step_bound_us"] is not None:
        lines.append(
            f"a step takes at least {found['step_bound_us']:.4g} us: a bound, not a prediction and not a utilisation"
        )
    return "\n".join(lines)


@cli.command()
@click.option("--rates", default="0.001,0.01,0.1,1,10", show_default=True, help="Numbers, or START:STOP:COUNT (log).")
@click.option("--epochs", default=1, show_default=True)
@click.option("--batch-size", default=32, show_default=True)
@click.option("--layers", multiple=True, help="784,128,10 unless given; several times for several shapes.")
@click.option("--images", default=None, type=int, help="Training images (default: 48,000).")
@click.option("--seed", default=0, show_default=True, help="Of the first parameters and the order of the images.")
@click.option("--own-weights", is_flag=True, help="Each rate its own first parameters, as in the article.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "sequential", "vmap", "stacked", "jax-pool", "keras-pool", "dask"]),
    default="auto",
    show_default=True,
    help="auto: the best that trains all models in one process.",
)
@click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True)
@click.option("--scheduler", help="A Dask scheduler, such as tcp://node:8786 (default: a cluster of this machine).")
@click.option("--processes", type=click.IntRange(min=1), help="Most processes of a pool at once (default: the cores).")
@click.option("--memory-limit", help="Such as 2GiB (default: four fifths of what is available).")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def sweep(**options: Any) -> None:
    """Train a model for each learning rate; go on where an interrupted sweep stopped.

    Example: overhead sweep --rates 1e-3:1e1:41 --epochs 3
    """
    from overhead.sweep import command

    found = command.sweep(**{name: value for name, value in options.items() if name != "as_json"})
    click.echo(json.dumps(found, allow_nan=False) if options["as_json"] else command.as_text(found))


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def doctor(as_json: bool) -> None:
    """What this host is, and what would spoil a measurement on it.

    Example: overhead doctor
    """
    from overhead.machine import host

    found = host.doctor()
    if as_json:
        click.echo(json.dumps(found))
        return
    facts = found["host"]
    click.echo(
        f"{facts['cpu_model']}, {facts['cores_allowed']} of {facts['cores_present']} cores allowed, {facts['simd']}"
    )
    click.echo(f"{facts['memory_bytes'] / 2**30:.0f} GiB, {facts['os']}, Python {facts['python']}")
    for device in found["devices"]:
        click.echo(f"device: {device['kind']} {device['name']}")
    for name, entry in found["frameworks"].items():
        click.echo(f"{name}: {entry.get('version') or 'missing: ' + entry['missing']}")
    for pool in found["blas"]:
        click.echo(
            f"BLAS: {pool['library']} {pool['version']}, {pool['architecture']} kernels, {pool['threads']} threads"
        )
    for warning in found["warnings"]:
        click.echo(f"warning: {warning['what']}: {warning['why']}; {warning['do']}")


def main() -> None:
    """Run the command line; a fault is one or two lines on stderr that name the thing, the limit and the value."""
    # A plain `kill` cleans up like Ctrl-C: workers ended, staging folders removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        cli.main(prog_name="overhead", standalone_mode=False)
    except click.ClickException as error:
        lines = [line for line in error.format_message().splitlines() if line.strip()]
        click.echo("overhead: " + "\n".join(lines[:2]), err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("overhead: interrupted", err=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
