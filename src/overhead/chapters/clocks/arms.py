"""Chapter 0's comparisons of two arms whose answer is known: a sentence and a figure each."""

from __future__ import annotations

from collections.abc import Sequence

from overhead.chapters import pages
from overhead.chapters.clocks import figures
from overhead.harness import comparisons, experiments
from overhead.harness.experiments import PAIRS, SHARES
from overhead.records import stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables
from overhead.showing.figures import Figure

ITSELF = "a loop beside itself"
SLOWDOWN = "a slowdown of known size"
BESIDE = "two arms beside a load"


class Arms:
    """The part of the page that compares: a loop with itself, with a known slowdown, and beside a load."""

    def itself(self, records: Sequence[Record]) -> pages.Markdown:
        """How often a loop is called different from itself, to remember."""
        found = comparisons.in_one_process(records)
        if not found:
            return pages.missing(ITSELF, records)
        called = comparisons.different(found)
        _, low, high = comparisons.share_of(called, len(found))
        text = (
            f"**To remember: a method that is right 95 % of the time cries wolf one time in twenty.** Here {called} of "
            f"{len(found)} comparisons of the NumPy loop with itself in one process, {PAIRS} pairs each, were called "
            f"different: {100 * called / len(found):.1f} % [{100 * low:.1f}, {100 * high:.1f}], where 5 % are expected."
        )
        for count in (1, comparisons.PROCESSES):
            fresh = comparisons.in_fresh_processes(records, count)
            if fresh:
                each = "one fresh process" if count == 1 else f"{count} fresh processes"
                text += f" With {each} for each arm it was {comparisons.different(fresh)} of {len(fresh)}."
        return pages.Markdown(text)

    def itself_figure(self, records: Sequence[Record]) -> Figure | pages.Markdown:
        """The ratios of a loop with itself, in one process and in fresh ones, with intervals."""
        groups = {
            "one process": comparisons.in_one_process(records),
            "fresh processes:\none each": comparisons.in_fresh_processes(records, 1),
            f"{comparisons.PROCESSES} each": comparisons.in_fresh_processes(records, comparisons.PROCESSES),
        }
        if not any(groups.values()):
            return pages.missing(ITSELF, records)
        alt = "Ratios of a loop with itself: " + "; ".join(
            f"{' '.join(name.split())}: {comparisons.different(found)} of {len(found)} called different"
            for name, found in groups.items()
        )
        return figures.intervals(groups, f"time / time of the same loop\n(95 % interval, {PAIRS} pairs)", alt)

    def slowdown(self, records: Sequence[Record]) -> pages.Markdown:
        """Whether an injected slowdown is found again, to remember."""
        found = {p: ratios for p in SHARES if (ratios := comparisons.trials(records, f"injection-{p}"))}
        if not found:
            return pages.missing(SLOWDOWN, records)
        ratios = [ratio for trials in found.values() for ratio in trials]
        right = sum(comparisons.recovered(ratio, p / 100) for p, trials in found.items() for ratio in trials)
        seen = [p for p, trials in found.items() if all(stats.verdict(ratio) == "slower" for ratio in trials)]
        least = "Of no slowdown did the interval exclude 1 in every trial"
        if seen:
            least = f"The smallest slowdown whose interval excluded 1 in every trial was {min(seen)} %"
        return pages.Markdown(
            f"**To remember: what is smaller than its interval has not been seen.** "
            f"{least}; {right} of {len(ratios)} trials came within half a point "
            f"of what was injected, or within the half-width of their interval ({min(r.n for r in ratios)} to "
            f"{max(r.n for r in ratios)} pairs a trial)."
        )

    def slowdown_figure(self, records: Sequence[Record]) -> Figure | pages.Markdown:
        """Slowdowns found against slowdowns injected, percent."""
        found = {p: comparisons.trials(records, f"injection-{p}") for p in SHARES}
        if not any(found.values()):
            return pages.missing(SLOWDOWN, records)
        alt = "Slowdown injected and found: " + "; ".join(
            f"{p} %: " + ", ".join(f"{100 * (r.median - 1):.1f}" for r in trials) for p, trials in found.items()
        )
        return figures.recovered(found, alt)

    def beside(self, records: Sequence[Record]) -> pages.Markdown:
        """What a load that comes and goes does to both ways of comparing, to remember."""
        quiet, together, apart = comparisons.beside_a_load(records)
        if quiet is None or not together or not apart:
            return pages.missing(BESIDE, records)
        return pages.Markdown(
            f"**To remember: compare in pairs, never one after the other.** Arm b takes {experiments.MORE} times the "
            f"steps of arm a. Without the load it took {tables.interval(quiet)} times as long ({quiet.n} pairs). With "
            f"a load on the same core that comes and goes: {_listed(together)} where the arms took turns, "
            f"{_listed(apart)} where one ran after the other."
        )

    def beside_figure(self, records: Sequence[Record]) -> Figure | pages.Markdown:
        """Samples of both arms in order beside a load, interleaved and one after the other, milliseconds."""
        _, together, apart = comparisons.beside_a_load(records)
        panels = {}
        for title, op, ratios, turns in (
            ("taking turns", "load interleaved 1", together, True),
            ("one after the other", "load one-after-the-other 1", apart, False),
        ):
            a, b = comparisons.arms(records, op)
            if ratios:
                panels[f"{title}:\n{tables.interval(ratios[0])} times"] = (a[0], b[0], turns)
        if not panels:
            return pages.missing(BESIDE, records)
        alt = f"Samples of two arms beside a load. {'; '.join(' '.join(panel.split()) for panel in panels)}"
        return figures.schedules(panels, alt)


def _listed(ratios: Sequence[Interval]) -> str:
    return ", ".join(tables.interval(ratio) for ratio in ratios)
