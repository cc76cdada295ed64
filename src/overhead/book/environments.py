"""How two hosts' environments differ, in three tiers: what a difference of their times may be put down to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from overhead.records.record import Record

SAME = "same program"  # another machine, other settings of a run: the same instructions where it matters
CODE = "same mathematics, other code"  # other libraries, kernels, compilers
UNLIKE = "unlike"  # other data, precision or kind of device: the times are of two things
TIERS = (UNLIKE, CODE, SAME)  # the gravest first
MOST = 200  # characters of a value
NONE = "none"
# What host.json says: the key, what a reader calls it, and the tier of a difference.
FACTS = (
    ("cpu_model", "CPU", SAME),
    ("cores_allowed", "cores allowed", SAME),
    ("cgroup_quota_cores", "cores of the container's quota", SAME),
    ("threads_used", "threads", SAME),
    ("caches_bytes", "caches, bytes", SAME),
    ("memory_bytes", "memory, bytes", SAME),
    ("virtual", "virtual machine", SAME),
    ("os", "system", SAME),
    ("architecture", "architecture", CODE),
    ("simd", "vector instructions", CODE),
    ("allocator", "allocator", CODE),
    ("python", "Python", CODE),
)
PRECISION = "NVIDIA_TF32_OVERRIDE"  # the one variable that changes the mathematics


class Difference(NamedTuple):
    """What differs, on either host, and how grave that is."""

    what: str
    a: str
    b: str
    tier: str


Sides = tuple[Mapping[str, Any], Mapping[str, Any]]  # host.json of either
Chapters = tuple[Mapping[str, Sequence[Record]], Mapping[str, Sequence[Record]]]


def differences(facts: Sides, records: Chapters) -> list[Difference]:
    """What differs between two hosts, the gravest first. `records`: chapter → its records, of either host."""
    found = [_difference(what, _said(facts, key), tier) for key, what, tier in FACTS]
    found += _named("BLAS of {}", _pools(facts[0]), _pools(facts[1]), CODE)
    found += _named("{}", _texts(facts[0].get("versions")), _texts(facts[1].get("versions")), CODE)
    variables = _named("{}", _variables(facts[0], records[0]), _variables(facts[1], records[1]), CODE)
    found += [one._replace(tier=UNLIKE) if one.what == PRECISION else one for one in variables]
    found.append(_gpus(facts))
    for chapter in [name for name in records[0] if name in records[1]]:
        found += _of_chapter(chapter, records[0][chapter], records[1][chapter])
    told = list(dict.fromkeys(one for one in found if one.a != one.b))
    return sorted(told, key=lambda one: TIERS.index(one.tier))


def _of_chapter(chapter: str, a: Sequence[Record], b: Sequence[Record]) -> list[Difference]:
    def both(what: str, tier: str, of: Any) -> Difference:
        return Difference(f"{what} of {chapter}", _all(map(of, a)), _all(map(of, b)), tier)

    return [
        both("data", UNLIKE, lambda record: record.data),
        both("precision", UNLIKE, lambda record: record.settings.get("matmul_precision")),
        both("measuring code", CODE, lambda record: (record.code_sha256 or "")[:10] or None),
        both("preset", SAME, lambda record: record.preset),
        _difference(f"disturbed in {chapter}", [_all(why for r in of for why in r.disturbed) for of in (a, b)], SAME),
    ]


def _all(values: Any) -> str:
    kept = sorted({str(value) for value in values if value is not None})
    return ", ".join(kept)[:MOST] or NONE


def _said(facts: Sides, key: str) -> list[str]:
    return [str(side[key])[:MOST] if side.get(key) is not None else NONE for side in facts]


def _texts(value: Any) -> dict[str, str]:
    return {str(k)[:MOST]: str(v)[:MOST] for k, v in value.items()} if isinstance(value, dict) else {}


def _pools(facts: Mapping[str, Any]) -> dict[str, str]:
    """Which BLAS each framework's worker called: library, version, kernels, threads."""
    pools = facts.get("pools")
    found = {}
    for name, pool in pools.items() if isinstance(pools, dict) else ():
        if isinstance(pool, dict):
            found[str(name).partition(":")[0][:MOST]] = _pool(pool)
    if not found and isinstance(blas := facts.get("blas"), list):
        found["this process"] = "; ".join(_pool(pool) for pool in blas if isinstance(pool, dict))[:MOST]
    return found


def _pool(pool: Mapping[str, Any]) -> str:
    kernels = f", {pool['architecture']} kernels" if pool.get("architecture") else ""
    return f"{pool.get('library')} {pool.get('version')}{kernels}, {pool.get('threads')} threads"[:MOST]


def _variables(facts: Mapping[str, Any], records: Mapping[str, Sequence[Record]]) -> dict[str, str]:
    """Variables that were set for every worker of some loop: one that a chapter varies is no host's."""
    seen: dict[str, set[str]] = {}
    for found in records.values():
        for record in found:
            for name, value in record.env.items():
                seen.setdefault(name, set()).add(value)
    return {name: next(iter(values)) for name, values in seen.items() if len(values) == 1} | _texts(facts.get("env"))


def _named(what: str, a: Mapping[str, str], b: Mapping[str, str], tier: str) -> list[Difference]:
    names = list(dict.fromkeys([*a, *b]))
    return [Difference(what.format(name), a.get(name, NONE), b.get(name, NONE), tier) for name in names]


def _gpus(facts: Sides) -> Difference:
    cards = []
    for side in facts:
        listed = side.get("gpus")
        named = [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else []
        told = ", ".join(f"{card.get('name')} (driver {card.get('driver')})" for card in named)
        cards.append(told[:MOST] or NONE)
    return _difference("GPU", cards, UNLIKE if NONE in cards else CODE)


def _difference(what: str, sides: Sequence[str], tier: str) -> Difference:
    a, b = sides
    return Difference(what, a, b, tier)
