"""A comparison of two hosts in words: lines for a terminal, and the page Compare in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from overhead.book import environments
from overhead.book.compare import Comparison, Pair, Split, compare_hosts
from overhead.book.environments import Difference
from overhead.book.fragments import SWEEP, plain
from overhead.loops import FLOORS
from overhead.records.stats import Interval
from overhead.showing import tables

MOST = 12  # pairs and reasons that stand open; the others are folded
INTRO = """(compare)=
# Compare: the same case on two hosts

Does another machine agree, and if not, what differs? Each section sets one host against **{reference}**. A ratio is of
undisturbed times ({{ref}}`method`) with its 95 % interval. Two hosts share no round, so that the intervals of both go
into it. What compares best is the time *over each host's own floor*: how much of the time is not the products. The
same from a terminal, for any two hosts:

    overhead compare {other} {reference}

"""
ALONE = "Only one host has been measured, so there is nothing to compare yet. Measure yours: {ref}`reproduce`.\n"
MEANS = {
    environments.UNLIKE: "The times are of two things. A ratio says little.",
    environments.CODE: "The same is computed, by other instructions. A ratio is of libraries as well as of machines.",
    environments.SAME: "The same instructions ran. A ratio is of the machines and of what else they did.",
}
SAID = {
    "slower": "slower", "faster": "faster", "no difference shown": "no difference shown",
    tables.ONE_PROCESS_EACH: tables.ONE_PROCESS_EACH,
}  # fmt: skip


def as_text(found: Comparison) -> str:
    """The comparison for a terminal: the answer, what differs by tier, the cases, the terms, what is missing."""
    lines = [answer(found), "", "What differs:"]
    for tier in environments.TIERS:
        told = [one for one in found.environment if one.tier == tier]
        lines += [f"  {tier}: " + ("nothing" if not told else "")]
        lines += [f"    {one.what}: {one.a} | {one.b}" for one in told]
    whole = headliners(found.pairs)
    if whole:
        lines += ["", f"Epochs, {found.a} / {found.b}, and each over its own floor:"]
        for pair in whole:
            told = tables.interval(pair.ratio)
            lines.append(f"  {_case(pair):<48} {told:<22} {SAID[pair.verdict]:<32} {_floors(pair)}")
    if found.splits:
        lines += ["", "A step's ratio, split over the terms of its budget:"]
        lines += [f"  {split_in_words(split, found.a, found.b)}" for split in found.splits]
    if found.not_compared:
        lines += ["", f"Could not compare ({len(found.not_compared)}):"]
        lines += [f"  {what}: {why}" for what, why in found.not_compared[:MOST]]
        if len(found.not_compared) > MOST:
            lines.append(f"  and {len(found.not_compared) - MOST} more (--json has them all)")
    return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines)


def answer(found: Comparison) -> str:
    """Whether two hosts agree, in a sentence or two; that they could not be compared is one answer."""
    if not found.pairs:
        return f"{found.a} and {found.b} could not be compared: no case was timed on both."
    counts = {word: sum(pair.verdict == word for pair in found.pairs) for word in SAID}
    n = len(found.pairs)
    told = (
        f"Of {n} cases that both timed, {found.a} shows no difference from {found.b} in {counts['no difference shown']}"
    )
    told += f", is slower in {counts['slower']} and faster in {counts['faster']}."
    if alone := counts[tables.ONE_PROCESS_EACH]:
        told += f" {alone} had one process each, which gives no verdict."
    furthest = max(headliners(found.pairs) or found.pairs, key=lambda p: max(p.ratio.median, 1 / p.ratio.median))
    told += f" Furthest apart: {_case(furthest)}, {tables.interval(furthest.ratio)} times as long on {found.a}."
    grave = [one for one in found.environment if one.tier == environments.UNLIKE]
    if grave:
        told += f" Unlike in what was measured: {', '.join(dict.fromkeys(one.what for one in grave))}."
    elif not found.environment:
        told += " Their environments do not differ in anything that is recorded."
    return told


def headliners(pairs: Iterable[Pair]) -> list[Pair]:
    """Epochs of the book's own network: a case a loop, batch size and chapter."""
    return [pair for pair in pairs if pair.whole]


def _case(pair: Pair) -> str:
    return f"{pair.what} (chapter {pair.chapter[:2]})"


def _floors(pair: Pair) -> str:
    a, b = (tables.number(side.median) if side else tables.NOT_MEASURED for side in pair.times_floor)
    return f"{a} | {b}"


def split_in_words(split: Split, a: str, b: str) -> str:
    """One step's ratio as one plus what each term adds."""
    parts = ", ".join(
        f"{share.term} {share.adds:+.2f} ({tables.number(share.a_us)} against {tables.number(share.b_us)} us)"
        for share in split.shares
    )
    return f"{split.loop}: {a} takes {split.ratio:.2f} times as long as {b}: 1 {parts}"


# --- the page ---------------------------------------------------------------------------------------------------------


def page(results: Path, hosts: Mapping[str, Sequence[str]]) -> str:
    """Every host against the first one, a section each, in Markdown."""
    names = list(hosts)
    parts = [INTRO.format(reference=names[0], other=names[-1] if len(names) > 1 else "local")]
    parts += [_section(compare_hosts(results, name, names[0])) for name in names[1:]]
    return "\n".join(parts if len(parts) > 1 else [*parts, ALONE])


def _section(found: Comparison) -> str:
    parts = [f"## {found.a} against {found.b}\n", plain(answer(found)) + "\n"]
    pairs = headliners(found.pairs)
    pairs = [pair for pair in pairs if pair.chapter == SWEEP] or pairs
    smallest = min((pair.batch_size or 0 for pair in pairs), default=0)
    first = [pair for pair in pairs if pair.batch_size == smallest][:MOST]
    if first:
        parts.append(f"### Epochs at batch size {smallest:,}\n")
        parts.append(_pairs_table(first, found))
    rest = [pair for pair in found.pairs if pair not in first and pair.loop not in FLOORS]
    if rest:
        parts.append(_folded(f"All other cases ({len(rest)})", _pairs_table(rest, found)))
    parts.append("### What differs\n")
    for tier in environments.TIERS:
        told = [one for one in found.environment if one.tier == tier]
        parts.append(f"**{tier[0].upper()}{tier[1:]}.** {MEANS[tier]}" + ("" if told else " Here: nothing.") + "\n")
        if told:
            parts.append(_environment_table(told, found))
    if found.splits:
        parts.append("### Where the ratio comes from\n")
        parts.append(
            "The ratio of a loop's step, split over the terms of its budget: one plus what each term adds. "
            f"Microseconds on {plain(found.a)} and on {plain(found.b)} in brackets.\n"
        )
        parts.append(_splits_table(found.splits))
    if found.not_compared:
        reasons = "\n".join(f"- {plain(what)}: {plain(why)}" for what, why in found.not_compared)
        parts.append(_folded(f"Could not compare ({len(found.not_compared)})", reasons + "\n"))
    return "\n".join(parts)


def _folded(title: str, body: str) -> str:
    return f"::::{{dropdown}} {title}\n\n{body}\n::::\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A table in Markdown; the last `numbers` columns are aligned right."""
    rule = ["---"] * (len(head) - numbers) + ["--:"] * numbers
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)) + "\n"


def _pairs_table(pairs: Sequence[Pair], found: Comparison) -> str:
    def floor(side: Interval | None) -> str:
        return tables.interval(side) if side else tables.NOT_MEASURED

    def words(pair: Pair) -> str:
        return {"slower": f"{found.a} is slower", "faster": f"{found.a} is faster"}.get(pair.verdict, pair.verdict)

    return _table(
        ["case", "in words", f"{found.a} / {found.b}", f"over floor, {found.a}", f"over floor, {found.b}"],
        [
            [plain(_case(pair)), words(pair), tables.interval(pair.ratio), *map(floor, pair.times_floor)]
            for pair in pairs
        ],
        numbers=3,
    )


def _environment_table(told: Sequence[Difference], found: Comparison) -> str:
    return _table(["what", found.a, found.b], [[plain(one.what), plain(one.a), plain(one.b)] for one in told])


def _splits_table(splits: Sequence[Split]) -> str:
    terms = list(dict.fromkeys(share.term for split in splits for share in split.shares))
    number: Callable[[float], str] = tables.number

    def cells(split: Split) -> list[str]:
        by = {share.term: share for share in split.shares}
        return [
            f"{by[term].adds:+.2f} ({number(by[term].a_us)}, {number(by[term].b_us)})" if term in by else "–"
            for term in terms
        ]

    return _table(["loop", "ratio", *terms], [[plain(s.loop), f"{s.ratio:.2f}", *cells(s)] for s in splits], len(terms))
