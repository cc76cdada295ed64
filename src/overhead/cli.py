"""The `overhead` command. Results on stdout, progress on stderr; 0 success, 2 wrong use, 1 failure."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click

# Faults that are told in one line. A module that was not imported raised none, and is not imported to ask.
FAULTS = {
    "overhead.book.build": "BookError",
    "overhead.book.execute": "NotebookFailed",
    "overhead.machine.alone": "Busy",
    "overhead.problem.data": "DataError",
    "overhead.records.record": "RecordError",
}
NOT_ON_WINDOWS = ("fcntl", "resource")  # modules of Python's own that native Windows has not


def _told(error: Exception) -> click.ClickException | None:
    """The line that a user is told, or None for a fault of ours. What names a fault is imported when there is one."""
    from pydantic import ValidationError

    from overhead.chapters.base import ParameterError, in_words

    if isinstance(error, ParameterError):
        return click.UsageError(str(error))
    if isinstance(error, ValidationError):
        return click.UsageError(in_words(error, "workload", {}))
    if isinstance(error, tuple(getattr(sys.modules[m], n) for m, n in FAULTS.items() if m in sys.modules)):
        return click.ClickException(str(error))
    if isinstance(error, ImportError) and error.name in NOT_ON_WINDOWS:
        return click.ClickException("measuring needs Linux, macOS or WSL; here bounds, profile and book work")
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):  # a folder that was copied
        source, _, why = error.args[0][0]
        said = re.search(r"\[Errno \d+\] ([^:]+)", str(why))
        return click.ClickException(f"{said[1] if said else 'cannot be copied'}: {Path(source).name}")
    if isinstance(error, OSError):
        where = f": {Path(error.filename).name}" if error.filename else ""
        return click.ClickException(f"{error.strerror or error}{where}")
    return None


class Later(NamedTuple):
    """A command that is imported when it is asked for: what it needs takes a while to load."""

    module: str
    does: str  # one line for `overhead --help`
    function: str = ""  # where it is not called like the command


LATER = {
    "check": Later("overhead.classroom.command", "Judge an answer to an exercise by your own records."),
    "advise": Later("overhead.model.command", "Predict an epoch of your own network, and say what would help."),
    "bench": Later(
        "overhead.chapters.batch_sweep.command", "Time loops against the measured floor, without a notebook."
    ),
    "book": Later("overhead.book.command", "Render what was measured; measures nothing."),
    "check-host": Later("overhead.book.command", "Is a contributed host's folder whole, private, harmless?"),
    "run": Later("overhead.book.command", "Execute notebooks (default: all) on this host and keep what they measured."),
    "class": Later("overhead.classroom.command", "Many students' folders on one page of dots.", "gather"),
    "lab": Later("overhead.lab.command", "Exercises on a simulated GPU, for those who have none."),
    "diagnose": Later("overhead.diagnose.command", "What limits a training step of yours, shown by changing it."),
    "calibrate": Later("overhead.model.command", "Measure what `advise` predicts from: the constants of this host."),
    "compare": Later("overhead.book.compare", "Two hosts: ratios, time over floor, what differs, what cannot be said."),
    "profile": Later("overhead.profiles.command", "What a profile of nsys or JAX says, as three different times."),
    "self-check": Later("overhead.harness.command", "Measure the harness itself: each property passes or fails."),
    "status": Later("overhead.book.status", "Every page: when, how, stale or not, and which claims hold."),
    "sweep": Later("overhead.sweep.command", "Train a model for each learning rate; go on where one stopped."),
}


class Group(click.Group):
    """The commands below and those of `LATER`."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; the package's faults become click's: wrong use exits with 2, a failure with 1."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:
            told = _told(error)
            if told is None:
                raise
            raise told from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *LATER])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in LATER:
            return super().get_command(ctx, cmd_name)
        later = LATER[cmd_name]
        return getattr(import_module(later.module), later.function or cmd_name.replace("-", "_"))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A line a command; none is imported for it."""
        rows = {name: command.get_short_help_str(80) for name, command in self.commands.items()}
        rows |= {name: later.does for name, later in LATER.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows.items()))


def _numbers(name: str) -> Callable[[click.Context, click.Parameter, str], list[int]]:
    def read(_: click.Context, __: click.Parameter, text: str) -> list[int]:
        try:
            return [int(part) for part in text.split(",")]
        except ValueError:
            raise click.BadParameter(
                f"must be whole numbers with commas between, got {text!r}", param_hint=name
            ) from None

    return read


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
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
@click.option("--batch-size", default=32, show_default=True)
@click.option("--layers", default="784,128,10", show_default=True, callback=_numbers("--layers"))
@click.option("--images", default=None, type=int, help="Training images (default: 48,000).")
@click.option("--remainder", type=click.Choice(["drop", "keep"]), default="drop", show_default=True)
@click.option("--peak-tflops", type=float, help="A peak in TFLOPS (1e12 FLOP/s).")
@click.option("--device-model", help='A published device, such as "Quadro RTX 5000".')
@click.option("--host", help="A host whose ceilings were measured: a folder under results.")
@click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True, help="With --host.")
@results_option
@json_option
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
    click.echo(json.dumps(found, allow_nan=False) if as_json else limits.as_text(found))


@cli.command()
@click.option("--import", "imports", is_flag=True, help="Import each framework, in a process of its own.")
@json_option
def doctor(imports: bool, as_json: bool) -> None:
    """What this host is, and what would spoil a measurement on it.

    Example: overhead doctor --import
    """
    from overhead.machine import doctor as doctors

    found = doctors.doctor(imports)
    click.echo(json.dumps(found) if as_json else doctors.as_text(found))


STOPS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _stop(number: int, _: Any) -> None:
    """A plain `kill` and a closed terminal clean up like Ctrl-C, once: workers ended, staging folders removed."""
    for other in STOPS:
        signal.signal(other, signal.SIG_IGN)
    with suppress(OSError):  # the terminal may be gone
        click.echo(f"overhead: ended by {signal.Signals(number).name}", err=True)
    sys.exit(128 + number)


def main() -> None:
    """Run the command line; a fault is one or two lines on stderr that name the thing, the limit and the value."""
    for number in STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` ignores a terminal that is closed
            signal.signal(number, _stop)
    try:
        cli.main(prog_name="overhead", standalone_mode=False)
    except click.ClickException as error:
        lines = [line for line in error.format_message().splitlines() if line.strip()]
        click.echo("overhead: " + "\n".join(lines[:2]), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("overhead: interrupted", err=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
