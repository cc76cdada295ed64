"""What every chapter shows alike: the host card, the caption that stands with each table, the code that ran."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from overhead.loops import FLOORS
from overhead.measure.session import Preset
from overhead.records.levels import levels
from overhead.records.record import Record
from overhead.showing import tables

if TYPE_CHECKING:
    from overhead.chapters.base import Chapter


class Html:
    """Markup that a notebook shows as it is; `text` is made by this package with every value escaped."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_html_(self) -> str:
        return self.text


MARKUP = re.compile(r"([<>&`*_\[\]{}$\\|~^#!])")


def plain(text: object) -> str:
    """`text` of a record as Markdown that shows it letter by letter, in one line: a reason may hold any name."""
    return MARKUP.sub(r"\\\1", " ".join(str(text).split()))


class Markdown:
    """Text that a notebook shows as Markdown."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_markdown_(self) -> str:
        return self.text


def host_card(chapter: Chapter) -> Html:
    """The machine, its libraries, and the parameters this page was run with."""
    from overhead.chapters.base import facts_of_run

    facts = facts_of_run()
    frameworks = facts["frameworks"]
    memory = facts["memory_bytes"] / 2**30
    rows = {
        "host": chapter.host,
        "CPU": f"{facts['cpu_model']}, {facts['cores_allowed']} of {facts['cores_present']} cores allowed"
        + f", {facts['simd']}{', virtual machine' if facts['virtual'] else ''}",
        "BLAS": "; ".join(dict.fromkeys(_pool(pool) for pool in facts["blas"])),
        "memory": f"{memory:.0f} GiB",
        "GPU": "; not used: ".join(f"{card['name']} (driver {card['driver']})" for card in facts["gpus"]) or "none",
        "system": f"{facts['os']}, Python {facts['python']}, {facts['allocator']['libc']}",
        "packages": ", ".join(f"{name} {f['version']}" for name, f in frameworks.items() if "version" in f),
        "missing": "; ".join(f"{name}: {f['missing']}" for name, f in frameworks.items() if "missing" in f),
        "environment": ", ".join(f"{k}={v}" for k, v in facts["env"].items()),
        "parameters": ", ".join(f"{name} = {value}" for name, value in chapter.model_dump().items() if name != "host"),
    }
    body = "".join(f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>" for k, v in rows.items() if v)
    return Html(f'<dl class="overhead-host">{body}</dl>')


def _pool(pool: Mapping[str, Any]) -> str:
    kernels = f", {pool['architecture']} kernels" if pool.get("architecture") else ""
    return f"{pool['library']} {pool['version']}{kernels}, {pool['threads']} threads"


def caption(records: Sequence[Record], preset: Preset) -> str:
    """Units, spread, processes, batch sizes, threads and versions of what stands in a table or a figure."""
    versions: dict[str, str] = {}
    for record in records:
        versions |= record.versions
    listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    timed = [r for r in records if r.status == "ok"]
    processes = max((len(r.processes()) for r in timed if r.op is None and not r.loop.startswith("floor")), default=1)
    plural = "process" if processes == 1 else "processes"
    unit = "turns" if any(r.op is None and r.processes() for r in timed) else "samples"
    parts = [
        "Median [95 % interval]" + ("; ratios and times the floor of undisturbed times" if any(_floors(timed)) else ""),
        f"n {unit} in {processes} fresh {plural} a loop ({preset.name} preset)",
        _counted("batch size", {r.workload.batch_size for r in timed if r.workload}),
        _counted("threads", {r.threads for r in timed if r.device == "cpu"}) + _worked(timed),
        "float32, training only unless a row says otherwise",
        _two_levels(timed),
        listed,
    ]
    return "; ".join(part for part in parts if part)


def _floors(timed: Sequence[Record]) -> list[Record]:
    return [r for r in timed if r.op is None and r.loop in FLOORS]


def _worked(timed: Sequence[Record]) -> str:
    """How many threads worked, of the loops where those were not as many as were set."""
    found: dict[str, set[int]] = {}
    for record in timed:
        if record.device == "cpu" and record.busy_threads not in (None, record.threads):
            found.setdefault(record.loop, set()).add(record.busy_threads or 0)
    each = [f"{loop} {' or '.join(map(str, sorted(counts)))}" for loop, counts in found.items()]
    return f" (of them worked: {', '.join(each)})" if each else ""


def _two_levels(timed: Sequence[Record]) -> str:
    """The loops whose turns fall into two levels, with both; their intervals hold both."""
    told = []
    for record in timed:
        turns = [turn for process in record.epochs() for turn in process] if record.op is None else []
        if record.member is None and (two := levels(turns)):
            size = f" at {record.workload.batch_size:,}" if record.workload else ""
            told.append(
                f"{record.loop}{size} {tables.number(two.low)} s in {two.at_low} and {tables.number(two.high)} s in "
                f"{two.at_high}"
            )
    return f"turns at two levels: {', '.join(dict.fromkeys(told))}" if told else ""


def missing(what: str, records: Sequence[Record]) -> Markdown:
    """In place of a figure or a sentence: that `what` was not measured here, and why as far as the records say."""
    reasons = list(dict.fromkeys(f"{r.loop} ({r.device}): {r.reason}" for r in records if r.status != "ok"))
    why = f" ({plain('; '.join(reasons))})" if reasons else ""
    return Markdown(f"Not measured here: {what}{why}.")


def _counted(name: str, values: set[int | None]) -> str:
    known = sorted(value for value in values if value is not None)
    return f"{name} {', '.join(f'{value:,}' for value in known)}" if known else ""


def source_of(objects: Sequence[Any]) -> Markdown:
    """The source of what ran, as the file has it."""
    code = "\n\n".join(inspect.getsource(thing).rstrip() for thing in objects)
    return Markdown(f"```python\n{code}\n```")
