"""Chapter 7: many learning rates at once: the curves, what each way of getting them costs, and which to use here."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from overhead import sweep
from overhead.chapters import pages
from overhead.chapters.base import Chapter, a_list, whole
from overhead.chapters.learning_rates import commands, curves, figures, models
from overhead.chapters.provenance import checkout
from overhead.loops import MANY
from overhead.machine.alone import measuring
from overhead.measure.contestant import Contestant, floors
from overhead.measure.session import Preset, Session
from overhead.problem.workload import TRAINING_IMAGES, LearningRate, Workload
from overhead.records.record import Record
from overhead.showing.figures import Figure
from overhead.sweep import Outcome, Sweep, passing
from overhead.sweep.plan import rates_of
from overhead.sweep.scaling import time_models

ENGINES = ("sequential-numpy", "sequential-step", "sequential", "vmap-step", "vmap", "stacked")
SHAPES = ((784, 10), (784, 32, 10), (784, 128, 10), (784, 128, 64, 10))
COUNTS = {"quick": (1, 5, 16), "workshop": (1, 2, 5, 16, 32), "full": (1, 2, 5, 8, 16, 32, 64, 128)}
MOST_TIMED = 128
NOT_IN_QUICK = "not measured in the quick preset: its processes take longer to start than the rest of the page"


def _rates(value: Any) -> list[float]:
    return list(rates_of(a_list(value, "[0.01, 0.1]")))


def _counts(value: Any) -> list[int]:
    return [whole(count) for count in a_list(value, "[1, 5]")] if value != [] else []


SHAPES_RATE = 0.1  # one rate, since the shapes are what differs


class LearningRates(Chapter, frozen=True, strict=True, extra="forbid"):
    """Curves of every rate, and seconds a model for every engine and number of models."""

    name: ClassVar[str] = "07-learning-rate-sweep"
    presets: ClassVar[Mapping[str, Preset]] = {
        "quick": Preset("quick", 0.10, 2.0, 1, (5, 8)),
        "workshop": Preset("workshop", 0.05, 8.0, 2, (6, 20)),
        "full": Preset("full", 0.03, 15.0, 5, (6, 20)),
    }

    learning_rates: Annotated[list[LearningRate], BeforeValidator(_rates)] = [0.001, 0.01, 0.1, 1.0, 10.0]
    epochs: Annotated[int, BeforeValidator(whole), Field(ge=1, le=100)] = 3
    batch_size: Annotated[int, BeforeValidator(whole), Field(ge=1, le=TRAINING_IMAGES)] = 32
    models: Annotated[list[Annotated[int, Field(ge=1, le=1024)]], BeforeValidator(_counts)] = []  # []: the preset's
    timed_images: Annotated[int, BeforeValidator(whole), Field(ge=1, le=TRAINING_IMAGES)] = 2400

    def counts(self) -> list[int]:
        """Numbers of models to time; that of the rates is one of them."""
        return sorted({*(self.models or COUNTS[self.preset]), min(len(self.learning_rates), MOST_TIMED)})

    def sweep(self, **changes: Any) -> Sweep:
        """The sweep of the page; its device is the GPU where there is one."""
        return Sweep(
            rates=tuple(self.learning_rates), epochs=self.epochs, batch_size=self.batch_size,
            device="gpu" if "gpu" in self.usable_devices() else "cpu", **changes,
        )  # fmt: skip

    def take(self, session: Session) -> list[Record]:
        """Curves, seconds from start to last result, what passing images costs, times against the number of models."""
        with measuring(session.force):
            found = session.once("same weights", lambda: self._same_weights(session))
            found += session.once(
                "own weights", lambda: self._curves(sweep.run(self.sweep(own_weights=True), keep=False), session)
            )
            session.say("curves drawn")
            found += self._whole_commands(session)
            found += session.once("passing", lambda: self._passing(session))
        found += self._timed(session)
        return found

    def _same_weights(self, session: Session) -> list[Record]:
        """The curves of the sweep, and what it cost from start to last result."""
        outcome = sweep.run(self.sweep(), keep=False)
        return [*self._curves(outcome, session), self._cost(outcome, session, "command")]

    def _timed(self, session: Session) -> list[Record]:
        """Interleaved rounds of every engine, a solo run, and the floors, at each number of models."""
        devices = self.usable_devices()
        engines = [Contestant(n, device) for n in ENGINES for device in devices if device in MANY[n].devices]
        solo = [Contestant("jax-epoch", device) for device in devices]
        workload = Workload(batch_size=self.batch_size, images=max(self.timed_images, self.batch_size))
        found = time_models([*engines, *solo, *floors(devices)], workload, self.counts(), session)
        return [record.model_copy(update={"part": "models"}) for record in found]

    def _record(self, session: Session, part: str, loop: str, **fields: Any) -> Record:
        return Record(**{"status": "ok", "device": "cpu", **session.provenance, "part": part, "loop": loop, **fields})

    def _curves(self, outcome: Outcome, session: Session, part: str = "curves") -> list[Record]:
        """A record a model."""
        cost = outcome.costs[0]
        found = []
        for row in outcome.rows:
            workload = outcome.sweep.workload(row["layers"]).model_copy(update={"learning_rate": row["rate"]})
            member = {name: row[name] for name in ("rate", "seed", "loss", "val_accuracy", "diverged_at")}
            found.append(
                self._record(
                    session, part, outcome.engine, status=row["status"], reason=row["reason"],
                    member={**member, "own_weights": outcome.sweep.own_weights},
                    device=cost.get("device", "cpu"), device_name=cost.get("device_name"), threads=cost.get("threads"),
                    workload=workload,
                    val_accuracy=[share for share in row["val_accuracy"] if share is not None] or None,
                    data=cost.get("data"), settings=cost.get("settings", {}), versions=cost.get("versions", {}),
                )
            )  # fmt: skip
        return found

    def _whole_commands(self, session: Session) -> list[Record]:
        """The same sweep from start to last result: in pools, on Dask; and shapes through the pool."""
        found = []
        pools = ["jax-pool"] if self.preset == "quick" else ["jax-pool", "dask", "keras-pool"]
        for engine in pools:
            found += session.once(engine, partial(self._pool, engine, session))
            session.say(f"{engine}: its processes ended")
        shapes = Sweep(rates=(SHAPES_RATE,), layers=SHAPES, epochs=1, batch_size=self.batch_size, engine="jax-pool")
        found += session.once("shapes", lambda: self._curves(sweep.run(shapes, keep=False), session, "shapes"))
        if self.preset == "quick":
            for engine in ("dask", "keras-pool", "article-pool"):
                found.append(self._record(session, "command", engine, status="declined", reason=NOT_IN_QUICK))
        else:
            found += session.once("article-pool", lambda: [self._article(session)])
        return found

    def _pool(self, engine: str, session: Session) -> list[Record]:
        asked = self.sweep(engine=engine).model_copy(update={"device": "cpu"})
        return [self._cost(sweep.run(asked, keep=False), session, "command")]

    def _cost(self, outcome: Outcome, session: Session, part: str) -> Record:
        report = {name: value for name, value in sweep.report(outcome).items() if name != "rows"}
        report["models"] = len(outcome.rows)
        report["process_bytes"] = outcome.allotment.process_bytes if outcome.allotment else None
        bad = [row for row in outcome.rows if row["status"] not in ("ok", "diverged")]
        cost = outcome.costs[0]
        return self._record(
            session, part, outcome.engine, cost=report, device=cost.get("device", "cpu"), threads=cost.get("threads"),
            versions=cost.get("versions", {}), peak_rss_bytes=outcome.peak_rss_bytes,
            **({"status": "failed", "reason": bad[0]["reason"]} if bad else {}),
        )  # fmt: skip

    def _article(self, session: Session) -> Record:
        """The article's own form, which is a script with a main guard."""
        root = checkout()
        if root is None:
            return self._record(
                session,
                "command",
                "article-pool",
                status="declined",
                reason="scripts/ was not found; run in a checkout",
            )
        rates = ",".join(f"{rate:g}" for rate in self.learning_rates)
        command = [sys.executable, str(root / "scripts" / "article_pool.py"), "--rates", rates]
        command += ["--epochs", str(self.epochs), "--batch-size", str(self.batch_size)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=3600)
        if done.returncode:
            return self._record(
                session, "command", "article-pool", status="failed", reason=f"exit status {done.returncode}"
            )
        report = json.loads(done.stdout.splitlines()[-1])
        cost = {
            "wall_s": report["wall_s"],
            "processes": report["processes"],
            "models": len(report["rows"]),
            "import_s": sum(row["import_s"] for row in report["rows"]),
            "passed_bytes": report["passed_bytes"],
        }
        return self._record(session, "command", "article-pool", cost=cost)

    def _passing(self, session: Session) -> list[Record]:
        return [
            self._record(session, "passing", way["how"], status="failed", reason=way["failed"])
            if "failed" in way
            else self._record(session, "passing", way["how"], cost=way)
            for way in passing.measure()
        ]

    def curves_figure(self, records: Sequence[Record]) -> Figure | pages.Markdown:
        """Loss against epoch, and accuracy against rate."""
        part = of_part(records, "curves")
        if not any(r.status in ("ok", "diverged") for r in part):
            return pages.missing("the curves", part)
        return figures.curves(part)

    def curves_table(self, records: Sequence[Record]) -> pages.Html:
        """Every rate with the same first parameters and with its own, side by side."""
        return pages.Html(curves.table(of_part(records, "curves")))

    def curves_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """Which rate learnt most, which diverged, and what own first parameters change."""
        return pages.Markdown(curves.sentence(of_part(records, "curves")))

    def models_figure(self, records: Sequence[Record]) -> Figure | pages.Markdown:
        """Microseconds a model and step against the number of models."""
        part = of_part(records, "models")
        if not any(r.status == "ok" for r in part):
            return pages.missing("several models together", part)
        return figures.models(models.frame(part))

    def models_table(self, records: Sequence[Record]) -> pages.Html:
        """The numbers of the figure, with the first call."""
        part = of_part(records, "models")
        return pages.Html(models.table(models.frame(part), pages.caption(part, self.settings)))

    def rates_table(self, records: Sequence[Record]) -> pages.Html:
        """As many models as there are rates: seconds, times the floor, and against solo runs of `jax-epoch`."""
        rates = min(len(self.learning_rates), MOST_TIMED)
        part = [r for r in of_part(records, "models") if models.compared(r) == rates]
        return pages.Html(models.rates_table(part, pages.caption(part, self.settings)))

    def advice(self, records: Sequence[Record]) -> pages.Markdown:
        """Which engine this host should use up to which number of models, and when `vmap` loses."""
        return pages.Markdown(models.advice(of_part(records, "models")))

    def command_table(self, records: Sequence[Record]) -> pages.Html:
        """From start to last result: where the seconds go, processes, threads and memory."""
        return pages.Html(commands.table(of_part(records, "command"), self.epochs))

    def passing_table(self, records: Sequence[Record]) -> pages.Html:
        """What it costs to get the images into a worker."""
        return pages.Html(commands.passing_table(of_part(records, "passing")))

    def shapes_table(self, records: Sequence[Record]) -> pages.Html:
        """Architectures of different shapes through the pool."""
        return pages.Html(curves.shapes_table(of_part(records, "shapes")))

    def code(self) -> pages.Markdown:
        """The step of one model, `vmap` of it in the epoch, and the stacked step, as their file has them."""
        return pages.Markdown(
            "```python\n" + source("jax_many", ("step", "stacked_step", "jitted_many_epoch")) + "\n```"
        )

    def article_code(self) -> pages.Markdown:
        """The article's form of the pool, as the script has it."""
        root = checkout()
        if root is None:
            return pages.Markdown("`scripts/article_pool.py` comes with a checkout of the book.")
        return pages.Markdown(
            "```python\n" + (root / "scripts" / "article_pool.py").read_text(encoding="utf-8").rstrip() + "\n```"
        )


def of_part(records: Sequence[Record], part: str) -> list[Record]:
    """The records of one part of the page."""
    return [record for record in records if record.part == part]


def source(module: str, names: Sequence[str]) -> str:
    """Functions of a file in `loops/` as it has them, without importing its framework."""
    spec = find_spec(f"overhead.loops.{module}")
    assert spec is not None
    assert spec.origin is not None
    lines = Path(spec.origin).read_text(encoding="utf-8").splitlines()
    found = {}
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return "\n\n\n".join(found[name] for name in names)
