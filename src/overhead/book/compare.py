"""`overhead compare`: two hosts' times, each beside its own floor, what their environments differ in, and what could
not be compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from overhead.book import environments, folder
from overhead.book.environments import Difference
from overhead.book.folder import FolderError
from overhead.chapters import CHAPTERS
from overhead.chapters.base import results_folder
from overhead.chapters.where_time_goes.budget import Budget
from overhead.chapters.where_time_goes.chapter import WhereTimeGoes
from overhead.loops import FLOORS, LOOPS
from overhead.problem.workload import Workload
from overhead.records import across, stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables

BUDGETS = "03-where-time-goes"
NO_TIME = "none of its records holds a time"
ONE_THREAD = "one thread"


class Pair(NamedTuple):
    """One case on two hosts: how many times as long the first takes."""

    chapter: str
    what: str  # the case in words
    loop: str
    device: str
    workload: Workload | None
    op: str | None
    threads: tuple[int | None, int | None]
    ratio: Interval
    verdict: str
    times_floor: tuple[Interval | None, Interval | None]  # over each host's own floor

    @property
    def batch_size(self) -> int | None:
        """Images a step; None where nothing was trained."""
        return self.workload.batch_size if self.workload else None

    @property
    def whole(self) -> bool:
        """Whether it is of epochs of the book's own network by all threads, and not of a part of a step."""
        usual = self.workload is not None and self.workload == Workload(batch_size=self.workload.batch_size)
        return usual and self.op is None and self.loop in LOOPS and ONE_THREAD not in self.what


class Share(NamedTuple):
    """A term of a step's budget on two hosts, microseconds, and what it adds to the ratio of the two steps."""

    term: str
    a_us: float
    b_us: float
    adds: float


class Split(NamedTuple):
    """The ratio of a loop's step on two hosts as one plus what each term of the budget adds."""

    loop: str
    ratio: float
    shares: list[Share]  # the residual last


class Comparison(NamedTuple):
    """All that can be said of host `a` against host `b`."""

    a: str
    b: str
    pairs: list[Pair]
    environment: list[Difference]
    splits: list[Split]
    not_compared: list[tuple[str, str]]


def compare_hosts(results: Path, a: str, b: str) -> Comparison:
    """Host `a` against host `b`, case by case. Raises `FolderError` for a name that is no host of `results`."""
    known = folder.hosts(results)
    for name in (a, b):
        if name not in known:
            raise FolderError(f"a host must be one of {', '.join(known)}, got {name}")
    not_compared: list[tuple[str, str]] = []
    chapters = tuple(dict(_read(results / name, not_compared)) for name in (a, b))
    pairs: list[Pair] = []
    for chapter in CHAPTERS:
        here, there = (of.get(chapter) for of in chapters)
        if here and there:
            found, why = pairs_of(chapter, here, there, (a, b))
            pairs += found
            not_compared += why
        elif here or there:
            not_compared.append((chapter, f"measured on {a if here else b} only"))
    facts = tuple(_facts(results / name, not_compared) for name in (a, b))
    environment = environments.differences((facts[0], facts[1]), (chapters[0], chapters[1]))
    return Comparison(a, b, pairs, environment, splits(chapters[0], chapters[1]), not_compared)


def _read(host: Path, not_compared: list[tuple[str, str]]) -> Iterator[tuple[str, list[Record]]]:
    for chapter in folder.chapters(host):
        try:
            yield chapter, folder.read_records(host, chapter)
        except FolderError as error:
            not_compared.append((f"{chapter} of {host.name}", str(error)))


def _facts(host: Path, not_compared: list[tuple[str, str]]) -> Mapping[str, Any]:
    try:
        return folder.read_json(host / "host.json")
    except FolderError as error:
        not_compared.append((f"environment of {host.name}", str(error)))
        return {}


def pairs_of(
    chapter: str, a: Sequence[Record], b: Sequence[Record], hosts: tuple[str, str]
) -> tuple[list[Pair], list[tuple[str, str]]]:
    """The cases of a chapter that both hosts timed, and why each other one cannot be compared."""
    ours, theirs = (cases(records) for records in (a, b))
    found, why = [], []
    for case in dict.fromkeys([*ours, *theirs]):
        named = f"{chapter}: {_in_words(case)}"
        sides = [side.get(case) for side in (ours, theirs)]
        for record, host in zip(sides, hosts, strict=True):
            if record is None:
                why.append((named, f"not measured on {host}"))
            elif record.status != "ok":
                why.append((named, f"{record.status} on {host}: {record.reason}"))
        one, other = sides
        if one is None or other is None or one.status != "ok" or other.status != "ok":
            continue
        if (told := across.ratio(one, other)) is None:
            continue  # kept for what it counts or learnt, not for a time
        floors = (_over_floor(one, a), _over_floor(other, b))
        pair = Pair(
            chapter, _in_words(case), one.loop, one.device, one.workload, one.op, (one.threads, other.threads), told,
            verdict(one, other, told), floors,
        )  # fmt: skip
        found.append(pair)
    if not found and not why:
        why.append((chapter, NO_TIME))
    return found, why


def _over_floor(record: Record, records: Sequence[Record]) -> Interval | None:
    return tables.times_floor(record, records) if record.op is None and record.loop not in FLOORS else None


Case = tuple[Any, ...]


def cases(records: Sequence[Record]) -> dict[Case, Record]:
    """Each record under what must be alike for it to be compared: all but the host, its threads and its versions."""
    most = max((record.threads or 1 for record in records), default=1)
    found: dict[Case, Record] = {}
    for record in records:
        workload = record.workload.model_dump_json() if record.workload else None
        member = json.dumps(record.member and {k: record.member.get(k) for k in ("rate", "seed")})
        alone = record.threads == 1 < most
        kernels = record.env.get("OPENBLAS_CORETYPE")
        case = (
            record.loop, record.device, alone, record.op, record.part, record.models, member, workload, kernels,
            record.settings.get("matmul_precision", ""),
        )  # fmt: skip
        while case in found:
            case = (*case, "again")
        found[case] = record
    return found


def _in_words(case: Case) -> str:
    loop, device, alone, op, part, models, member, workload, kernels, precision, *_ = case
    of = Workload.model_validate_json(workload) if workload else None
    layers = "-".join(map(str, of.layers)) if of and of.layers != Workload().layers else ""
    about = [
        f"on the {device.upper()}{f' at {of.batch_size:,}' if of else ''}", ONE_THREAD if alone else "", layers,
        "the last batch kept" if of and of.remainder == "keep" else "", op or "", part or "",
        f"{models} models" if models else "", member if member != "null" else "", kernels or "",
        precision if precision != "float32" else "",
    ]  # fmt: skip
    return " ".join([loop, ", ".join(word for word in about if word)])


def verdict(a: Record, b: Record, found: Interval) -> str:
    """`stats.verdict`; none between single processes of two runs, since one can be slow for its whole life."""
    if across.same_run(a, b) or min(len(across.turns(record)) for record in (a, b)) > 1:
        return stats.verdict(found)
    return tables.ONE_PROCESS_EACH


def splits(a: Mapping[str, Sequence[Record]], b: Mapping[str, Sequence[Record]]) -> list[Split]:
    """Of each loop that chapter 3 budgets on both hosts, what each term adds to the ratio of the steps."""
    ours, theirs = ({budget.backend: budget for budget in _budgets(of.get(BUDGETS, ()))} for of in (a, b))
    found = []
    for loop in [name for name in ours if name in theirs]:
        one, other = ours[loop], theirs[loop]
        step = other.step.median
        terms = {term.name: interval.median for term, interval in one.terms}
        there = {term.name: interval.median for term, interval in other.terms}
        if terms.keys() != there.keys():
            continue
        values = [(name, terms[name], there[name]) for name in terms]
        values.append(("unexplained", one.residual.median, other.residual.median))
        shares = [Share(name, x, y, (x - y) / step) for name, x, y in values]
        found.append(Split(loop, one.step.median / step, shares))
    return found


def _budgets(records: Sequence[Record]) -> list[Budget]:
    try:
        return WhereTimeGoes().budgets(records)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return []  # of another host's records, which may lack what a budget needs


def as_json(found: Comparison) -> dict[str, Any]:
    """The document of `--json`."""

    def numbers(interval: Interval | None) -> dict[str, float] | None:
        return None if interval is None else {k: getattr(interval, k) for k in ("median", "low", "high")}

    return {
        "hosts": [found.a, found.b],
        "pairs": [
            {
                **{k: getattr(pair, k) for k in ("chapter", "what", "loop", "device", "batch_size", "op", "threads")},
                "ratio": {**(numbers(pair.ratio) or {}), "n": pair.ratio.n}, "verdict": pair.verdict,
                "times_floor": [numbers(side) for side in pair.times_floor],
            }
            for pair in found.pairs
        ],
        "environment": [one._asdict() for one in found.environment],
        "splits": [
            {"loop": one.loop, "ratio": one.ratio, "terms": [share._asdict() for share in one.shares]}
            for one in found.splits
        ],
        "not_compared": [{"what": what, "why": why} for what, why in found.not_compared],
    }  # fmt: skip


@click.command()
@click.argument("hosts", nargs=2, metavar="HOST HOST")
@click.option(
    "--results", type=click.Path(path_type=Path), help="Results folder (default: OVERHEAD_RESULTS, else ./results)."
)
@click.option("--json", "as_document", is_flag=True, help="One JSON document on stdout.")
def compare(hosts: tuple[str, str], results: Path | None, as_document: bool) -> None:
    """The first HOST against the second: ratios in words, time over floor, what differs, what cannot be compared.

    Example: overhead compare local epyc-2core
    """
    from overhead.book import comparison

    try:
        found = compare_hosts((results or results_folder()).resolve(), *hosts)
    except FolderError as error:
        raise click.ClickException(str(error)) from None
    click.echo(json.dumps(as_json(found), indent=1, ensure_ascii=False) if as_document else comparison.as_text(found))
