"""What every chapter shows alike: the host card, the caption that stands with each table, the code that ran."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from overhead.measure.session import Preset
from overhead.records.record import Record

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
    parts = [
        "Median [95 % interval]",
        f"n samples in {processes} fresh {plural} a loop ({preset.name} preset)",
        _counted("batch size", {r.workload.batch_size for r in timed if r.workload}),
        _counted("threads", {r.threads for r in timed if r.device == "cpu"}),
        "float32, training only unless a row says otherwise",
        listed,
    ]
    return "; ".join(part for part in parts if part)


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
