"""What the book's prose cannot know: headlines, hosts, links to chapters, the loops' code. Markdown from records."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from overhead.book import exhibits, folder
from overhead.book.folder import Facts
from overhead.chapters import CHAPTERS
from overhead.chapters import provenance as measured_by
from overhead.loops import LOOPS
from overhead.measure import agreement
from overhead.measure.session import PRESETS
from overhead.records import stats
from overhead.records.levels import over_turns
from overhead.records.record import Record
from overhead.showing import tables

CHAPTER = re.compile(r"\{chapter\}`([\w-]+)`")
SWEEP = "05-batch-sweep"  # the chapter whose records answer the book's question
DEFAULTS = "keras-fit"  # what a reader who has done nothing special runs
NO_GPU = (
    "No GPU host has been measured for this copy of the book yet. It takes one command there ({ref}`reproduce`), and "
    "its pages then stand beside these."
)

Hosts = Mapping[str, Sequence[str]]  # host → the chapters of its chapters, in order


def plain(text: Any) -> str:
    """`text` as Markdown that shows it letter by letter, whatever it holds, in one line."""
    return re.sub(f"([{re.escape(string.punctuation)}])", r"\\\1", " ".join(str(text).split()))


def plain_code(text: str) -> str:
    """The first letters of a checksum, for between backticks."""
    return re.sub(r"[^0-9a-z]", "", text)[:10]


def title_of(root: Path, chapter: str) -> str:
    """The first heading of a source notebook; its chapter where it has none."""
    path = root / "notebooks" / f"{chapter}.ipynb"
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else []:
        for line in "".join(cell["source"]).splitlines():
            if cell["cell_type"] == "markdown" and line.startswith("# "):
                return line[2:].strip()
    return chapter


def expand(text: str, root: Path, hosts: Hosts) -> str:
    """Prose with each ``{chapter}`STEM` `` replaced by the chapter's title and a link for each host that has it."""

    def link(found: re.Match[str]) -> str:
        chapter = found[1]
        if chapter not in CHAPTERS:
            return f"chapter {plain(chapter)} (not in this copy of the book yet)"
        on = [f"{{doc}}`{host} </results/{host}/{chapter}>`" for host, chapters in hosts.items() if chapter in chapters]
        return f"*{title_of(root, chapter)}* ({', '.join(on) or 'not measured on any host yet'})"

    return CHAPTER.sub(link, text)


def headline(results: Path, hosts: Hosts, left_out: Sequence[str] = ()) -> str:
    """A paragraph a host with the figures that answer the book's question there; says which hosts are missing."""
    found, gpus = [], False
    for host, chapters in hosts.items():
        facts = folder.facts(results / host)
        gpus = gpus or bool(facts.gpus)
        read = folder.read_records(results / host, SWEEP) if SWEEP in chapters else []
        found.append(headline_of(host, read, facts))
    if not gpus:
        found.append(NO_GPU)
    if left_out:
        found.append("Not shown, since it cannot be used:\n\n" + "\n".join(f"- {plain(line)}" for line in left_out))
    return "\n\n".join(found) + "\n"


def headline_of(host: str, read: Sequence[Record], facts: Facts) -> str:
    """Keras's defaults and each device's fastest loop against the fastest of all, at the smallest batch size."""
    machine = f"{plain(facts.cpu_model)}, {facts.cores_allowed} cores; GPU: {_cards(facts)}"
    timed = [r for r in read if r.status == "ok" and r.op is None and r.loop in LOOPS and r.timing and r.epochs()]
    if len(timed) < 2:
        return _card(host, ["Its batch sweep has not been measured, so it has no headline yet."], machine)
    size = min(r.trained.batch_size for r in timed)
    timed = [r for r in timed if r.trained.batch_size == size]
    best = {
        device: min((r for r in timed if r.device == device), key=_median)
        for device in dict.fromkeys(r.device for r in timed)
    }
    fastest = min(best.values(), key=_median)
    others = {f"the {plain(device.upper())}'s fastest loop, ": r for device, r in best.items() if r is not fastest}
    others |= {
        f"Keras's defaults on the {plain(r.device.upper())}, ": r
        for r in timed
        if r.loop == DEFAULTS and r is not fastest
    }
    lines = [f"Fastest: {_named(fastest)}, **{_seconds(fastest)}** an epoch{_right(fastest)}. Against it:", ""]
    lines += [
        f"- {_times(tables.ratio(r, fastest))}: {name}{_named(r)}, {_seconds(r)}{_right(r)}"
        for name, r in others.items()
    ]
    work = fastest.trained
    lines += [
        "",
        f"An epoch is {work.images_seen:,} images at batch size {size:,}, {work.steps:,} updates, training only. "
        f"All rows: {{doc}}`the batch sweep </results/{host}/{SWEEP}>`.{_disturbed([fastest, *others.values()])}",
    ]
    return _card(host, lines, machine)


def _card(host: str, lines: Sequence[str], machine: str) -> str:
    return "\n".join([f":::{{card}} {host}", ":class-card: overhead-answer", "", machine, "", *lines, ":::"])


def _median(record: Record) -> float:
    return stats.median_interval(record.epochs()).median


def _named(record: Record) -> str:
    return f"[{record.loop}](loop-{record.loop}) on the {plain(record.device.upper())}"


def _seconds(record: Record) -> str:
    return f"{tables.interval(over_turns(record.epochs()))} s"


def _right(record: Record) -> str:
    accuracy = record.val_accuracy[-1] if record.val_accuracy else None
    return f" (validation accuracy {100 * accuracy:.1f} %)" if accuracy is not None else ""


def _times(ratio: stats.Interval | None) -> str:
    if ratio is None:
        return "no pairs of rounds"
    if stats.verdict(ratio) == "no difference shown":
        return f"no difference shown (ratio {tables.interval(ratio)}, n = {ratio.n})"
    return f"**{tables.interval(ratio)} times** as long (n = {ratio.n} pairs)"


def _disturbed(found: Sequence[Record]) -> str:
    return (
        " Other programs ran meanwhile; measure again before relying on it." if any(r.disturbed for r in found) else ""
    )


def _cards(facts: Facts) -> str:
    return ", ".join(plain(card.name) for card in facts.gpus) or "none"


def hosts_table(root: Path, results: Path, hosts: Hosts) -> str:
    """The measured hosts and, a row a chapter, where to find it on each."""
    lines = ["| host | CPU | cores | memory | GPU | system |", "|---|---|--:|--:|---|---|"]
    for host in hosts:
        facts = folder.facts(results / host)
        memory = f"{facts.memory_bytes / 2**30:.0f} GiB"
        system = plain(f"{facts.os}, Python {facts.python}")
        cells = [f"**{host}**", plain(facts.cpu_model), facts.cores_allowed, memory, _cards(facts), system]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", "| chapter | " + " | ".join(hosts) + " |", "|---" * (1 + len(hosts)) + "|"]
    for chapter in CHAPTERS:
        on = [
            f"{{doc}}`read </results/{host}/{chapter}>`" if chapter in chapters else "–"
            for host, chapters in hosts.items()
        ]
        lines.append(f"| {title_of(root, chapter)} | " + " | ".join(on) + " |")
    return "\n".join(lines) + "\n"


def provenance(found: Sequence[Record], chapter: str, others: Sequence[str]) -> str:
    """The last section of a chapter: to its records, its host and its code, and to the same page of other hosts."""
    first = found[0]
    began = plain(first.started or "an unknown time")
    commit = f"commit `{plain_code(first.commit)}`" if first.commit else "no checkout, so no commit is known"
    changed = ", with changes that were not committed" if first.dirty else ""
    loops = [f"[{name}](loop-{name})" for name in dict.fromkeys(r.loop for r in found) if name in exhibits.SHOWN]
    disturbed = list(dict.fromkeys(why for r in found for why in r.disturbed))
    elsewhere = ", ".join(f"{{doc}}`{host} </results/{host}/{chapter}>`" for host in others) or "on no other host yet"
    said = f"disturbed: {'; '.join(map(plain, disturbed))}" if disturbed else "no disturbance was noticed"
    return (
        "## Where these numbers come from\n\n"
        f"Every figure on this page is computed from {len(found)} records. From here to the code that made one:\n\n"
        f"- **Records**: {{download}}`{chapter}.jsonl`, a case a line, with every raw sample.\n"
        f"- **Host**: {{download}}`host.json`, measured from {began} as *{plain(first.host)}* ({said}).\n"
        f"- **Code**: {commit}{changed}; checksum `{plain_code(first.code_sha256 or 'unknown')}`.\n"
        f"- **Loops**: {', '.join(loops) or 'none was timed'}.\n"
        "- **How a sample is taken**: {ref}`method`; the words: {ref}`glossary`.\n"
        f"- **The same chapter elsewhere**: {elsewhere}.\n"
    )


def stale_note(found: Sequence[Record]) -> str | None:
    """What stands at the top of a page whose measuring code has changed since: when, by which version, what changed."""
    why = measured_by.stale(found)
    if why is None:
        return None
    began = plain(min((r.started for r in found if r.started), default="an unknown day")[:10])
    commit = next((r.commit for r in found if r.commit), None)
    version = f"commit `{plain_code(commit)}`" if commit else "an unknown version"
    return (
        f":::{{note}}\nThis page is of {began}, {version}: {plain(why)}. Its figures are those of that version.\n:::\n"
    )


def agreement_rule() -> str:
    """The two comparisons with the reference that come before any time, with their tolerances."""
    tolerances = ", ".join(f"{value:g} in {precision}" for precision, value in agreement.TOLERANCES.items())
    return (
        f"- after {agreement.STEPS} steps at learning rate {agreement.RATE:g}, the largest over the parameters of "
        f"‖ours − reference‖ / ‖reference‖ (Euclidean; a tensor whose updates cancelled is measured by the length of "
        f"its way) is at most {tolerances}, more by what the reference "
        "itself changes when each ReLU whose input float32 cannot tell from zero is decided the other way;\n"
        f"- after the first epoch of the very program that is timed, at learning rate {agreement.EPOCH_RATE:g} (less "
        f"below batches of {agreement.EPOCH_BATCH}), the mean training loss is within {agreement.LOSS_TOLERANCE:g} of "
        "the reference's, relative. At a larger rate, an epoch's many steps magnify rounding beyond that.\n"
    )


def presets_table() -> str:
    """What each preset stands for, from the runner."""
    lines = [
        "| preset | until intervals are within | or seconds a workload | processes a contestant | rounds in each |",
        "|---|--:|--:|--:|--:|",
    ]
    for preset in PRESETS.values():
        least, most = preset.rounds
        cells = [preset.name, f"±{preset.target:.0%}", f"{preset.budget_s:g}", preset.processes, f"{least} to {most}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"
