"""Diagnoses of steps whose mixture is known: how often the verdict is right, and the predicted gain."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from overhead.diagnose.interventions import PLAIN, Condition
from overhead.diagnose.session import Session, Target
from overhead.diagnose.shares import LIMITS, shares
from overhead.diagnose.verdict import Advice, Verdict, advice, name, verdict

SYNTHETIC = Path(__file__).with_name("synthetic.py")
SECONDS = 9.0  # a case, without the measured gain
GAIN_ROUNDS = 6
GAIN_WITHIN = 0.15
BOUNDS = {"right_pure": 0.95, "right_mixed": 0.85, "right_gain": 0.80}
WRONG_CERTAIN = 0.02  # at most


class Case(NamedTuple):
    """A mixture: the shares of the step's time by limit, and how it is made."""

    name: str
    shares: dict[str, float]
    total_ms: float = 10.0
    fixed: bool = False  # products and copies do not depend on the batch
    busy: bool = False  # the producer works in the place of sleeping

    @property
    def truth(self) -> str:
        return " + ".join(f"{share:.0%} {limit}" for limit, share in self.shares.items())

    @property
    def leading(self) -> str:
        return max(self.shares, key=lambda limit: self.shares[limit])

    @property
    def is_pure(self) -> bool:
        return len(self.shares) == 1

    def environment(self) -> tuple[tuple[str, str], ...]:
        made = {**self.shares, "total_ms": self.total_ms, "fixed": self.fixed, "busy": self.busy}
        return (("OVERHEAD_SYNTHETIC", json.dumps(made)),)


class Result(NamedTuple):
    """What was said of a case."""

    case: Case
    verdict: Verdict
    predicted: float | None
    measured: float | None

    @property
    def right(self) -> bool:
        """The leading limit alone; of a mixture its two limits as well."""
        both = {f"mixed: {name(a)} or {name(b)}" for a, b in permutations(self.case.shares, 2)}
        return self.verdict.text in {name(self.case.leading), *both}

    @property
    def right_gain(self) -> bool | None:
        if self.predicted is None or self.measured is None:
            return None
        return abs(self.predicted / self.measured - 1) <= GAIN_WITHIN

    def line(self) -> str:
        """For people, while the check runs."""
        gain = "none"
        if self.predicted is not None and self.measured is not None:
            gain = f"{self.predicted:.2f}, measured {self.measured:.2f}"
        sure = " (certain)" if self.verdict.certain else ""
        return f"{self.case.name}: {self.verdict.text}{sure}: {'right' if self.right else 'wrong'}; gain {gain}"

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.case.name,
            "truth": self.case.truth,
            "verdict": self.verdict.text,
            "certain": self.verdict.certain,
            "predicted_gain": self.predicted,
            "measured_gain": self.measured,
        }


def cases() -> list[Case]:
    """Pure steps, long and short, with and without a batch that matters; then every pair at 60 to 40 per cent."""
    found = []
    for total_ms in (4.0, 10.0, 20.0):
        found += [Case(f"{limit}, {total_ms:g} ms", {limit: 1.0}, total_ms) for limit in LIMITS if limit != "input"]
        found.append(Case(f"input, {total_ms:g} ms", {"input": 1.0}, total_ms))
    for limit in ("arithmetic", "memory"):
        found += [Case(f"{limit}, any batch, {ms:g} ms", {limit: 1.0}, ms, fixed=True) for ms in (4.0, 10.0)]
    found.append(Case("input that works, 10 ms", {"input": 1.0}, 10.0, busy=True))
    for first, second in permutations(LIMITS, 2):
        found.append(Case(f"{first} with {second}", {first: 0.6, second: 0.4}))
    for first, second in permutations(("dispatch", "arithmetic", "memory"), 2):
        found.append(Case(f"{first} with {second}, any batch", {first: 0.6, second: 0.4}, fixed=True))
    return found


def check(case: Case, seconds: float = SECONDS) -> Result:
    """Diagnose one case, then make the change that was advised and measure what it gains."""
    target = Target(SYNTHETIC, env=case.environment())
    with Session(target, seconds) as session:
        found = shares(session.take())
        said = verdict(found)
        has_pipeline = "input" in case.shares
        change = advice(found, said.leading, has_pipeline)
        if change is None or said.leading is None:
            return Result(case, said, None, None)
        return Result(case, said, change.gain, _gain(session, change, said.leading, has_pipeline))


def _gain(session: Session, change: Advice, leading: str, has_pipeline: bool) -> float:
    whole = Condition(pipeline=True) if has_pipeline else PLAIN
    if change.after is not None and change.before is not None:
        pairs = session.compare(change.before, change.after, GAIN_ROUNDS)
        return float(np.median([a.ns / b.ns for a, b in pairs])) * change.after.times
    ratios = []
    for _ in range(GAIN_ROUNDS):
        before = session.sample(whole).ns
        session.ask("tell", function="set_part", arguments=[leading, 0.5])
        ratios.append(before / session.sample(whole).ns)
        session.ask("tell", function="set_part", arguments=[leading, 1.0])
    return float(np.median(ratios))


def run(say: Callable[[str], None], chosen: Sequence[Case] | None = None) -> list[Result]:
    """Check the cases, one after another."""
    found = []
    for case in cases() if chosen is None else chosen:
        result = check(case)
        say(result.line())
        found.append(result)
    return found


def report(found: Sequence[Result]) -> dict[str, Any]:
    """The JSON document: the cases and the shares that were right."""

    def share(values: list[bool]) -> float | None:
        return sum(values) / len(values) if values else None

    gains = [result.right_gain for result in found if result.right_gain is not None]
    return {
        "cases": [result.as_json() for result in found],
        "right_pure": share([result.right for result in found if result.case.is_pure]),
        "right_mixed": share([result.right for result in found if not result.case.is_pure]),
        "wrong_certain": share([result.verdict.certain and not result.right for result in found]),
        "right_gain": share(gains),
    }


def shortfalls(report: dict[str, Any]) -> list[str]:
    """The bounds that a report does not keep, in words."""
    found = [
        f"{key} must be at least {bound:.0%}, got {report[key]:.0%}"
        for key, bound in BOUNDS.items()
        if report[key] is not None and report[key] < bound
    ]
    if (report["wrong_certain"] or 0) > WRONG_CERTAIN:
        found.append(f"wrong_certain must be at most {WRONG_CERTAIN:.0%}, got {report['wrong_certain']:.1%}")
    return found
