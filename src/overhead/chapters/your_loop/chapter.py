"""Chapter 10: `overhead diagnose` on loops whose answer is known, and what common pitfalls cost on this host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pandas as pd

from overhead.chapters import pages
from overhead.chapters.base import Chapter
from overhead.diagnose import own_loops, report
from overhead.diagnose.interventions import INTERVENTIONS
from overhead.diagnose.pitfalls import PITFALLS
from overhead.diagnose.pitfalls import target as pitfall_target
from overhead.diagnose.session import Failed
from overhead.diagnose.session import Session as Diagnosis
from overhead.machine.alone import measuring
from overhead.measure.session import Session
from overhead.problem.workload import Workload
from overhead.records import stats
from overhead.records.record import Record, Samples, Timing
from overhead.records.stats import Interval
from overhead.showing import figures, tables

# Loops whose answer chapter 3 knows: name, images a batch, and seconds that a producer before it sleeps.
WORKED = (("keras-fit", 32, 0.0), ("tf-eager", 32, 0.0), ("jax-epoch", 32, 0.0), ("numpy", 4096, 0.0))
SECONDS = {"quick": 25.0, "workshop": 40.0, "full": 60.0}  # of a diagnosis
ROUNDS = {"quick": 8, "workshop": 15, "full": 30}  # of a pitfall
SAMPLE_S = 0.03
PLAIN, PITFALL = "plain", "pitfall"


class YourLoop(Chapter, frozen=True, strict=True, extra="forbid"):
    """Four diagnoses, and the price list of the pitfalls."""

    name: ClassVar[str] = "10-your-loop"

    def take(self, session: Session) -> list[Record]:
        """A record a diagnosis and a pitfall. Raises `Busy` when another measurement holds the host."""
        with measuring(session.force):
            found = [self._diagnosed(session, *worked) for worked in WORKED]
            for framework in dict.fromkeys(pitfall.framework for pitfall in PITFALLS.values()):
                found += self._priced(session, framework)
        return found

    def _diagnosed(self, session: Session, loop: str, batch_size: int, producer_s: float) -> Record:
        session.say(f"diagnosing {loop} at {batch_size}")
        workload = Workload(batch_size=batch_size)
        about: dict[str, Any] = {"loop": loop, "device": "cpu", "workload": workload, **session.provenance}
        try:
            said = report.diagnose(own_loops.target(loop, batch_size, producer_s), SECONDS[self.preset])
        except Failed as failed:
            return Record(status="failed", reason=str(failed), **about)
        return Record(status="ok", diagnosis=said, **about)

    def _priced(self, session: Session, framework: str) -> list[Record]:
        names = [name for name, pitfall in PITFALLS.items() if pitfall.framework == framework]
        about = {"loop": framework, "device": "cpu", **session.provenance}
        with Diagnosis(pitfall_target(framework), 600.0) as asked:
            try:
                asked.ask("hello")
                asked.ask("first", n=asked.target.batch_size)
            except Failed as failed:
                return [Record(status="failed", reason=str(failed), op=name, **about) for name in names]
            return [_price(asked, name, ROUNDS[self.preset], about) for name in names]

    # The interventions

    def interventions(self) -> pd.DataFrame:
        """What is changed, what each change tells, and what it cannot."""
        rows = [{"changed": name, "tells": arm.tells, "cannot tell": arm.cannot} for name, arm in INTERVENTIONS.items()]
        return pd.DataFrame(rows)

    # The worked loops

    def worked(self, records: Sequence[Record]) -> pd.DataFrame:
        """A row a loop: the verdict, the shares with their intervals, what was advised."""
        rows = []
        for record in records:
            if record.op is not None:
                continue
            row = {"loop": record.loop, "batch size": record.trained.batch_size}
            if record.status != "ok":
                rows.append({**row, "verdict": f"{record.status}: {record.reason}"})
                continue
            said = _said(record)
            shares = {s["limit"]: tables.with_interval(s["median"], s["low"], s["high"], 2) for s in said["shares"]}
            advised = said["advice"]
            gain = f"{advised['change']}: × {tables.number(advised['gain'])}" if advised else tables.NOT_MEASURED
            sure = "" if said["certain"] else " (not certain)"
            rows.append({**row, "verdict": said["verdict"] + sure, **shares, "one change": gain})
        return pd.DataFrame(rows)

    def sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """The verdicts in a sentence, to remember."""
        told = [
            f"`{r.loop}` at {r.trained.batch_size:,} is **{_said(r)['verdict']}**"
            for r in records
            if r.op is None and r.status == "ok"
        ]
        return pages.Markdown(
            f"On this host {'; '.join(told)}." if told else "No loop could be diagnosed on this host."
        )

    # The price list

    def prices(self, records: Sequence[Record]) -> pd.DataFrame:
        """A row a pitfall: microseconds a step with and without it, and what it multiplies the time by."""
        rows = []
        for record in records:
            if record.op not in PITFALLS:
                continue
            row = {"pitfall": PITFALLS[record.op].does, "step of": record.loop}
            if record.status != "ok":
                rows.append({**row, "times": f"{record.status}: {record.reason}"})
                continue
            without, with_it = (_interval_us(record, clock) for clock in (PLAIN, PITFALL))
            rows.append(
                {
                    **row,
                    "without, us": tables.interval(without),
                    "with, us": tables.interval(with_it),
                    "times": tables.interval(factor(record)),
                    "n": without.n,
                }
            )
        return pd.DataFrame(rows)

    def prices_figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """What each pitfall multiplies a step's time by, on a logarithmic axis."""
        found = {r.op: factor(r).median for r in records if r.op in PITFALLS and r.status == "ok"}
        if not found:
            return pages.missing("a step with and without a pitfall", records)
        alt = "Times the step without it: " + ", ".join(f"{name} {tables.number(x)}" for name, x in found.items())
        values = {"with the pitfall": list(found.values())}
        return figures.dots([str(name) for name in found], values, "times the step without it", alt)


def _said(record: Record) -> dict[str, Any]:
    """The document of a diagnosis; of a record that is one."""
    assert record.diagnosis is not None
    return record.diagnosis


def _price(asked: Diagnosis, name: str, rounds: int, about: dict[str, Any]) -> Record:
    """Pairs of the step without and with a pitfall."""

    def sample(which: str, steps: int) -> float:
        asked.ask("tell", 60.0, function="choose", arguments=[name if which == PITFALL else PLAIN])
        return asked.ask("sample", 60.0, n=asked.target.batch_size, steps=steps, condition={})["ns"]

    try:
        steps = {clock: max(1, round(SAMPLE_S * 1e9 / sample(clock, 1))) for clock in (PLAIN, PITFALL)}
        ns: dict[str, list[int]] = {clock: [] for clock in steps}
        for _ in range(rounds):
            for clock in asked.random.sample(list(steps), len(steps)):
                ns[clock].append(round(sample(clock, steps[clock])))
    except Failed as failed:
        return Record(status="failed", reason=str(failed), op=name, **about)
    samples = [
        Samples(clock=clock, steps=steps[clock], process=0, round=list(range(rounds)), ns=values)
        for clock, values in ns.items()
    ]
    workload = Workload(batch_size=asked.target.batch_size)
    return Record(status="ok", op=name, workload=workload, timing=Timing(samples=samples), **about)


def _per_step_us(record: Record, clock: str) -> list[float]:
    samples = record.timing.samples if record.timing else []
    return [value / s.steps * 1e6 for s in samples if s.clock == clock for value in s.values_s]


def _interval_us(record: Record, clock: str) -> Interval:
    return stats.median_interval([_per_step_us(record, clock)])


def factor(record: Record) -> Interval:
    """What a pitfall multiplies the time of a step by, from pairs: one sample of each in each round, in one process."""
    return stats.paired_ratio([_per_step_us(record, PITFALL)], [_per_step_us(record, PLAIN)])
