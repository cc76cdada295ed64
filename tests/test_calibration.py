"""Probes in this process, the calibration made of them, and how it is kept."""

from __future__ import annotations

import json
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from overhead.cli import cli
from overhead.machine import timer as timers
from overhead.measure import calibration, probes, probing
from overhead.measure.calibration import NoCalibration
from overhead.measure.contestant import Contestant
from overhead.measure.probes import Probe
from overhead.measure.probing import Ask
from overhead.measure.process import WorkerFailed
from overhead.measure.session import PRESETS, Session
from overhead.problem.workload import Workload
from overhead.records.record import Record, Samples, Timing


def probe_record(loop: str, device: str, kind: str, name: str, us: float, *, threads: int = 2, flops: int = 0,
                 bytes_: int = 0, wait_us: float = 0.0, env: dict[str, str] | None = None) -> Record:  # fmt: skip
    """Three rounds of two blocks of ten calls of `us` each, `wait_us` more when each is waited for."""
    wobble = np.array([1.0, 1.01, 0.99])
    samples = [
        Samples(clock=clock, steps=10, process=0, round=[i, i], seconds=[10e-6 * (us + extra) * w] * 2)
        for clock, extra in (("each", wait_us), ("end", 0.0))
        for i, w in enumerate(wobble)
    ]
    extra_fields = {"probe": {"kind": kind, "does": f"{name} of {loop}", "flops": flops, "bytes": bytes_}}
    return Record(
        host="made-up", notebook="calibration", status="ok", loop=loop, device=device, op=name, threads=threads,
        env=env or {}, versions={"numpy": "2"}, timing=Timing(samples=samples), workload={"batch_size": 32},
        **extra_fields,
    )  # fmt: skip


def calibrated(device: str = "cpu", loop: str = "numpy", threads: int = 2, speed: float = 1.0) -> list[Record]:
    """What one process of a calibration leaves: 100 GFLOP/s and 20 GB/s times `speed`, a floor of 1 us."""
    return [
        probe_record(loop, device, "rate", "sgemm-large", 2e4 / speed, threads=threads, flops=2_000_000_000),
        probe_record(loop, device, "rate", "copy", 5e3 / speed, threads=threads, bytes_=100_000_000),
        probe_record(loop, device, "product", "z1", 128 / speed, threads=threads, flops=6_422_528, bytes_=518_144),
        probe_record(loop, device, "fixed", "smallest-op", 1.0, threads=threads, wait_us=2.0),
    ]


def test_a_ceiling_is_the_fastest_block_with_as_many_threads_or_fewer():
    found = calibration.ceilings(calibrated(threads=2, speed=0.5) + calibrated(threads=1))

    by_threads = {row["threads"]: row for row in found}
    assert by_threads[1]["flops_per_s"] == pytest.approx(100e9 / 0.99, rel=0.02)
    assert by_threads[2]["flops_per_s"] == by_threads[1]["flops_per_s"]  # one thread was faster, and two may do it too
    assert by_threads[2]["bandwidth_bytes_per_s"] == pytest.approx(20e9 / 0.99, rel=0.02)


def test_no_probe_of_the_calibration_beats_its_ceiling():
    records = calibrated() + calibrated("gpu", "cupy", speed=50)
    for row in calibration.ceilings(records):
        for record in records:
            if record.device == row["device"] and probing.facts(record)["flops"]:
                rate = probing.facts(record)["flops"] / probing.interval_us(record).median * 1e6
                assert rate <= row["flops_per_s"]


def test_devices_are_not_mixed():
    found = calibration.ceilings(calibrated() + calibrated("gpu", "cupy", speed=50))

    assert calibration.ceiling(found, "gpu")["flops_per_s"] > 40 * calibration.ceiling(found, "cpu")["flops_per_s"]
    with pytest.raises(NoCalibration, match=r"measured \(cpu\), got 'gpu'"):
        calibration.ceiling(calibration.ceilings(calibrated()), "gpu")


def test_a_forced_kernel_is_no_part_of_the_calibration():
    forced = probe_record("numpy", "cpu", "rate", "sgemm-large", 1, env={"OPENBLAS_CORETYPE": "Prescott"})

    assert not calibration.is_part(forced)
    assert not calibration.is_part(probe_record("numpy", "cpu", "micro", "product", 1))


def test_a_calibration_is_kept_and_read_for_bounds(tmp_path):
    calibration.write(tmp_path / "here" / calibration.FILE, calibrated())

    found = calibration.of_host(tmp_path, "here")
    assert found["flops_per_s"] == pytest.approx(100e9, rel=0.05)
    assert found["name"] == "here, cpu, 2 threads"
    content = json.loads((tmp_path / "here" / calibration.FILE).read_text())
    assert {"schema", "host", "ceilings", "floors", "records"} <= set(content)
    assert content["floors"][0]["each_us"]["median"] == pytest.approx(3.0)
    with pytest.raises(NoCalibration, match=r"calibration \(here\), got 'elsewhere'"):
        calibration.of_host(tmp_path, "elsewhere")


def test_bounds_takes_a_hosts_ceilings(tmp_path):
    calibration.write(tmp_path / "here" / calibration.FILE, calibrated())
    run = CliRunner().invoke(cli, ["bounds", "--host", "here", "--results", str(tmp_path), "--json"])

    found = json.loads(run.output)
    assert found["peak"] == {
        "device": "here, cpu, 2 threads", "source": "measured",
        "flops_per_s": pytest.approx(100e9, rel=0.05), "bandwidth_bytes_per_s": pytest.approx(20e9, rel=0.05),
    }  # fmt: skip
    assert found["step_flops"] == 13_090_816
    assert found["step_bound_us"] == pytest.approx(13_090_816 / found["peak"]["flops_per_s"] * 1e6)
    wrong = CliRunner().invoke(cli, ["bounds", "--host", "here", "--peak-tflops", "1", "--results", str(tmp_path)])
    assert wrong.exit_code == 2
    lost = CliRunner().invoke(cli, ["bounds", "--host", "here", "--device", "gpu", "--results", str(tmp_path)])
    assert lost.exit_code == 2
    assert "device must be one whose ceilings were measured (cpu), got 'gpu'" in lost.output


def test_one_run_measures_once(tmp_path, monkeypatch):
    """The second chapter of a run takes what the first one measured; another run measures again."""
    asked = []

    def measure(asks, workload, bench):
        asked.append([ask.contestant.loop for ask in asks])
        return calibrated()

    monkeypatch.setattr(probing, "measure", measure)
    monkeypatch.setenv(calibration.RUN, "this run")
    first = calibration.for_chapter("here", ["cpu"], None, tmp_path)  # type: ignore[arg-type]
    second = calibration.for_chapter("here", ["cpu"], None, tmp_path)  # type: ignore[arg-type]
    assert [r.as_json() for r in second] == [r.as_json() for r in first]
    assert len(asked) == 1

    also = [Ask(Contestant("numpy"), ("micro",))]
    calibration.for_chapter("here", ["cpu"], None, tmp_path, also)  # type: ignore[arg-type]
    assert asked[1] == ["numpy"]

    monkeypatch.setenv(calibration.RUN, "the next run")
    calibration.for_chapter("here", ["cpu"], None, tmp_path)  # type: ignore[arg-type]
    assert len(asked) == 3


def test_a_kept_calibration_of_another_machine_is_measured_again(tmp_path, monkeypatch):
    monkeypatch.setattr(probing, "measure", lambda *_: calibrated())
    monkeypatch.setenv(calibration.RUN, "this run")
    calibration.for_chapter("here", ["cpu"], None, tmp_path)  # type: ignore[arg-type]
    path = tmp_path / "here" / calibration.FILE
    content = json.loads(path.read_text())
    content["host"]["cpu_model"] = "another"
    content["records"] = []
    path.write_text(json.dumps(content))

    assert len(calibration.for_chapter("here", ["cpu"], None, tmp_path)) == len(calibrated())  # type: ignore[arg-type]


def test_what_is_asked_of_one_contestant_needs_one_process():
    asks = [*calibration.asks(["cpu"]), Ask(Contestant("jax-step"), ("micro",)), Ask(Contestant("jax-step"), ("rate",))]

    merged = probing.merged(asks)
    jax = [ask for ask in merged if ask.contestant.loop == "jax-step"]
    assert len(jax) == 1
    assert jax[0].kinds == ("fixed", "rate", "product", "micro")


@pytest.mark.parametrize("kind", ["fixed", "product", "micro", "piece"])
def test_numpy_probes_do_what_their_numbers_say(kind):
    workload = Workload(images=64)
    found = probes.make("numpy", "cpu", kind, workload)
    assert found
    for probe in found:
        timed = probes.time_probe(probe, block_s=1e-4, samples=2)
        assert len(timed["each_ns"]) == len(timed["end_ns"]) == 2
        assert min(timed["each_ns"] + timed["end_ns"]) > 0
    if kind == "product":
        assert sum(probe.flops for probe in found) == 13_090_816


def test_waiting_after_each_call_costs_the_waits():
    """A probe whose wait takes time shows it once a call under "each", once a block under "end"."""

    def spend(ns: int) -> None:
        end = timers.clock() + ns
        while timers.clock() < end:
            pass

    probe = Probe("made-up", "fixed", "…", lambda: spend(20_000), lambda: spend(100_000))
    timed = probes.time_probe(probe, block_s=2e-3, samples=3)
    calls = timed["calls"]
    assert min(timed["each_ns"]) >= calls * 120_000
    assert min(timed["end_ns"]) >= calls * 20_000 + 100_000
    assert min(timed["end_ns"]) < min(timed["each_ns"])


def test_a_pause_before_each_call_is_not_counted():
    """What is paced is timed call by call, its waits included and its pauses left out."""

    def spend(ns: int) -> None:
        end = timers.clock() + ns
        while timers.clock() < end:
            pass

    paused: list[int] = []
    last = [timers.clock()]

    def call() -> None:
        paused.append(timers.clock() - last[0])
        spend(20_000)

    def wait() -> None:
        spend(10_000)
        last[0] = timers.clock()

    start = timers.clock()
    timed = probes.time_probe(Probe("made-up", "fixed", "…", call, wait), 1e-3, 1, 10, ("paced",), 50_000)
    elapsed = timers.clock() - start
    assert min(paused[1:]) >= 50_000
    assert 10 * 30_000 <= timed["paced_ns"][0] <= elapsed - 10 * 50_000


def test_a_worker_that_does_not_start_leaves_the_others_their_own_answers(monkeypatch, tmp_path):
    """Of three, the second declines; what the third answers is the third's."""

    class Asked:
        def __init__(self, who: Contestant, limit_s: float) -> None:
            self.loop, self.facts = who.loop, {}

        def ask(self, do: str, *_: object, **__: object) -> dict:
            if self.loop == "jax-step":
                raise WorkerFailed("declined", "not installed")
            if do == "hello":
                return {"pools": [], "versions": {self.loop: "1"}}
            timed = {"calls": 1, "each_ns": [1000], "end_ns": [1000]}
            return {"probes": [{"name": "copy", "kind": "rate", "does": self.loop, "flops": 0, "bytes": 1, **timed}]}

        def cpu_seconds(self) -> float:
            return 0.0

        def pause(self) -> None: ...

        close = pause

    monkeypatch.setattr(probing, "Process", Asked)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asks = [Ask(Contestant(loop, "cpu", 1), ("rate",)) for loop in ("numpy", "jax-step", "keras-fit")]
    bench = Session(PRESETS["quick"], {"host": "here", "notebook": "none"})
    found = probing.measure(asks, Workload(), bench)

    timed = [r for r in found if r.status == "ok"]
    assert [r.status for r in found].count("declined") == 1
    answers = {r.loop: (list(r.versions), probing.facts(r)["does"]) for r in timed}
    assert answers == {"numpy": (["numpy"], "numpy"), "tf": (["keras-fit"], "keras-fit")}


def test_the_bandwidth_of_a_gpu_is_of_arrays_that_no_cache_holds(monkeypatch):
    from overhead.measure.probes import cupy_

    held: list[int] = []
    pretended = SimpleNamespace(
        asarray=lambda a: a,
        empty=lambda *_: None,
        ones=lambda count, dtype: held.append(count * np.dtype(dtype).itemsize),
        ElementwiseKernel=lambda *_: None,
        cuda=SimpleNamespace(get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None)),
    )
    monkeypatch.setattr(cupy_, "usable_cupy", lambda: pretended)
    monkeypatch.setattr(cupy_, "uniform", lambda *shape: None)

    streams = {probe.name: probe for probe in cupy_.rates("gpu", Workload()) if probe.name != "sgemm-large"}

    assert held == [2**30] * 3
    assert {name: probe.bytes for name, probe in streams.items()} == {"copy": 2 * 2**30, "triad": 3 * 2**30}
    assert all("1 GiB" in probe.does for probe in streams.values())


def test_every_step_of_the_xla_floor_reads_the_one_before():
    import jax

    from overhead.loops.jax_ import matrix_products

    weights = [np.ones((784, 128), np.float32), np.ones((128, 10), np.float32)]
    whole = jax.make_jaxpr(matrix_products)(weights, np.ones((3, 32, 784), np.float32), None)
    (inner,) = [eqn.params["jaxpr"] for eqn in whole.eqns if "jaxpr" in eqn.params]
    (scan,) = [eqn for eqn in inner.eqns if eqn.primitive.name == "scan"]
    body, constants = scan.params["jaxpr"].jaxpr, scan.params["num_consts"]
    carried = body.invars[constants : constants + scan.params["num_carry"]]
    used = {id(variable) for eqn in body.eqns for variable in eqn.invars}
    assert len(carried) == 2
    assert all(id(variable) in used for variable in carried)  # else an unrolled scan may drop what nobody reads
