"""Chapter 0's ways to estimate a loop's time, and which of them repeats best from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import pandas as pd

from overhead.chapters import pages
from overhead.harness.estimator_runs import TURNS, of_study
from overhead.records import estimators, stats
from overhead.records.estimators import ALL, ESTIMATORS, HEADLINE, LENGTHS, LOADED, QUIET, TURN
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables
from overhead.showing.figures import Figure, dots

if TYPE_CHECKING:
    from overhead.measure.session import Preset

STUDY = "which estimate repeats best"
CONDITIONS = (QUIET, LOADED, ALL)
NOT_ASKED = (
    "Not measured here: which estimate repeats best. Twenty runs take about 20 minutes: "
    "`overhead run 00-clocks -p estimator_runs 20`."
)


class Estimates:
    """The part of the page that shows how far estimates of the same loop lie apart between independent runs."""

    if TYPE_CHECKING:  # a chapter has them; as an annotation of the class they would be one of its parameters
        settings: Preset

    def estimates(self, records: Sequence[Record]) -> pages.Markdown:
        """Whose estimates lie closest together from run to run, by how much, and how far a load moves each."""
        study = of_study(records)
        if not study:
            return pages.Markdown(NOT_ASKED)
        spread, ratios = estimators.scores(study), estimators.against_headline(study)
        if not ratios:
            return pages.missing(STUDY, study)
        runs, loops = next(iter(ratios.values())).n, len(estimators.timed(study))
        best = min(spread, key=lambda name: spread[name])
        sd = {name: f"{tables.number(100 * value)} %" for name, value in spread.items()}
        others = "; ".join(f"{name} {tables.interval(ratio)} times ({_word(ratio)})" for name, ratio in ratios.items())
        moves = "; ".join(f"{name} {tables.number(estimators.moved(study, name) or 0)} times" for name in ESTIMATORS)
        left_out = [f"{r.loop}: {r.reason}" for r in study if r.status != "ok"]
        text = (
            f"**To remember: an estimate is as good as it repeats.** Over {runs} runs of {loops} loops, each "
            f"run with {TURNS} quiet turns and {TURNS} beside the load, the estimates that lie closest "
            f"together are those of the **{best}**: {sd[best]} (standard deviation of the logarithms over all runs, "
            f"quiet and loaded, averaged over the loops). The headline of this book is the {HEADLINE}: {sd[HEADLINE]}. "
            f"The deviation of the others through the headline's: {others}. Beside the load the estimates became: "
            f"{moves} as long."
        )
        return pages.Markdown(text + (f" Not timed: {'; '.join(left_out)}." if left_out else ""))

    def estimates_figure(self, records: Sequence[Record]) -> Figure | pages.Markdown:
        """The spread of each estimator between runs, quiet, beside a load, and over all runs; percent."""
        study = of_study(records)
        by_condition = {condition: estimators.scores(study, condition) for condition in CONDITIONS}
        if not all(by_condition.values()):
            return pages.missing(STUDY, study)
        values = {condition: [100 * found[name] for name in ESTIMATORS] for condition, found in by_condition.items()}
        each = (
            f"{name} {', '.join(f'{condition} {tables.number(found[at])}' for condition, found in values.items())}"
            for at, name in enumerate(ESTIMATORS)
        )
        unit = "standard deviation between runs (percent, mean of the loops)"
        return dots(list(ESTIMATORS), values, unit, f"Deviation between runs, percent: {'; '.join(each)}")

    def estimates_table(self, records: Sequence[Record]) -> pages.Html | pages.Markdown:
        """A row an estimator and length of a value: its spread in each condition, of all loops and of the worst."""
        study = of_study(records)
        spreads = estimators.spreads(study)
        if not spreads:
            return pages.missing(STUDY, study)
        rows = []
        for length, estimator in product(LENGTHS, ESTIMATORS):
            row = {"estimate": estimator, "of": f"{length} (as in this book)" if length == TURN else length}
            for condition in CONDITIONS:
                found = [s for s in spreads if (s.estimator, s.length, s.condition) == (estimator, length, condition)]
                worst = max(found, key=lambda s: s.range_ratio)
                mean = sum(s.sd_log for s in found) / len(found)
                row[f"{condition}: deviation, %"] = tables.number(100 * mean)
                row[f"{condition}: largest / smallest"] = f"{tables.number(worst.range_ratio)} ({worst.loop})"
            rows.append(row)
        caption = (
            "Spread of the estimates between runs: the standard deviation of their logarithms, averaged over the "
            "loops, and the largest over the smallest of the loop where that is most; "
            f"{min(s.runs for s in spreads)} runs; {pages.caption(study, self.settings)}."
        )
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption))


def _word(ratio: Interval) -> str:
    return {"slower": "larger", "faster": "smaller"}.get(stats.verdict(ratio), "no difference shown")
