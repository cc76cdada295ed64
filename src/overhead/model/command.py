"""`overhead calibrate` and `overhead advise`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from overhead.machine import host as hosts
from overhead.model import advise as advising
from overhead.model import constants as keeping
from overhead.model.census import CENSUS, CPU_LOOPS
from overhead.model.gpus import CONSTANTS as GPU_CONSTANTS
from overhead.model.gpus import GPUS, changed, preset
from overhead.model.replay import CannotModel
from overhead.problem.workload import TRAINING_IMAGES, Workload

UNTRIED_GPU = "The GPU is modelled from published figures, and no prediction for one has been held against a GPU here."
results_option = click.option(
    "--results", type=click.Path(path_type=Path), help="Results folder (default: OVERHEAD_RESULTS, else ./results)."
)


def results_folder(given: Path | None) -> Path:
    return given or Path(os.environ.get("OVERHEAD_RESULTS") or "results")


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.command()
@click.option("--host", default="local", show_default=True, help="Whose constants they are: a folder under results.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads allowed (default: the cores).")
@click.option("--force", is_flag=True, help="Measure although another measurement runs.")
@results_option
@click.option("--json", "as_json", is_flag=True, help="Print the constants.")
def calibrate(host: str, threads: int | None, force: bool, results: Path | None, as_json: bool) -> None:
    """Measure what calls, operators, products and passes cost on this host: a minute or so with all frameworks.

    Example: overhead calibrate
    """
    from overhead.model import calibrate as calibration

    cores = hosts.cores_allowed()
    if threads is not None and threads > cores:
        raise click.UsageError(f"--threads must be between 1 and {cores} (cores allowed), got {threads}")
    if Path(host).name != host or not host.strip("."):
        raise click.UsageError(f"--host must be the name of a folder, got {host!r}")
    made = calibration.fitted(calibration.measure(_say, force, threads), host)
    path = keeping.path_of(results_folder(results), host)
    keeping.write(path, made)
    click.echo(path.read_text(encoding="utf-8").strip() if as_json else _constants_as_text(made))


def _constants_as_text(made: keeping.Constants) -> str:
    lines = [f"{made.name}: {made.threads} threads, {made.seconds:.0f} s"]
    for loop, f in made.frames.items():
        lines.append(
            f"{loop}: epoch {1e6 * f.epoch_s:.3g} us, call {1e6 * f.call_s:.3g} us, operator {1e6 * f.op_s:.3g} us, "
            f"products in the step {f.product_factor:.2f} times those alone"
        )
    for name, by in made.products.items():
        for threads, fitted in by.items():
            told = ", ".join(f"{how} {error:.0%}" for how, error in fitted.rivals.items())
            lines.append(f"products of {name}, {threads} threads, median error where left out: {told}")
    return "\n".join(lines)


def _layers(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"must be whole numbers with commas between (a dense network; convolutions, attention and recurrence "
            f"are not modelled), got {text!r}"
        ) from None  # fmt: skip


@click.command()
@click.option("--layers", default="784,128,10", show_default=True, callback=_layers)
@click.option("--batch-size", default=32, show_default=True)
@click.option("--images", default=TRAINING_IMAGES, show_default=True, help="Training images of an epoch.")
@click.option("--loop", default=advising.DEFAULT_LOOP, show_default=True, help="The loop that you have.")
@click.option("--gpu", "gpu_name", help=f"A modelled GPU: {', '.join(g.name for g in GPUS)}.")
@click.option("--gpu-constant", "gpu_constants", multiple=True, metavar="NAME=VALUE",
              help=f"Another constant of the modelled GPU: {', '.join(GPU_CONSTANTS)}. May be repeated.")  # fmt: skip
@click.option("--on", "whose", type=click.Choice(["this", "rented"]), default="this", show_default=True,
              help="Whose host drives a modelled GPU: this one, or one as slow as those of the atlas.")  # fmt: skip
@click.option("--host", default="local", show_default=True, help="Whose constants: a folder under results.")
@click.option("--try", "trying", is_flag=True, help="Run the first advice and show predicted against measured.")
@click.option("--check", "checking", is_flag=True, help="Measure networks that no constant was fitted on instead.")
@click.option("--atlas", "published", is_flag=True, help="Hold predictions against epochs that others published.")
@click.option("--seconds", default=600.0, show_default=True, help="With --check: stop after; a later call goes on.")
@click.option("--force", is_flag=True, help="Measure although another measurement runs.")
@results_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def advise(
    layers: tuple[int, ...], batch_size: int, images: int, loop: str, gpu_name: str | None,
    gpu_constants: tuple[str, ...], whose: str, host: str, trying: bool, checking: bool, published: bool,
    seconds: float, force: bool, results: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Predict an epoch of a dense network by loop and device, and say what would help.

    Example: overhead advise --layers 784,128,10 --batch-size 32 --gpu "Quadro RTX 5000"
    """
    from overhead.model import atlas
    from overhead.model.check import FILE, trust

    folder = results_folder(results)
    try:
        workload = Workload(layers=layers, batch_size=batch_size, images=images)
        gpu = preset(gpu_name) if gpu_name is not None else None
        gpu = changed(gpu, gpu_constants) if gpu_constants else gpu
        if loop not in CPU_LOOPS:
            known = "no census of it" if loop not in CENSUS else "it runs on GPUs only"
            raise ValueError(f"--loop must be one of {', '.join(CPU_LOOPS)}, got {loop!r} ({known})")
        constants = keeping.read(folder, host, hosts.facts())
        if checking:
            _check(constants, folder / host / FILE, seconds, force, as_json)
            return
        if published:
            report = atlas.report(constants)
            click.echo(json.dumps(report, allow_nan=False) if as_json else atlas.as_text(report))
            return
        factor = atlas.rented_factor(constants) if whose == "rented" else 1.0
        found = advising.advise(workload, constants, loop, gpu, factor)
        found["checked"], found["trust"] = trust(folder / host / FILE, constants)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise click.UsageError(f"{where} {message}" if where and where not in message else message) from None
    except keeping.NoConstants as error:
        raise click.ClickException(str(error)) from None
    except (CannotModel, ValueError) as error:
        raise click.UsageError(str(error)) from None
    if trying:
        found["tried"] = _tried(found, workload, constants, force)
    click.echo(json.dumps(found, allow_nan=False) if as_json else as_text(found))


def _check(constants: keeping.Constants, kept: Path, seconds: float, force: bool, as_json: bool) -> None:
    from overhead.model import check

    found = check.report(check.check(constants, kept, seconds, _say, force))
    click.echo(json.dumps(found, allow_nan=False) if as_json else check.as_text(found))


def _tried(found: dict[str, Any], workload: Workload, constants: keeping.Constants, force: bool) -> dict[str, Any]:
    """The first advice that runs on this CPU, measured in a process of its own; so is the loop that it starts from."""
    from overhead.model.trying import measured

    first = next(a for a in found["advice"] if a["device"] == "cpu")
    then = workload.model_copy(update={"batch_size": first["batch_size"]})
    threads = 1 if first["change"] == "one thread" else constants.threads
    before_s = measured(found["loop"], workload, constants.threads, force)
    after_s = measured(first["loop"], then, threads, force)
    return {
        "change": first["change"], "predicted_gain": first["gain"], "low": first["low"], "high": first["high"],
        "before_s": before_s, "after_s": after_s, "measured_gain": before_s / after_s,
    }  # fmt: skip


def as_text(found: dict[str, Any]) -> str:
    """The advice for people: the answer, then a line a loop, then a line a change."""
    lines = [found["answer"], found["trust"], *([UNTRIED_GPU] if found["gpu"] else []), ""]
    for r in found["rows"]:
        epoch, terms = r["epoch_s"], r["terms"]
        where = f"modelled {found['gpu']}" if r["modelled"] else "this CPU"
        largest = max(terms, key=lambda name: terms[name])
        lines.append(
            f"{r['loop']:<20}{where:<26}{epoch['median']:>9.3g} s [{epoch['low']:.3g}, {epoch['high']:.3g}], "
            f"mostly {largest.removesuffix('_s')} ({terms[largest] / epoch['median']:.0%})"
        )
    lines.append("")
    for a in found["advice"]:
        lines.append(
            f"{a['change']}: {a['gain']:.2g} times as fast [{a['low']:.2g}, {a['high']:.2g}], "
            f"{a['updates_per_epoch']:,} updates an epoch; {a['why']}"
        )
    if found["gpu"]:
        told = [f"batch size: {found['crossover']['verdict']}"]
        told += [f"{by}: {found[f'crossover_{by}']['verdict']}" for by in ("width", "depth")]
        lines.append(f"the GPU wins by {', by '.join(told)}")
    if tried := found.get("tried"):
        lines.append(
            f"tried {tried['change']}: predicted {tried['predicted_gain']:.2g} times "
            f"[{tried['low']:.2g}, {tried['high']:.2g}], measured {tried['measured_gain']:.2g} times "
            f"({tried['before_s']:.3g} s, then {tried['after_s']:.3g} s)"
        )
    return "\n".join(lines)
