"""JAX traces: a real one made on this host's CPU, and GPU traces as the profiler writes them."""

import gzip
import json
import os
import subprocess
import sys

import pytest

from overhead.profiles import ProfileError, read_events, read_profile
from overhead.profiles.capture import capture
from overhead.profiles.frames import timeline
from overhead.profiles.text import show

TRACED = """
import sys
import jax
import jax.numpy as jnp

@jax.jit
def step(a, b):
    return jnp.maximum(a @ b, 0) @ b.T

a, b = jnp.ones((64, 784)), jnp.ones((784, 128))
step(a, b).block_until_ready()
with jax.profiler.trace(sys.argv[1]):
    with jax.profiler.TraceAnnotation("epoch"):
        for i in range(12):
            with jax.profiler.StepTraceAnnotation("step", step_num=i):
                step(a, b).block_until_ready()
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", TRACED, str(folder)], env=environment, check=True, capture_output=True)
    return folder


def test_a_cpu_trace_has_calls_runs_and_operations_and_no_launches(trace):
    found = read_profile(trace)

    assert (found.source, found.processes, found.devices, found.executions) == ("jax-xplane", 1, 1, 12)
    assert [(row.name, row.count) for row in found.api] == [("PjitFunction(step)", 12)]
    assert found.queue.count + found.queue.early == 12
    (times,) = found.three_times
    assert (times.api, times.kernel, times.device, times.count) == ("PjitFunction(step)", "jit_step", "cpu", 12)
    assert sum(row.count for row in found.ops) % 12 == 0
    assert found.launches is None
    assert found.kernels is None
    assert found.memsets is None
    (busy,) = found.busy
    assert 0 < busy.union_ns <= busy.span_ns
    assert busy.union_ns <= busy.sum_ns == sum(row.total_ns for row in found.ops)


def test_ranges_of_a_trace_hold_their_calls(trace):
    ranges = {part.name: part for part in read_profile(trace).parts if part.by == "range"}

    assert {name: part.count for name, part in ranges.items()} == {"epoch": 1, "step": 12}
    assert ranges["step"].api[0].count == 12
    assert ranges["epoch"].busy[0].union_ns >= ranges["step"].busy[0].union_ns > 0


def test_both_files_of_a_trace_say_the_same(trace):
    (xplane,) = trace.glob("plugins/profile/*/*.xplane.pb")
    (packed,) = trace.glob("plugins/profile/*/*.trace.json.gz")
    a, b = read_profile(xplane).model_dump(), read_profile(packed).model_dump()

    assert a.pop("source") == "jax-xplane"
    assert b.pop("source") == "jax-trace-json"
    assert a == b


def test_a_trace_shows_no_path_and_no_host_name(trace):
    found = read_profile(trace)
    text = json.dumps(found.to_json()) + show(found)

    assert ".py" not in text
    assert "/" not in text.replace("b / a", "")
    assert os.uname().nodename not in text.replace("jit_step", "")


def test_a_timeline_of_three_steps_is_drawn_to_scale(trace):
    events = read_events(trace)
    frame = timeline(events, range_name="step", first=4, count=3)

    assert list(frame["name"]).count("step") == 3
    assert list(frame["name"]).count("PjitFunction(step)") == 3
    assert (frame["start_us"] >= 0).all()
    assert (frame["end_us"] >= frame["start_us"]).all()
    assert frame["end_us"].max() == frame.loc[frame["kind"] == "range", "end_us"].max()
    with pytest.raises(ProfileError, match=r"range must be one of epoch, step.* got 'validate'"):
        timeline(events, range_name="validate")


def test_a_captured_epoch_has_a_run_a_step():
    made = capture("jax-step", "cpu", images=3_200)

    assert made.tool == "jax"
    assert made.summary.executions == 100
    ranges = {part.name: part.count for part in made.summary.parts if part.by == "range"}
    assert ranges == {"epoch": 1, "train": 1, "step": 100}
    assert made.device_name


def test_a_whole_epoch_is_one_run(tmp_path):
    made = capture("jax-epoch", "cpu", images=3_200, out=tmp_path)

    assert made.summary.executions == 1
    assert [file.name for file in tmp_path.iterdir()] == ["profile.xplane.pb"]
    assert read_profile(tmp_path) == made.summary


def gpu_trace(tmp_path, events):
    rows = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "/host:CPU"}},
        {"ph": "M", "pid": 1, "tid": 7, "name": "thread_name", "args": {"name": "Stream #7(Compute)"}},
        {"ph": "M", "pid": 1, "tid": 8, "name": "thread_name", "args": {"name": "XLA Ops"}},
        {"ph": "M", "pid": 2, "tid": 1, "name": "thread_name", "args": {"name": "python"}},
        *({"ph": "X", **event} for event in events),
    ]
    path = tmp_path / "gpu.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": rows}).encode()))
    return path


def test_a_gpu_trace_has_launches_kernels_and_copies(tmp_path):
    def host(name, ts, dur, correlation=None):
        args = {} if correlation is None else {"correlation_id": str(correlation)}
        return {"pid": 2, "tid": 1, "name": name, "ts": ts, "dur": dur, "args": args}

    def device(name, ts, dur, tid=7, **args):
        return {"pid": 1, "tid": tid, "name": name, "ts": ts, "dur": dur, "args": args}

    found = read_profile(
        gpu_trace(
            tmp_path,
            [
                host("PjitFunction(step)", 0, 60),
                host("PjitFunction(step)", 1, 58),  # its nested twin
                host("cuLaunchKernel", 10, 4, 1),
                host("cuGraphLaunch", 20, 5, 2),
                host("cuMemcpyHtoDAsync_v2", 30, 6, 3),
                device("fusion", 18, 3, correlation_id="1", kernel_details="regs:8 grid:4,2,1 block:256,1,1"),
                device("gemm", 30, 10, correlation_id="2"),
                device("MemcpyH2D", 42, 2, correlation_id="3", memcpy_details="kind_src:pageable size:100352 dest:0"),
                device("jit_step", 18, 30, tid=8),  # a derived line, not work of its own
            ],
        )
    )

    assert found.launches.model_dump() == {"kernel": 1, "graph": 1, "total": 2}
    assert {row.name: row.count for row in found.api}["PjitFunction(step)"] == 1
    assert (found.kernels.count, found.kernels.matched) == (2, 2)
    assert {(row.kernel, row.queue_median_ns) for row in found.three_times} == {("fusion", 4_000.0), ("gemm", 5_000.0)}
    (copy,) = found.copies
    assert (copy.kind, copy.count, copy.bytes, copy.total_ns) == ("host-to-device", 1, 100_352, 2_000)
    (busy,) = found.busy
    assert (busy.device, busy.union_ns, busy.span_ns) == (0, 15_000, 26_000)


@pytest.mark.parametrize("name", ["__cudaLaunchKernel_v13000", "someLaunch"])
def test_a_call_of_a_trace_that_started_kernels_is_a_launch_whatever_its_name(tmp_path, name):
    """Field case N6."""
    call = {"pid": 2, "tid": 1, "name": name, "ts": 10, "dur": 4, "args": {"correlation_id": "1"}}
    kernel = {"pid": 1, "tid": 7, "name": "fusion", "ts": 17, "dur": 3, "args": {"correlation_id": "1"}}
    found = read_profile(gpu_trace(tmp_path, [call, kernel]))

    assert found.launches.total == 1
    assert (found.kernels.matched, found.queue.median_ns) == (1, 3000)


@pytest.mark.parametrize("time", ["NaN", "1e300", '"soon"', "true", "null", "-5"])
def test_an_impossible_time_is_refused(tmp_path, time):
    path = tmp_path / "bad.trace.json"
    path.write_text(
        '{"traceEvents": [{"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "/host:CPU"}}, '
        f'{{"ph": "X", "pid": 2, "name": "PjitFunction(f)", "ts": {time}, "dur": 1}}]}}'
    )
    with pytest.raises(ProfileError, match=r"bad\.trace\.json: "):
        read_profile(path)
