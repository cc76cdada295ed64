"""A whole diagnosis: take it, judge it, try the change; as JSON and for people."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.diagnose.interventions import IDLE, INTERVENTIONS
from overhead.diagnose.session import Session, Target
from overhead.diagnose.shares import LIMITS, elasticities, shares, step_ns
from overhead.diagnose.verdict import advice, verdict
from overhead.records import stats

TRY_ROUNDS = 8
TRY_SHARE = 0.15  # of the seconds, kept for trying the change
SAYS = {IDLE: "the share of the time in which no thread runs: sleeps, files, locks"}


def diagnose(target: Target, seconds: float, trying: bool = False) -> dict[str, Any]:
    """The document that `--json` prints. Raises `session.Failed` with the reason."""
    with Session(target, seconds * (1 - TRY_SHARE) if trying else seconds) as session:
        measured = session.take()
        found = shares(measured)
        said = verdict(found)
        has_pipeline = bool(np.any(found.input > 0))
        change = advice(found, said.leading, has_pipeline)
        tried = None
        if trying and change is not None:
            if change.before is None or change.after is None:
                measured.warnings.append(f"--try cannot make this change by itself: {change.change}")
            else:
                session.seconds = seconds
                pairs = session.compare(change.before, change.after, TRY_ROUNDS)
                before, after = ([pair[i].ns for pair in pairs] for i in (0, 1))
                ratio = stats.paired_ratio([before], [after])
                tried = {
                    "gain": ratio.median * change.after.times,
                    "low": ratio.low * change.after.times,
                    "high": ratio.high * change.after.times,
                }
    times = stats.median_interval([np.array(step_ns(measured)) * 1e-3])
    low, middle, high = np.quantile(found.of, [0.025, 0.5, 0.975], axis=0)
    return {
        "verdict": said.text,
        "certain": said.certain,
        "elasticities": [row._asdict() for row in elasticities(measured)],
        "shares": [
            {"limit": limit, "median": float(middle[i]), "low": float(low[i]), "high": float(high[i])}
            for i, limit in enumerate(LIMITS)
        ],
        "step_us": {"median": times.median, "low": times.low, "high": times.high},
        "first_us": measured.first_ns * 1e-3,
        "rounds": measured.rounds,
        "advice": None
        if change is None
        else {"change": change.change, "gain": change.gain, "low": change.low, "high": change.high},
        "tried": tried,
        "warnings": measured.warnings,
    }


def as_text(found: dict[str, Any]) -> str:
    """For people: the verdict, its evidence, the change."""
    step = found["step_us"]
    lines = [
        f"{found['verdict']}{'' if found['certain'] else ' (not certain)'}: a step takes {step['median']:.4g} us "
        f"({step['low']:.4g} to {step['high']:.4g}), {found['rounds']} rounds",
        "share of the time that goes with each limit:",
        *(f"  {s['limit']:<20}{_interval(s)}" for s in found["shares"]),
        "what was changed, and how much of the time went with it (1 all, 0 nothing):",
    ]
    for row in found["elasticities"]:
        name = row["intervention"]
        tells = INTERVENTIONS[name].tells if name in INTERVENTIONS else SAYS[name]
        lines.append(f"  {name:<20}{_interval(row)}   {tells}")
    advised = found["advice"]
    if advised:
        lines.append(f"try: {advised['change']}: predicted {_times(advised)}")
    if found["tried"]:
        lines.append(f"tried: {_times(found['tried'])}")
    return "\n".join(lines)


def _interval(row: dict[str, Any]) -> str:
    return f"{row['median']:6.2f} ({row['low']:.2f} to {row['high']:.2f})"


def _times(gain: dict[str, Any]) -> str:
    return f"{gain['gain']:.2f} times as many examples a second ({gain['low']:.2f} to {gain['high']:.2f})"
