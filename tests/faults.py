"""A campaign of kills: `make faults`, or `python tests/faults.py --kills 200 --minutes 28 --lanes 3`.

Tiny runs, sweeps, benches and books are ended at random instants by SIGKILL, SIGTERM, SIGINT or SIGHUP, themselves or
one of the processes that they started. After each: are results and journals whole, is every finished step still there,
does any process live on? After the next one that ends by itself: is anything left of those that did not? Lanes go on
side by side, each in folders of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

TESTS = Path(__file__).resolve().parent
CHAPTER, SWEEP = "01-per-op-breakdown", "05-batch-sweep"
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MARK = "OVERHEAD_CAMPAIGN"  # in the environment of every process that the campaign starts
TINY = "import faults; faults.tiny()"
GRACE_S = 20.0  # a kernel looks once a second whether its parent lives, and may wait for a core
LONGEST_S = 240.0
# Files. A signal that comes before the command has its handlers, or when it has done its work and Python is about to
# end, ends it as it ends any process.
READY, DONE = "ready-", "done-"
CHILDREN = 0.3  # share of the kills that go to a process which the command started


class Kind(NamedTuple):
    """A command that is killed, and what must be whole after it."""

    name: str
    arguments: tuple[str, ...]
    latest_s: float  # the latest instant of a kill; some end before it


KINDS = (
    Kind("run", ("run", CHAPTER, "-p", "steps", "50"), 30.0),
    Kind("sweep", ("sweep", "--rates", "0.01,0.1,0.5", "--images", "6400", "--engine", "jax-pool"), 16.0),
    Kind("bench", ("bench", "--loops", "numpy", "--batch-sizes", "32", "--images", "640", "--json"), 10.0),
    Kind("book", ("book",), 25.0),
)


def tiny() -> None:
    """The command, with a chapter of seconds: without TensorFlow, and some steps more for the journal."""
    from overhead.chapters.per_op.chapter import PerOp
    from overhead.cli import main
    from overhead.measure import probing
    from overhead.measure.contestant import Contestant
    from overhead.measure.rounds import time_cases, time_ops
    from overhead.measure.session import PRESETS, Session
    from overhead.problem.workload import Workload
    from overhead.records.record import Record

    def take(chapter: PerOp, session: Session) -> list[Record]:
        brief = session._replace(learns=False)
        for size in (16, 64):
            time_cases([Contestant("numpy")], [Workload(batch_size=size, images=640)], brief)
        probing.measure([probing.Ask(Contestant("numpy"), ("fixed",))], Workload(images=640), session)
        shown = [Contestant("numpy"), Contestant("jax-op-by-op")]
        cases = time_cases(shown, [Workload(images=3200)], brief, partial(time_ops, steps=50))
        return [record for case in cases for record in case.op_records(session.provenance)]

    PerOp.take = take
    PRESETS["quick"] = PRESETS["quick"]._replace(target=0.0, budget_s=0.2, processes=1, rounds=(2, 2))
    heeded()
    (Path(os.environ["TMPDIR"]) / f"{READY}{os.getpid()}").touch()
    try:
        main()
    finally:
        (Path(os.environ["TMPDIR"]) / f"{DONE}{os.getpid()}").touch()


def heeded() -> None:
    """Heed what whoever started us may ignore, as `nohup` does and a shell for what runs in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Campaign:
    """Folders of its own, commands in them, and what was found."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self.folder, self.random, self.say = folder, random.Random(seed), say
        self.takes: dict[str, float] = {}  # seconds that a command lasted of late when nobody ended it
        self.results, self.tmp, self.cache = folder / "results", folder / "tmp", folder / "cache"
        for made in (self.tmp, self.cache, self.results):
            made.mkdir()
        self.mark = f"{os.getpid()}-{folder.name}"
        path = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
        self.env = {
            **os.environ, "TMPDIR": str(self.tmp), "XDG_CACHE_HOME": str(self.cache), MARK: self.mark,
            "OVERHEAD_LOCK": str(folder / "lock"), "OVERHEAD_RESULTS": str(self.results), "PYTHONPATH": path,
        }  # fmt: skip
        self.found: Counter[str] = Counter()

    def start(self, kind: Kind) -> subprocess.Popen[str]:
        where = ["--results", str(self.folder / "shown"), "--out", str(self.folder / "out")]
        return subprocess.Popen(
            [sys.executable, "-c", TINY, *kind.arguments, *(where * (kind.name == "book"))],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env, cwd=self.folder,
            start_new_session=True,
        )  # fmt: skip

    def living(self) -> list[psutil.Process]:
        """Processes of the campaign but this one."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return [process for process in found if process.pid != os.getpid()]

    def fault(self, what: str, detail: str) -> None:
        self.found[what] += 1
        self.say(f"  {what}: {detail}")

    def journal(self) -> set[str]:
        """Steps that are finished and kept: of the run, whether journalled, measured or in place; of the sweep."""
        steps = set()
        for path in self.results.glob("*/.*.journal"):
            steps |= {f"run {json.loads(line)['step']}" for line in _whole_lines(path)[1:]}
        for path in self.cache.rglob("sweeps/*.jsonl"):
            steps |= {f"sweep {json.loads(line)[0]}" for line in _whole_lines(path)}
        return steps

    def kill_one(self, kind: Kind) -> None:
        """Start a command, end it or one of its processes at a random instant, and look at what is left."""
        kept, began = self.journal(), time.monotonic()
        finished = self._pairs()
        process = self.start(kind)
        longest = min(kind.latest_s, self.takes.get(kind.name, kind.latest_s))
        at = self.random.uniform(0.2, longest)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=at)
        number, ended_itself = self.random.choice(SIGNALS), process.poll() is not None
        victim = "nobody"
        if not ended_itself:
            others = [child for child in self.living() if child.pid != process.pid]
            child = self.random.choice(others) if others and self.random.random() < CHILDREN else None
            victim = "a process of its own" if child else "the command"
            try:
                (child or psutil.Process(process.pid)).send_signal(number)
            except psutil.Error:
                victim = "nobody"
            self.found["kills"] += victim != "nobody"
            if child:  # the command goes on, and must end by itself
                self.found[CHILD] += 1
        try:
            told, said = process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            self.fault("hung", f"{kind.name} after {number.name} to {victim}")
            process.kill()
            told, said = process.communicate()
        what = f"{kind.name}, {number.name} to {victim} at {at:.1f} s"
        self.takes[kind.name] = time.monotonic() - began if victim == "nobody" else 1.15 * longest
        ready, done = ((self.tmp / f"{mark}{process.pid}").exists() for mark in (READY, DONE))
        self._judge_status(what, victim, number, process.returncode, said, ready, done)
        self._judge_orphans(what)
        self._judge_files(what)
        completed = process.returncode == 0
        if lost := kept - self.journal():
            if not (completed or told.strip() or self._measured() or self._pairs() != finished):
                self.fault("lost", f"{what}: {sorted(lost)}")
        if completed:
            self.found[f"{kind.name} ended by itself"] += 1
            self._judge_leftovers(what, kind)
        self.say(f"{self.found['kills']:4d} {what}: status {process.returncode}, {time.monotonic() - began:.0f} s")

    def complete(self, kinds: tuple[Kind, ...]) -> None:
        """Let each command end by itself once; then nothing may be left, and the run must be whole."""
        from overhead.book.execute import pair_fault

        for kind in kinds:
            with self.start(kind) as process:
                _, said = process.communicate(timeout=LONGEST_S)
            if process.returncode:
                self.fault("no rerun", f"{kind.name}: {said[-300:]}")
            self._judge_leftovers("at the end", kind)
        ran = any(kind.name == "run" for kind in kinds)
        if ran and (why := pair_fault(self.results / "local", CHAPTER)):
            self.fault("damaged", f"at the end: {why}")
        if left := [str(p.relative_to(self.results)) for p in self.results.rglob(".*")]:
            self.fault("left behind", f"at the end: {left}")

    def _pairs(self) -> list[int]:
        return [path.stat().st_mtime_ns for path in sorted(self.results.glob("*/*.jsonl"))]

    def _measured(self) -> bool:
        return any(self.results.glob("*/.*.measured/run.json"))

    def _judge_status(
        self, what: str, victim: str, number: int, status: int, said: str, ready: bool, done: bool
    ) -> None:
        if "Traceback" in said and ready:
            self.fault("traceback", f"{what}: {said.splitlines()[-1][:200]}")
        if victim != "the command" or status == 0:
            return
        plain = number == signal.SIGKILL or not ready
        right = {-number} if plain else {128 + number} | ({-number} if done else set())
        if status not in right:
            self.fault("status", f"{what}: {status}, {said[-300:]}")

    def _judge_orphans(self, what: str) -> None:
        until = time.monotonic() + GRACE_S
        while (left := self.living()) and time.monotonic() < until:
            time.sleep(0.1)
        for process in left:
            try:
                self.fault("orphan", f"{what}: {' '.join(process.cmdline())[:200]}")
                process.kill()
            except psutil.Error:
                continue

    def _judge_files(self, what: str) -> None:
        """Every file under its final name reads, and the shown results are what they were."""
        from overhead.book.execute import pair_fault
        from overhead.records import record

        for path in self.results.glob("*/*.jsonl"):
            try:
                record.read(path)
            except Exception as error:
                self.fault("damaged", f"{what}: {path.name}: {error}")
        for path in (*self.results.glob("*/*.json"), *self.results.glob("*/*.ipynb")):
            try:
                json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                self.fault("damaged", f"{what}: {path.name}: {error}")
        folder = self.results / "local"
        if (folder / f"{CHAPTER}.ipynb").exists() and (why := pair_fault(folder, CHAPTER)) and not self._measured():
            self.fault("damaged", f"{what}: {why}")
        if _contents(self.folder / "shown") != self.shown:
            self.fault("damaged", f"{what}: the results that the book shows")

    def _judge_leftovers(self, what: str, kind: Kind) -> None:
        """What no living process owns, after a command that ended by itself."""
        left = (
            [path.name for path in self.tmp.iterdir() if path.name.startswith("overhead-")]
            if kind.name != "book"
            else []
        )
        left += [path.name for path in self.results.glob("*/.overhead-*")] if kind.name == "run" else []
        left += [name for name in ("old", "build") if kind.name == "book" and (self.folder / "out" / name).exists()]
        if left:
            self.fault("left behind", f"{what}: {left}")

    def show(self, results: Path) -> None:
        """Results for the book, which no other command writes."""
        shutil.copytree(results, self.folder / "shown")
        self.shown = _contents(self.folder / "shown")


def _whole_lines(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


CHILD = "kills of a process that a command started"
FAULTS = ("damaged", "lost", "orphan", "left behind", "hung", "status", "traceback", "no rerun")


def campaign(
    wanted: int, seconds: float, seed: int, *, lanes: int = 3, kinds: tuple[Kind, ...] = KINDS, whole: bool = True
) -> Counter[str]:
    """So many kills, or as many as the seconds allow; the faults by what they are, and how many kills.

    With `whole`, each command is let end by itself in the end, whatever came before.
    """
    import sample_book

    began, found, shown = time.monotonic(), Counter[str](), sample_book.results()
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:

        def go(lane: int) -> None:
            (Path(folder) / f"{lane}").mkdir()
            run = Campaign(Path(folder) / f"{lane}", seed + lane, lambda line: print(f"{lane} {line}", flush=True))
            run.show(shown)
            while found["kills"] < wanted and time.monotonic() - began < seconds:
                before = run.found.copy()
                run.kill_one(run.random.choice(kinds))
                found.update(run.found - before)
            if whole:
                before = run.found.copy()
                run.complete(kinds)
                found.update(run.found - before)

        with ThreadPoolExecutor(lanes) as pool:
            list(pool.map(go, range(lanes)))
    faults = ", ".join(f"{found[what]} {what}" for what in FAULTS)
    kills = f"{found['kills']} kills ({found[CHILD]} of a worker, a kernel or a builder)"
    print(f"{kills}, seed {seed}, {lanes} lanes, {time.monotonic() - began:.0f} s: {faults}", flush=True)
    return found


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--kills", type=int, default=200)
    options.add_argument("--minutes", type=float, default=28, help="no kill begins later")
    options.add_argument("--lanes", type=int, default=3, help="campaigns side by side")
    options.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    given = options.parse_args()
    heeded()
    print(
        f"{given.kills} kills in at most {given.minutes:g} minutes, {given.lanes} lanes, seed {given.seed}", flush=True
    )
    told = campaign(given.kills, 60 * given.minutes, given.seed, lanes=given.lanes)
    sys.exit(1 if any(told[what] for what in FAULTS) or told["kills"] < given.kills else 0)
