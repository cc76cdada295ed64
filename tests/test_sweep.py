"""Many learning rates: what they are, that every engine trains the same models, memory, interruption and commands."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from overhead import sweep
from overhead.cli import cli
from overhead.loops import MANY, make
from overhead.machine import host
from overhead.measure.contestant import Contestant
from overhead.measure.process import WorkerFailed
from overhead.measure.session import PRESETS, Session
from overhead.problem import data, mlp
from overhead.problem.workload import Workload
from overhead.sweep import command, journal, memory, scaling
from overhead.sweep.journal import Journal, JournalBusy
from overhead.sweep.memory import DoesNotFit, allot, chunk_size, model_bytes, process_bytes
from overhead.sweep.plan import Sweep, fold_in, rates_of
from overhead.sweep.train import Trained

GIB = 2**30
JAX = ["sequential", "sequential-step", "vmap-step", "vmap", "stacked"]
ENGINES = [*JAX, "sequential-numpy", "sparse-many"]
RATES = [1e-3, 0.1, 1e10, 1e-2, 0.1]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Journals of a test lie in its own folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


# Rates


@pytest.mark.parametrize(
    "value", [0.1, "0.1", np.float64(0.1), np.float32(0.1), "1e-1", " 0.1 ", [0.1], np.array([0.1], np.float32)]
)
def test_a_rate_is_the_same_however_it_is_written(value: Any) -> None:
    assert rates_of(value) == (0.1,)


def test_integers_and_floats_are_the_same_rate() -> None:
    assert rates_of([1, 1.0, np.int64(1), np.float32(1), "1"]) == (1.0,) * 5


@pytest.mark.parametrize(
    "value", [0, -0.1, float("nan"), "inf", "x", True, None, b"1", [], "", [[0.1]], 1e-60, 1e60, "1:2:1", "0:1:3", {}]
)
def test_what_is_no_rate_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, ValidationError), match=r"must|rates"):
        Sweep(rates=value)


@given(st.integers(2, 60), st.floats(1e-6, 1), st.floats(2, 1e6))
def test_a_range_is_logarithmic_with_both_ends(count: int, low: float, high: float) -> None:
    rates = rates_of(f"{low!r}:{high!r}:{count}")
    assert len(rates) == count
    assert rates[0] == pytest.approx(low)
    assert rates[-1] == pytest.approx(high)
    ratios = np.diff(np.log(rates))
    assert ratios == pytest.approx([ratios.mean()] * len(ratios), rel=1e-4)


def test_a_seed_of_its_own_depends_on_the_rate_alone() -> None:
    few, many = (Sweep(rates=rates, own_weights=True).members() for rates in ([0.1], [1.0, 0.1, 0.01, 0.1]))
    seeds = {member.rate: member.seed for member in many}
    assert few[0].seed == seeds[0.1] == many[3].seed == fold_in(0, 0.1)
    assert len(set(seeds.values())) == 3
    assert {member.seed for member in Sweep(rates=[0.1, 1.0], seed=7).members()} == {7}


@pytest.mark.parametrize("layers", [(3, 10), (784, 11), (784,)])
def test_layers_that_do_not_fit_the_images_are_refused(layers: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError, match="layers"):
        Sweep(layers=(layers,))


# Engines


def trained(engine: str, rates: list[float], workload: Workload, steps: int) -> tuple[Any, np.ndarray, Any]:
    """A loop after `steps` steps at `rates`: the loop, its losses (steps, models), and its state."""
    loop, split = make(engine, "cpu"), data.for_workload(workload)
    if MANY[engine].less_arithmetic and len(workload.layers) != 3:
        pytest.skip(f"{engine} has one hidden layer")
    state = loop.place_many([mlp.init(workload)] * len(rates), rates, split, workload)  # type: ignore[attr-defined]
    state = loop.run(state, steps)
    loop.block(state)
    return loop, loop.losses(state), state  # type: ignore[attr-defined]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_was_compiled_from_shapes_alone_is_what_training_and_judging_call(engine: str) -> None:
    pytest.importorskip("jax", reason="needs JAX")
    workload = Workload(images=96)
    loop, split, params = make(engine, "cpu"), data.for_workload(workload), [mlp.init(workload)] * 3
    loop.prepare(params, workload, len(split.y_val))  # type: ignore[attr-defined]
    before = loop.compilations()
    state = loop.run(loop.place_many(params, RATES[:3], split, workload), 3)  # type: ignore[attr-defined]
    loop.judge(state)  # type: ignore[attr-defined]

    assert loop.compilations() == before
    assert (loop.compile_s > 0) == bool(before)  # type: ignore[attr-defined]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layers", [(784, 128, 10), (784, 10), (784, 24, 16, 10)])
def test_a_member_equals_its_solo_run_whatever_its_company(engine: str, layers: tuple[int, ...]) -> None:
    pytest.importorskip("jax", reason="needs JAX")
    workload = Workload(images=640, layers=layers)  # an epoch of 20 steps
    _, alone, _ = trained("sequential-numpy", [0.1], workload, 30)  # round the epoch
    loop, together, state = trained(engine, RATES, workload, 30)

    assert together.shape == (30, 5)
    assert together[:20, 1] == pytest.approx(alone[:20, 0], rel=1e-5)
    assert together[:, 1] == pytest.approx(together[:, 4], rel=1e-5)  # equal rates, equal curves
    assert not np.isfinite(together[-1, 2]) or together[-1, 2] > 2.4  # 1e10 hurt nobody else
    assert np.isfinite(together[:, [0, 1, 3, 4]]).all()
    models = loop.fetch_many(state)
    held = data.for_workload(workload)
    *_, (_, reference) = islice(mlp.reference_steps(mlp.init(workload), held.x, held.y, workload), 30)
    assert mlp.relative_error(models[1], reference) < 1e-5
    accuracy, finite = loop.judge(state)
    assert accuracy[1] == pytest.approx(mlp.accuracy(models[1], held.x_val, held.y_val), abs=2e-4)
    assert finite[[0, 1, 3, 4]].all()


@pytest.mark.parametrize("engine", ["vmap", "stacked", "sparse-many"])
def test_sweeps_of_any_number_of_rates_agree_on_one(engine: str) -> None:
    pytest.importorskip("jax", reason="needs JAX")
    workload = Workload(images=640)
    alone = trained("sequential", [0.1], workload, 20)[1][:, 0]
    for models in (1, 2, 5, 50):
        rates = [0.1, *np.geomspace(1e-3, 1, models - 1)]
        _, losses, _ = trained(engine, rates, workload, 20)
        assert losses.shape == (20, models)
        assert losses[:, 0] == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("engine", JAX)
def test_compilations_do_not_grow_with_the_number_of_rates(engine: str) -> None:
    pytest.importorskip("jax", reason="needs JAX")
    workload = Workload(images=64)
    found = []
    for rates in ([0.1], [0.1, 1, 0.5, np.float32(0.2)]):
        loop, _, state = trained(engine, list(rates_of(rates)), workload, 2)
        state = loop.run(state, 4)
        loop.judge(state)
        found.append(loop.compilations())
    assert found == [2, 2]  # the step or epoch, and the judging


# Memory, threads and processes


@given(
    st.integers(1, 3000), st.integers(1200, 20_000), st.sampled_from([8, 32, 128, 512]), st.sampled_from(["cpu", "gpu"])
)
def test_chunks_stay_within_the_limit(models: int, limit_mib: int, hidden: int, device: str) -> None:
    workload, limit = Workload(layers=(784, hidden, 10)), limit_mib * 2**20
    try:
        size = chunk_size(workload, models, limit, device)
    except DoesNotFit:
        assert memory.CALLER_BYTES + process_bytes(workload, "jax", 1) > limit
        return
    assert 1 <= size <= models
    assert memory.CALLER_BYTES + process_bytes(workload, "jax", size) <= limit
    assert -(-models // size) * size - models < size  # padding is less than a chunk


def test_what_does_not_fit_is_refused_with_the_figure() -> None:
    workload = Workload()
    needed = memory.CALLER_BYTES + process_bytes(workload, "jax", 1)
    with pytest.raises(DoesNotFit, match=f"at least {memory.mib(needed)}.*got 100 MiB"):
        chunk_size(workload, 5, 100 * 2**20)
    with pytest.raises(DoesNotFit, match="one tensorflow process"):
        allot(workload, 5, "tensorflow", GIB)
    assert model_bytes(Workload(layers=(784, 256, 10))) > 1.9 * model_bytes(workload)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(2, 256), st.sampled_from([None, 1, 5]))
def test_pools_stay_within_cores_and_memory(tasks: int, cores: int, gib: int, asked: int | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "cores_allowed", lambda: cores)
        found = allot(Workload(), tasks, "jax", gib * GIB, asked)
    assert 1 <= found.processes <= min(tasks, asked or tasks)
    assert found.processes * found.threads <= cores
    assert memory.CALLER_BYTES + found.processes * found.process_bytes <= gib * GIB


# The plan and the journal


@given(st.lists(st.sampled_from([0.01, 0.1, 1.0]), min_size=1, max_size=40), st.sets(st.integers(0, 39)))
def test_every_member_is_in_one_task_and_finished_ones_in_none(rates: list[float], finished: set[int]) -> None:
    asked = Sweep(rates=rates, layers=((784, 10), (784, 16, 10)))
    tasks, _ = sweep.plan(asked, "stacked", 4 * GIB)
    left = [part for task in tasks if (part := sweep.without(task, finished))]
    members = asked.members()

    found = {p: member for task in left for p, member in zip(task.positions, task.members, strict=True)}
    assert found == {p: member for p, member in enumerate(members) if p not in finished}
    for layers in asked.layers:  # one size a shape: one program a shape
        assert len({len(t.members) + t.padding for t in left if t.workload.layers == layers}) <= 1
        assert all(member.layers == t.workload.layers for t in left for member in t.members)


def test_a_journal_gives_back_whole_lines_and_forgets_a_torn_one(cache: Path) -> None:
    book = Journal({"a": 1})
    book.keep(Trained((0,), [{"rate": 0.1}], {"train_s": 1.0}))
    with pytest.raises(JournalBusy):
        Journal({"a": 1})
    book.close(complete=False)
    with book.path.open("a") as file:
        file.write('[[1], [{"rate"')  # killed while writing

    again = Journal({"a": 1})
    assert again.done == [Trained((0,), [{"rate": 0.1}], {"train_s": 1.0})]
    again.keep(Trained((1,), [{"rate": 1.0}], {}))
    again.close(complete=False)
    for key, positions in (({"a": 1}, [(0,), (1,)]), ({"a": 2}, [])):
        read = Journal(key)
        assert [trained.positions for trained in read.done] == positions
        read.close(complete=False)
    assert journal.folder() == cache / "overhead" / "sweeps"


# Whole sweeps


def rows(outcome: sweep.Outcome) -> list[tuple[Any, ...]]:
    return [(r["rate"], r["status"], r["diverged_at"], r["loss"], r["val_accuracy"]) for r in outcome.rows]


SMALL: dict[str, Any] = {"images": 640, "epochs": 2, "layers": (784, 16, 10)}


@pytest.mark.slow
def test_diverged_members_are_marked_and_change_no_other() -> None:
    pytest.importorskip("jax", reason="needs JAX")
    fine, hot = [1e-3, 1e-2, 1e-1], [1e4, 1e10]
    together = sweep.run(Sweep(rates=[*fine, *hot, 1e-7], **SMALL))
    apart = sweep.run(Sweep(rates=fine, **SMALL))

    assert [row["status"] for row in together.rows] == ["ok"] * 3 + ["diverged"] * 2 + ["ok"]
    assert together.rows[5]["loss"][1] > math.log(10)  # too low a rate learns nothing, and has not diverged
    for ours, alone in zip(together.rows, apart.rows, strict=False):
        assert ours["loss"] == pytest.approx(alone["loss"], rel=2e-3)
        assert ours["val_accuracy"] == pytest.approx(alone["val_accuracy"], abs=2e-3)
    for row in together.rows[3:5]:
        assert 0 <= row["diverged_at"] < 40
        assert row["loss"] == row["val_accuracy"] == [None, None]
    report = sweep.report(together)
    assert report["best_rate"] in fine
    json.dumps(report, allow_nan=False)
    assert report["compilations"] == 2
    assert 0 < report["train_s"] < report["wall_s"]


@pytest.mark.slow
def test_an_interrupted_sweep_goes_on_and_ends_as_an_uninterrupted_one(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax", reason="needs JAX")
    asked = Sweep(rates=[0.01, 0.02, 0.03, 0.05, 0.1], **SMALL)
    two = 2 * 4 * asked.workload(asked.layers[0]).parameters
    monkeypatch.setitem(memory.AT_ONCE_BYTES, "cpu", two)  # three chunks
    whole = sweep.run(asked, keep=False)

    def interrupt(progress: sweep.Progress) -> None:
        if progress.done >= 6:  # in the second chunk
            raise KeyboardInterrupt

    def interrupt_at_last(outcome: sweep.Outcome) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep.run(asked, say=interrupt)
    with pytest.raises(KeyboardInterrupt):  # all trained, nothing told yet
        sweep.run(asked, tell=interrupt_at_last)
    again = sweep.run(asked)

    assert again.resumed == 5
    assert rows(again) == rows(whole)
    assert not list(cache.rglob("*.jsonl"))  # complete: asked for again, it is measured anew


@pytest.mark.slow
def test_a_killed_command_goes_on(cache: Path) -> None:
    pytest.importorskip("jax", reason="needs JAX")
    command = [sys.executable, "-m", "overhead", "sweep", "--engine", "jax-pool", "--processes", "1", "--json"]
    command += ["--images", "320", "--layers", "784,8,10", "--rates", "0.01,0.1,1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as killed:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and not any(p.stat().st_size for p in cache.rglob("*.jsonl")):
            time.sleep(0.05)
        killed.send_signal(signal.SIGKILL)

    again = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    fresh = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert again["resumed"] >= 1
    assert fresh["resumed"] == 0
    assert again["rows"] == fresh["rows"]


OF_A_CLUSTER = """
import os, signal, time, psutil
from overhead.sweep import cluster
with cluster.client(None, 1) as client:
    client.wait_for_workers(1, timeout=60)
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listens = [c.laddr for p in processes for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    print(*[p.pid for p in processes[1:]])
    print(*[address.ip for address in listens], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere its processes end after two minutes")
def test_a_local_cluster_ends_with_its_caller_and_opens_no_page(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="needs Dask")
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", OF_A_CLUSTER], capture_output=True, text=True, env=env, timeout=200)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids, addresses = (line.split() for line in done.stdout.splitlines())
    assert set(addresses) == {"127.0.0.1"}
    assert len(addresses) == 3  # scheduler, keeper and worker, each for Dask's own protocol and no more
    assert len(pids) >= 3
    until = time.monotonic() + 10
    while time.monotonic() < until and any(psutil.pid_exists(int(pid)) for pid in pids):
        time.sleep(0.1)
    assert not [pid for pid in pids if psutil.pid_exists(int(pid)) and psutil.Process(int(pid)).status() != "zombie"]


@pytest.mark.slow
def test_the_scheduler_of_a_cluster_of_ours_takes_code_from_us_alone() -> None:
    pytest.importorskip("distributed", reason="needs Dask")
    pytest.importorskip("cryptography", reason="needs cryptography")
    from distributed import Client, Security

    from overhead.sweep import cluster

    before = dict(os.environ)
    with cluster.client(None, 1) as client:
        address = client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        with pytest.raises(OSError, match="closed"):
            Client(address.replace("tls", "tcp"), timeout="5s")
        with pytest.raises(OSError, match="certificate"):  # a key, but not this run's
            Client(address, timeout="5s", security=Security.temporary())
    kept = {name: value for name, value in os.environ.items() if name != "OVERHEAD_CLUSTER_OF"}
    assert kept == {name: value for name, value in before.items() if name != "OVERHEAD_CLUSTER_OF"}, "no key stays"


@pytest.mark.slow
def test_dask_gives_the_same_and_a_killed_worker_costs_no_configuration() -> None:
    pytest.importorskip("jax", reason="needs JAX")
    pytest.importorskip("distributed", reason="needs Dask")
    from overhead.sweep import cluster, pool

    asked = Sweep(rates=[0.01, 0.03, 0.1], **(SMALL | {"epochs": 1}))
    tasks, _ = sweep.plan(asked, "dask", 64 * GIB)
    tasks = [task._replace(threads=1) for task in tasks]
    expected = {t.positions: t.rows for t in pool.trained(tasks, 2, lambda epochs: None)}
    found, killed = [], False
    with cluster.client(None, 2) as client:
        for done in cluster.trained(client, tasks):
            found.append(done)
            if not killed:  # the worker that is busy now
                busy = [address for address, keys in client.processing().items() if keys]
                pids = client.run(os.getpid)
                killed = bool(busy)
                if busy:
                    os.kill(pids[busy[0]], signal.SIGKILL)

    assert killed
    assert sorted(t.positions for t in found) == [(0,), (1,), (2,)]
    assert {t.positions: t.rows for t in found} == expected


SCRIPT = """
import os
import jax, jax.numpy as jnp
jnp.ones(1)  # threads are running: a fork would be warned of
from overhead import sweep
found = sweep.run(sweep.Sweep(rates=[0.01, 0.1], images=320, layers=(784, 8, 10), engine="{engine}"))
print(len(found.rows), [row["status"] for row in found.rows])
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["auto", "jax-pool", "dask"])
def test_a_script_without_a_main_guard_neither_forks_nor_starts_itself(engine: str, tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="needs JAX")
    if engine == "dask":
        pytest.importorskip("distributed", reason="needs Dask")
    (tmp_path / "script.py").write_text(SCRIPT.format(engine=engine))
    done = subprocess.run(
        [sys.executable, "-W", "always", str(tmp_path / "script.py")], capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2 ['ok', 'ok']"]  # once: nothing started the script again
    assert "fork" not in done.stderr


# Against the number of models


class StandInWorker:
    """A process whose loop fails at five models, or that is gone by then."""

    def __init__(self, contestant: Contestant, gone: bool) -> None:
        self.contestant, self.gone, self.broken, self.asked = contestant, gone, False, []

    def ask(self, do: str, count: int) -> None:
        if self.gone and count >= 5:
            self.broken = True
            raise WorkerFailed("failed", "the worker was ended by SIGKILL")
        self.asked.append(count)

    def pause(self) -> None: ...

    close = kill = pause


@pytest.mark.parametrize("gone", [False, True])
def test_a_worker_that_failed_at_five_models_is_not_timed_with_one_as_sixteen(monkeypatch, gone: bool) -> None:
    """Issue 13: the process in its place trained one model, and the record said 16 and ok."""
    contestant = Contestant("stacked").resolved()
    worker = StandInWorker(contestant, gone)
    timed = []

    def go_round(workers, workload, cases, *_):
        case = cases[contestant, workload]
        if case.status == "ok":  # as in `rounds.go_round`, which replaces a broken worker only then
            assert not worker.broken
            timed.append(worker.asked[-1])
            if worker.asked[-1] == 5:
                worker.broken = True
                case.fail("failed", "out of memory")

    monkeypatch.setattr(scaling, "start", lambda *_: ([(worker, 0)], []))
    monkeypatch.setattr(scaling, "go_round", go_round)
    session = Session(PRESETS["quick"]._replace(processes=1), {"host": "h", "notebook": "n"}, force=True)
    found = scaling.time_models([contestant], Workload(images=320), [1, 5, 16], session)

    assert [(r.models, r.status) for r in found] == [(1, "ok"), (5, "failed"), (16, "failed")]
    assert "fewer than 16 models" in found[2].reason
    assert timed == ([1] if gone else [1, 5])


# The command


def test_no_images_are_refused_and_not_taken_for_all() -> None:
    """Field case P5: --images 0 trained on 48,000."""
    done = CliRunner().invoke(cli, ["sweep", "--images", "0"])
    assert done.exit_code == 2
    assert "images" in done.output
    assert "got 0" in done.output


@pytest.mark.parametrize(("statuses", "code"), [(["failed", "failed"], 1), (["failed", "ok"], 0), (["diverged"], 0)])
def test_a_sweep_that_trained_nothing_exits_with_1(monkeypatch, statuses: list[str], code: int) -> None:
    """Field case P2."""
    monkeypatch.setattr(command, "run", lambda *_, **__: {"rows": [{"status": status} for status in statuses]})
    assert CliRunner().invoke(cli, ["sweep", "--json"]).exit_code == code


def test_the_command_refuses_in_one_line(tmp_path: Path) -> None:
    def said(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["sweep", *options])
        return done.exit_code, done.output

    assert said("--rates", "0.1,x") == (2, said("--rates", "0.1,x")[1])
    assert "rates must be finite numbers above 0, got 'x'" in said("--rates", "0.1,x")[1]
    code, text = said("--memory-limit", "300MB")
    assert code == 1
    assert "memory limit must be at least" in text
    assert "got 287 MiB" in text
    assert said("--memory-limit", "much")[0] == 2
    assert said("--layers", "784,a")[0] == 2
    assert said("--scheduler", "tcp://127.0.0.1:1")[0] == 2  # without --engine dask


def test_a_scheduler_that_does_not_answer_is_an_error_soon() -> None:
    pytest.importorskip("distributed", reason="needs Dask")
    from overhead.sweep import cluster

    done = CliRunner().invoke(cli, ["sweep", "--engine", "dask", "--scheduler", "tcp://127.0.0.1:1"])
    assert done.exit_code == 1
    assert "no Dask scheduler answered at tcp://127.0.0.1:1" in done.output
    assert cluster.CONNECT_LIMIT_S < 10


@pytest.mark.slow
def test_a_scheduler_without_workers_or_without_a_gpu_is_an_error_too() -> None:
    distributed = pytest.importorskip("distributed", reason="needs Dask")
    from overhead.sweep import cluster

    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as empty:
        address = empty.scheduler_address
        with pytest.raises(cluster.SchedulerUnreachable, match="must have a worker, got 0"), cluster.client(address, 1):
            pass
        empty.scale(1)
        with pytest.raises(cluster.SchedulerUnreachable, match="resource GPU"), cluster.client(address, 1, "gpu"):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere psutil tells when a process began")
def test_a_command_began_when_its_process_did() -> None:
    """To the tick of the kernel's clock, not to the whole second in which it booted."""
    before = time.time()
    said = subprocess.run(
        [sys.executable, "-c", "from overhead.sweep.command import command_began; print(command_began())"],
        capture_output=True, check=True, text=True,
    )  # fmt: skip

    assert before - 0.1 <= float(said.stdout) <= time.time()
