"""What chapter 0 shows of the ways to estimate a loop's time: a sentence, a figure and a table, from many runs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from overhead.chapters import pages
from overhead.harness.estimator_runs import OP, TURNS
from overhead.measure.session import Preset
from overhead.records import estimators, stats
from overhead.records.estimators import ALL, ESTIMATORS, HEADLINE, LENGTHS, LOADED, QUIET, TURN
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import figures, tables

CONDITIONS = (QUIET, LOADED, ALL)
NOT_ASKED = (
    "Not measured here: which estimate repeats best. Twenty runs take about 20 minutes: "
    "`overhead run 00-clocks -p estimator_runs 20`."
)


def of_study(records: Sequence[Record]) -> list[Record]:
    """The records of the independent runs."""
    return [r for r in records if r.op == OP]


def said(records: Sequence[Record]) -> pages.Markdown:
    """Which estimator's estimates lie closest together from run to run, by how much, and how far a load moves each."""
    study = of_study(records)
    if not study:
        return pages.Markdown(NOT_ASKED)
    spread, ratios = estimators.scores(study), estimators.against_headline(study)
    if not ratios:
        return pages.missing("which estimate repeats best", study)
    timed = estimators.timed(study)
    runs = next(iter(ratios.values())).n
    best = min(spread, key=lambda name: spread[name])
    others = "; ".join(f"{name} {tables.interval(ratio)} times ({_word(ratio)})" for name, ratio in ratios.items())
    moves = "; ".join(f"{name} {tables.number(estimators.moved(study, name) or 0)} times" for name in ESTIMATORS)
    left_out = [f"{r.loop}: {r.reason}" for r in study if r.status != "ok"]
    sd = {name: f"{tables.number(100 * value)} %" for name, value in spread.items()}
    text = (
        f"**To remember: an estimate is as good as it repeats.** Over {runs} runs of {len(timed)} loops, each run with "
        f"{TURNS} quiet turns and {TURNS} beside the load, the estimates that lie closest together are those of the "
        f"**{best}**: {sd[best]} (standard deviation of the logarithms over all runs, quiet and loaded, averaged over "
        f"the loops). The headline of this book is the {HEADLINE}: {sd[HEADLINE]}. The deviation of the others through "
        f"the headline's: {others}. Beside the load the estimates became: {moves} as long."
    )
    return pages.Markdown(text + (f" Not timed: {'; '.join(left_out)}." if left_out else ""))


def figure(records: Sequence[Record]) -> figures.Figure | pages.Markdown:
    """The spread of each estimator between runs, quiet, beside a load, and over all runs; percent."""
    study = of_study(records)
    by_condition = {condition: estimators.scores(study, condition) for condition in CONDITIONS}
    if not all(by_condition.values()):
        return pages.missing("the spread of estimates between runs", study)
    values = {condition: [100 * found[name] for name in ESTIMATORS] for condition, found in by_condition.items()}
    each = (
        f"{name} {', '.join(f'{condition} {tables.number(found[at])}' for condition, found in values.items())}"
        for at, name in enumerate(ESTIMATORS)
    )
    unit = "standard deviation between runs (percent, mean of the loops)"
    return figures.dots(list(ESTIMATORS), values, unit, f"Deviation between runs, percent: {'; '.join(each)}")


def table(records: Sequence[Record], preset: Preset) -> pages.Html:
    """A row an estimator and length of a value: its spread in each condition, the loops' mean and the worst loop."""
    study = of_study(records)
    spreads = estimators.spreads(study)
    rows = []
    for length in LENGTHS:
        for estimator in ESTIMATORS:
            row = {"estimate": estimator, "of": f"{length}{'' if length != TURN else ' (as in this book)'}"}
            for condition in CONDITIONS:
                found = [s for s in spreads if (s.estimator, s.length, s.condition) == (estimator, length, condition)]
                if found:
                    worst = max(found, key=lambda s: s.range_ratio)
                    row[f"{condition}: deviation, %"] = tables.number(100 * sum(s.sd_log for s in found) / len(found))
                    row[f"{condition}: largest / smallest"] = f"{tables.number(worst.range_ratio)} ({worst.loop})"
            rows.append(row)
    frame = pd.DataFrame(rows if spreads else [])
    caption = (
        "Spread of the estimates between runs: the standard deviation of their logarithms, averaged over the loops, "
        "and the largest over the smallest of the loop where that is most; n = "
        f"{max((s.runs for s in spreads if s.condition == QUIET), default=0)} runs. {pages.caption(study, preset)}."
    )
    return pages.Html(tables.as_html(frame, caption, "independent runs") if study else "")


def _word(ratio: Interval) -> str:
    return {"slower": "larger", "faster": "smaller"}.get(stats.verdict(ratio), "no difference shown")
