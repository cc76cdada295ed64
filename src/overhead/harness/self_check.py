"""Is the harness to be believed? Each of its properties is measured, and passes or fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from overhead.harness import comparisons, experiments, synthetic
from overhead.harness.experiments import PAIRS, SHARES, Sizes
from overhead.loops.base import Op, nothing_to_wait_for
from overhead.machine import host
from overhead.machine import timer as timers
from overhead.measure import clock as timing
from overhead.measure.session import PRESETS, Session
from overhead.records import stats
from overhead.records.record import Record

CALLED_DIFFERENT = (0.025, 0.076)  # the share of comparisons of a loop with itself that may be, at the 5 % level
RECOVERED = 0.9  # share of the trials
COVERED = 0.93  # at a nominal 95 %
INTERLEAVED_MOVES, OTHER_MOVES = 0.03, 0.10  # beside a load: at most, and at least
TRIALS = 1000  # of each synthetic distribution
WHOLE = Sizes()
NET_ERROR = 0.25  # of an op of a few hundred nanoseconds, timed singly and among a thousand


class Property(NamedTuple):
    """One property of the harness: whether it holds, the figure that says so, and the interval of that figure."""

    name: str
    passed: bool
    figure: float | None
    low: float | None
    high: float | None
    unit: str
    n: int
    says: str

    def line(self) -> str:
        """Name, pass or fail, the figure and its interval, and what they mean."""
        if self.figure is None:
            return f"{self.name:<15}fail  {self.says}"
        scale, unit = (100, " %") if self.unit == "share" else (1, f" {self.unit}")
        figures = f"{scale * self.figure:.2f}"
        if self.low is not None and self.high is not None:
            figures += f" [{scale * self.low:.2f}, {scale * self.high:.2f}]"
        return f"{self.name:<15}{'pass' if self.passed else 'fail'}  {figures}{unit}, n = {self.n}: {self.says}"


def run(say: Callable[[str], None], sizes: Sizes = WHOLE, force: bool = False) -> list[Property]:
    """The whole battery, at most ten minutes on a quiet host. Raises `Busy` beside another measurement."""
    session = Session(PRESETS["full"], {"host": "local", "notebook": "self-check"}, say, force=force)
    found = []
    for title, properties in battery(session, sizes):
        say(f"{title} …")
        found.extend(properties())
    return found


def battery(session: Session, sizes: Sizes) -> Iterator[tuple[str, Callable[[], list[Property]]]]:
    """Each group of properties with what measures it."""
    taken: dict[str, list[Record]] = {}

    def in_one_process() -> list[Record]:
        if "one" not in taken:
            taken["one"] = experiments.in_one_process(session, sizes)
        return taken["one"]

    yield "a-a", lambda: [a_a(in_one_process(), experiments.in_fresh_processes(session, sizes))]
    yield "injection", lambda: [injection(in_one_process(), percent) for percent in SHARES]
    yield "coverage", lambda: [coverage()]
    yield "unsynchronised", lambda: [unsynchronised(experiments.unsynchronised(session, sizes))]
    yield "load", lambda: [load(experiments.beside_a_load(session, sizes))]
    yield "timer", lambda: [timer()]


def failed(name: str, records: Sequence[Record]) -> Property:
    """The property of an experiment that did not take place, with the reason."""
    reason = next((r.reason for r in records if r.reason), "no samples were taken")
    return Property(name, False, None, None, None, "share", 0, str(reason))


def a_a(records: Sequence[Record], fresh: Sequence[Record]) -> Property:
    """A loop against itself: how often it is called different at the 5 % level."""
    ratios = comparisons.in_one_process(records)
    if not ratios:
        return failed("a-a", records)
    share, low, high = comparisons.share_of(comparisons.different(ratios), len(ratios))
    beside = [
        f"{comparisons.different(found)} of {len(found)} where each has {count} fresh process" + "es" * (count > 1)
        for count in (1, comparisons.PROCESSES)
        if (found := comparisons.in_fresh_processes(fresh, count))
    ]
    least, most = CALLED_DIFFERENT
    return Property(
        "a-a", least <= share <= most, share, low, high, "share", len(ratios),
        f"of comparisons of a loop with itself, {PAIRS} pairs each, called different "
        f"({least:.1%} to {most:.1%} allowed)"
        + "".join(f"; {text}" for text in beside),
    )  # fmt: skip


def injection(records: Sequence[Record], percent: int) -> Property:
    """A busy wait of `percent` of a sample: whether it is found again."""
    name = f"injection-{percent}"
    ratios = comparisons.trials(records, name)
    if not ratios:
        return failed(name, records)
    right = sum(comparisons.recovered(ratio, percent / 100) for ratio in ratios)
    middle = float(np.median([r.median for r in ratios])) - 1
    low, high = (float(np.median([getattr(r, side) for r in ratios])) - 1 for side in ("low", "high"))
    return Property(
        name, right >= RECOVERED * len(ratios), middle, low, high, "share", len(ratios),
        f"slower where {percent} % were injected (median trial); {right} of {len(ratios)} trials within "
        f"{100 * comparisons.POINTS:g} points or the half-width, {min(r.n for r in ratios)} to "
        f"{max(r.n for r in ratios)} pairs",
    )  # fmt: skip


def load(records: Sequence[Record]) -> Property:
    """Beside a load that comes and goes: how far interleaved ratios move, and ratios of one after the other."""
    quiet, together, apart = comparisons.beside_a_load(records)
    if quiet is None or not together or not apart:
        return failed("load", records)
    moves = [ratio.median / quiet.median - 1 for ratio in together]
    others = [ratio.median / quiet.median - 1 for ratio in apart]
    worst, least = max(moves, key=abs), min(others, key=abs)
    return Property(
        "load", abs(worst) <= INTERLEAVED_MOVES and abs(least) > OTHER_MOVES, worst, min(moves), max(moves), "share",
        len(moves), f"is the most that interleaved ratios move beside a load; one after the other they move by "
        f"{min(others):+.1%} to {max(others):+.1%}; quiet ratio {quiet.median:.3f} [{quiet.low:.3f}, {quiet.high:.3f}]",
    )  # fmt: skip


def unsynchronised(records: Sequence[Record]) -> Property:
    """Contestants that do not wait for their device: whether each is refused, and an honest one is not."""
    fakes = [r for r in records if r.loop.endswith(":Unsynchronised")]
    honest = [r for r in records if r.loop.endswith(":Synchronised")]
    caught = [
        r for r in fakes
        if (r.status, r.reason) == ("failed", "returned before the device was done") and r.timing is None
    ]  # fmt: skip
    share, low, high = comparisons.share_of(len(caught), len(fakes))
    fair = all(r.status == "ok" for r in honest)
    return Property(
        "unsynchronised", len(caught) == len(fakes) and fair, share, low, high, "share", len(fakes),
        "of contestants that forget to wait were refused, without a time; "
        + ("the one that waits was timed" if fair else f"the one that waits was not timed: {honest[0].reason}"),
    )  # fmt: skip


def coverage(draws: int = TRIALS) -> Property:
    """Intervals of synthetic samples: the least share, over distributions and sizes, that holds the true median."""
    shares = {}
    for name, (draw, truth) in synthetic.samples().items():
        rng = np.random.default_rng(1)
        found = [stats.median_interval(draw(rng)) for _ in range(draws)]
        shares[name] = sum(i.low <= truth <= i.high for i in found)
    least = min(shares, key=lambda name: shares[name])
    share, low, high = comparisons.share_of(shares[least], draws)
    return Property(
        "coverage", share >= COVERED, share, low, high, "share", draws,
        f"of 95 % intervals hold the true median in the worst of {len(shares)} cases ({least})",
    )  # fmt: skip


def short_op(blocks: int = 200, calls: int = 50) -> tuple[float, float]:
    """Nanoseconds of an op of a few hundred: net of the clock when timed singly, and in blocks, where it is lost."""
    op = Op("short", "none", lambda: sum(range(20)), nothing_to_wait_for)
    clock = timers.measured()
    (single,) = timing.measure_ops([op], blocks * calls)
    among, (_, _, call, wait) = [], op
    for _ in range(blocks):
        start = timers.clock()
        for _ in range(calls):
            call()
            wait()
        among.append((timers.clock() - start) / calls)
    return float(np.median(timers.net(single, clock.empty_ns, clock.pair_cost_ns))), float(np.median(among))


def timer() -> Property:
    """The clock: what a pair of readings costs, whether it can be taken off, and one that stands still at first."""
    costs = [timers.pair_cost_ns() for _ in range(21)]
    clock = timers.measured()
    net, truth = sorted((short_op() for _ in range(5)), key=lambda pair: pair[0] / pair[1])[2]
    nothing = [Op("nothing", "none", nothing_to_wait_for, nothing_to_wait_for)]
    standing = [
        *timing.measure_ops(nothing, 50, synthetic.standing_clock(25))[0],
        *timing.measure_unread(nothing, 50, synthetic.standing_clock(25)),
        timers.pair_cost_ns(now=synthetic.standing_clock(25)), timers.resolution_ns(now=synthetic.standing_clock(25)),
    ]  # fmt: skip
    sound = all(np.isfinite(value) and value > 0 for value in standing)
    interval = stats.median_interval([costs])
    good = 0 < clock.empty_ns <= 2 * clock.pair_cost_ns and abs(net / truth - 1) <= NET_ERROR and sound
    return Property(
        "timer", good, *interval[:3], "ns", interval.n,
        f"a pair of readings; {clock.empty_ns:.0f} ns of them are inside a sample and taken off ops shorter than "
        f"{timers.NEGLIGIBLE} pairs: an op of {truth:.0f} ns is then timed as {net:.0f} ns; a clock that stands still "
        + ("at first gives times above 0" if sound else "gives a time that is none"),
    )  # fmt: skip


def report(found: Sequence[Property]) -> dict[str, Any]:
    """What `overhead self-check --json` prints."""
    return {"host": host.facts(), "properties": [p._asdict() for p in found]}
