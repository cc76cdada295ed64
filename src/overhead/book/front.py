"""The front page's answer: a sentence a host on who wins and why, its step as a bar, what others published, prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from overhead.book import folder
from overhead.book.folder import Facts
from overhead.book.fragments import DEFAULTS, SWEEP, plain
from overhead.chapters.crossover.kept import constants_of
from overhead.chapters.where_time_goes.budget import Budget
from overhead.chapters.where_time_goes.chapter import WhereTimeGoes
from overhead.chapters.your_loop.chapter import factor
from overhead.diagnose.pitfalls import PITFALLS
from overhead.loops import LOOPS
from overhead.model.atlas import ENTRIES, Entry
from overhead.model.gpus import preset
from overhead.model.replay import CannotModel, on_gpu
from overhead.problem.workload import Workload
from overhead.records import stats
from overhead.records.record import Record
from overhead.showing import tables

BUDGETS, PRICES, MODELLED = "03-where-time-goes", "10-your-loop", "08-crossover"
THE_ARTICLES = "Quadro RTX 5000"
ARTICLE = "article, 32"  # the comparison of the atlas that this book is about
# What each term of a budget counts as on the front page.
KINDS = {"calls": "calls", "data": "calls", "products": "arithmetic", "elementwise": "arithmetic",
         "allocation": "waiting and the rest"}  # fmt: skip
REST = "waiting and the rest"
CHANGES = (
    ("settings of `fit` (more steps a call)", "keras-fit", "keras-fit-tuned"),
    ("the step as one compiled function", "keras-fit", "jax-step"),
    ("the whole epoch as one compiled function", "keras-fit", "jax-epoch"),
    ("plain NumPy with arrays made once", "keras-fit", "numpy-preallocated"),
)

Hosts = Mapping[str, Sequence[str]]  # host → its chapters


class Bar(NamedTuple):
    """A step of a loop as parts: microseconds of each kind, in order."""

    loop: str
    step_us: float
    parts: dict[str, float]


class Front(NamedTuple):
    """The generated parts of the front page in Markdown, and what is put into its slots after the build, in HTML."""

    answers: str
    what_helps: str
    prices: str
    slots: dict[str, str]  # class of the slot → markup


def front(results: Path, hosts: Hosts) -> Front:
    """The front page of these hosts. Raises `FolderError` for records that cannot be read."""
    said, helps, slots, gpu_measured = [], [], {}, False
    prices: dict[str, list[Record]] = {}
    models: dict[str, list[Record]] = {}
    for number, (host, chapters) in enumerate(hosts.items()):
        facts = folder.facts(results / host)
        sweep = folder.read_records(results / host, SWEEP) if SWEEP in chapters else []
        gpu_measured = gpu_measured or any(r.device == "gpu" and r.status == "ok" for r in sweep)
        made = bar_of(folder.read_records(results / host, BUDGETS)) if BUDGETS in chapters else None
        said.append(sentence(host, sweep, facts, made))
        if made:
            slot = f"overhead-slot-{number}"
            said.append(f":::{{div}} {slot}\n{bar_words(made)}\n:::\n")
            slots[slot] = bar_html(made)
        if gained := gains(sweep):
            helps.append(f"**On {host}**, at batch size {gained[0].batch_size}:\n\n{_gains_table(gained)}")
        if PRICES in chapters:
            prices[host] = folder.read_records(results / host, PRICES)
        if MODELLED in chapters:
            models[host] = folder.read_records(results / host, MODELLED)
    if not gpu_measured:
        said += [published(), modelled(models)]
    return Front("\n".join(said) + "\n", "\n".join(helps) + "\n", price_list(prices), slots)


def sentence(host: str, records: Sequence[Record], facts: Facts, made: Bar | None) -> str:
    """Who wins at the smallest batch size on a host, and why, in a few short sentences."""
    timed = [r for r in records if r.status == "ok" and r.op is None and r.loop in LOOPS and r.timing and r.epochs()]
    size = min((r.trained.batch_size for r in timed), default=0)
    at = [(h, r) for r in timed if r.trained.batch_size == size and (h := tables.headline(r))]
    best = {
        device: min((pair for pair in at if pair[1].device == device), key=lambda pair: pair[0].median)[1]
        for device in dict.fromkeys(r.device for _, r in at)
    }
    if not best:
        return f"**{host}** ({plain(facts.cpu_model)}): its batch sweep has not been measured.\n"
    if {"cpu", "gpu"} <= best.keys():
        words = _winner(host, best["cpu"], best["gpu"], size)
    else:
        words = _alone(host, [r for _, r in at], next(iter(best.values())), size, facts)
    return f"{words}{_why(made)}\n"


def _winner(host: str, cpu: Record, gpu: Record, size: int) -> str:
    found = tables.ratio(gpu, cpu)
    fastest = f"{_linked(cpu)} on the CPU, {_linked(gpu)} on the GPU"
    verdict = tables.verdict(gpu, cpu, found) if found else "no difference shown"
    if found is None or verdict not in ("slower", "faster"):
        shown = f": the ratio is {tables.interval(found)}, {verdict}" if found else ""
        return f"On **{host}** neither the CPU nor the GPU is shown to win at batch {size:,}{shown} ({fastest})."
    if verdict == "slower":
        return (
            f"On **{host}** the **CPU wins** at batch {size:,}: the GPU takes **{tables.interval(found)} "
            f"times** as long ({fastest})."
        )
    told = tables.interval(tables.ratio(cpu, gpu) or found)
    return f"On **{host}** the **GPU wins** at batch {size:,}: the CPU takes **{told} times** as long ({fastest})."


def _alone(host: str, at: Sequence[Record], fastest: Record, size: int, facts: Facts) -> str:
    device = fastest.device.upper()
    other = "it has no GPU" if not facts.gpus and device == "CPU" else "only it was measured"
    words = f"On **{host}** the **{device} wins** at batch {size:,} unopposed: {other}. Fastest is {_linked(fastest)}"
    defaults = next((r for r in at if r.loop == DEFAULTS), None)
    if defaults is not None and defaults is not fastest and (found := tables.ratio(defaults, fastest)):
        words += f"; Keras's defaults take **{tables.interval(found)} times** as long"
    alike = [
        r.loop for r in at
        if r is not fastest and (found := tables.ratio(r, fastest)) and stats.verdict(found) == "no difference shown"
    ]  # fmt: skip
    same = f" Not told apart from it: {', '.join(f'[{name}](loop-{name})' for name in alike)}." if alike else ""
    return f"{words}.{same}"


def _linked(record: Record) -> str:
    return f"[{record.loop}](loop-{record.loop})"


def _why(made: Bar | None) -> str:
    if made is None:
        return ""
    arithmetic = made.parts.get("arithmetic", 0.0)
    return (
        f" Of a step of {made.loop}, {made.step_us:,.0f} us, {arithmetic:,.0f} us are arithmetic. A faster chip "
        "speeds up only those."
    )


def bar_of(records: Sequence[Record]) -> Bar | None:
    """The parts of a step of Keras's defaults, else of the first loop with a budget; None without one."""
    try:
        found = WhereTimeGoes().budgets(records)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
    budget: Budget | None = next((b for b in found if b.backend.startswith(DEFAULTS)), found[0] if found else None)
    if budget is None:
        return None
    parts = dict.fromkeys([*dict.fromkeys(KINDS.values())], 0.0)
    for term, interval in budget.terms:
        parts[KINDS[term.name]] += max(interval.median, 0.0)
    parts[REST] += max(budget.residual.median, 0.0)
    return Bar(budget.backend.partition(" ")[0], budget.step.median, parts)


def bar_words(made: Bar) -> str:
    """The bar as text, for those who do not see it."""
    parts = ", ".join(f"{name} {us:,.0f} us" for name, us in made.parts.items())
    return f"A step of {made.loop} takes {made.step_us:,.0f} us. Its parts, each measured alone: {parts}."


def bar_html(made: Bar) -> str:
    """One bar on a linear scale; the values stand under it."""
    whole = sum(made.parts.values())
    spans = "".join(
        f'<span class="part-{number}" style="width:{100 * us / whole:.2f}%"></span>'
        for number, us in enumerate(made.parts.values())
    )
    legend = "".join(
        f'<span><i class="part-{number}"></i>{escape(name)} {us:,.0f} us</span>'
        for number, (name, us) in enumerate(made.parts.items())
    )
    caption = (
        f"A step of {escape(made.loop)} takes {made.step_us:,.0f} us. Its parts were measured alone and add up to "
        f"{whole:,.0f} us, {whole / made.step_us:.0%} of it."
    )
    return (
        f'<figure class="overhead-bar"><div role="img" aria-label="{escape(bar_words(made))}">{spans}</div>'
        f"<figcaption>{legend}<em>{caption}</em></figcaption></figure>"
    )


def published() -> str:
    """What others measured on a GPU, where no host of this copy has one: labelled, with the source."""
    cpu, gpu = (next(e for e in ENTRIES if e.of == ARTICLE and e.device == device) for device in ("cpu", "gpu"))
    words = (
        f"*Published*, not measured here: with Keras at batch {gpu.batch_size}, in the article that asked, the **CPU "
        f"won**: {cpu.low_s:g} s an epoch on a {plain(cpu.device_name)}, {gpu.high_s:g} s on a "
        f"{plain(gpu.device_name)}."
    )
    return f"{words}\n\n::::{{dropdown}} What others published, CPU against GPU\n\n{_published_table()}\n::::\n"


def modelled(by_host: Mapping[str, Sequence[Record]]) -> str:
    """What the article's GPU would do, driven by the first host that was calibrated; nothing where none was."""
    for host, records in by_host.items():
        constants = constants_of(records)
        if constants is None:
            continue
        gpu = preset(THE_ARTICLES)
        try:
            found = [on_gpu(loop, Workload(), constants, gpu) for loop in (DEFAULTS, "jax-epoch")]
        except CannotModel:
            continue
        keras, epoch = (f"**{tables.with_interval(p.epoch_s, p.low_s, p.high_s)} s**" for p in found)
        size = Workload().batch_size
        return (
            f"*Modelled*, no such GPU is here: a {gpu.name} driven by {plain(host)} takes {keras} an epoch with "
            f"Keras's defaults at batch {size}. As one compiled epoch it takes {epoch} "
            f"({{chapter}}`{MODELLED}`; 90 % intervals).\n"
        )
    return ""


def _published_table() -> str:
    lines = ["| source | network, batch | CPU, s an epoch | GPU, s an epoch | first |", "|---|---|--:|--:|---|"]
    for of in dict.fromkeys(entry.of for entry in ENTRIES if entry.of):
        sides = {entry.device: entry for entry in ENTRIES if entry.of == of}
        if sides.keys() != {"cpu", "gpu"}:
            continue
        cpu, gpu = sides["cpu"], sides["gpu"]
        first = "CPU" if cpu.high_s < gpu.low_s else "GPU" if gpu.high_s < cpu.low_s else "not told apart"
        network = f"{'-'.join(map(str, cpu.layers))}, {cpu.batch_size}"
        lines.append(f"| {plain(gpu.source)} | {network} | {_range(cpu)} | {_range(gpu)} | {first} |")
    return "\n".join(lines) + "\n"


def _range(entry: Entry) -> str:
    seconds = f"{entry.low_s:g}" if entry.low_s == entry.high_s else f"{entry.low_s:g} to {entry.high_s:g}"
    return f"{seconds} ({plain(entry.device_name)})"


class Gain(NamedTuple):
    """A change of loop at one batch size, with what it divides the time by."""

    does: str
    slower: Record
    faster: Record
    batch_size: int
    ratio: stats.Interval


def gains(records: Sequence[Record]) -> list[Gain]:
    """What each change gives on the CPU at the smallest batch size, of those that were timed."""
    timed = [r for r in records if r.status == "ok" and r.op is None and r.device == "cpu" and r.timing and r.workload]
    size = min((r.trained.batch_size for r in timed), default=0)
    by_name = {r.loop: r for r in timed if r.trained.batch_size == size and r.trained.remainder == "drop"}
    found = []
    for does, slower, faster in CHANGES:
        if slower in by_name and faster in by_name and (ratio := tables.ratio(by_name[slower], by_name[faster])):
            found.append(Gain(does, by_name[slower], by_name[faster], size, ratio))
    return found


def _gains_table(found: Sequence[Gain]) -> str:
    lines = ["| change | from | to | times as fast |", "|---|---|---|--:|"]
    lines += [f"| {g.does} | {_linked(g.slower)} | {_linked(g.faster)} | {tables.interval(g.ratio)} |" for g in found]
    return "\n".join(lines) + "\n"


def price_list(by_host: Mapping[str, Sequence[Record]]) -> str:
    """What each habit multiplies the time of a step by, a column a host; that nothing was measured is said."""
    if not by_host:
        habits = "\n".join(f"- {pitfall.does}" for pitfall in PITFALLS.values())
        return f"No host has measured these habits yet ({{chapter}}`{PRICES}` does):\n\n{habits}\n"
    lines = [f"| habit | {' | '.join(f'times, {host}' for host in by_host)} |", "|---" * (1 + len(by_host)) + "|"]
    for name, pitfall in PITFALLS.items():
        cells = []
        for records in by_host.values():
            record = next((r for r in records if r.op == name), None)
            cells.append(tables.interval(factor(record)) if record and record.status == "ok" else tables.NOT_MEASURED)
        lines.append(f"| {pitfall.does} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
