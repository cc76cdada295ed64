"""Captures with a stand-in for nsys, the NVML sampler with one for the driver, and what the chapter draws."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest
from click.testing import CliRunner

from overhead.machine import gpus, host
from overhead.measure.contestant import Contestant, environment
from overhead.profiles import ProfileError, example, frames, read_events, read_profile
from overhead.profiles.capture import capture, choose
from overhead.profiles.command import profile
from overhead.profiles.nvml import NvmlSampler, medians, three_shares

SCRIPT = Path(__file__).parents[1] / "scripts" / "mnist_keras_nvtx.py"
WORKS = """
import shutil, sys
out = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("--output="))
if sys.argv[1] == "profile":
    open(out + ".nsys-rep", "w").write("raw")
    print('{"device": "gpu", "device_name": "stand-in", "ranges": "nvtx"}')
else:
    shutil.copyfile(EXAMPLE, out)
"""
STUBS = {
    "fails": ("import sys; print('cannot open /opt/secret', file=sys.stderr); sys.exit(3)", "status 3: cannot open"),
    "says nothing": ("import sys; sys.exit(1)", "nsys profile failed with exit status 1: it said nothing"),
    "writes nothing": ("pass", "nsys profile ended without an error but wrote no profile.nsys-rep"),
    "exports nothing": (
        WORKS.replace("shutil.copyfile(EXAMPLE, out)", "pass"),
        "nsys export ended without an error but wrote no profile.sqlite",
    ),
    "leaves an old export": (
        WORKS + "\n    import os; os.utime(out, (1, 1))",
        "nsys export left an old profile.sqlite in place of a new one",
    ),
    "exports another thing": (WORKS.replace("shutil.copyfile(EXAMPLE, out)", "open(out, 'w').write('x')"), "no report"),
}  # fmt: skip


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Puts a program called nsys first on the PATH."""

    def put(code):
        folder = tmp_path / "bin"
        folder.mkdir()
        program = folder / "nsys"
        program.write_text(f"#!{sys.executable}\nEXAMPLE = {str(example())!r}\n{code}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return put


@pytest.mark.parametrize("name", STUBS)
def test_an_nsys_that_misbehaves_is_named_and_no_old_figure_appears(stub, tmp_path, name):
    code, says = STUBS[name]
    stub(code)
    kept = tmp_path / "kept"
    kept.mkdir()
    shutil.copyfile(example(), kept / "profile.sqlite")  # an earlier capture
    (kept / "old_cuda_api_sum.csv").write_text("stale")
    arguments = ["--capture", "--loop", "keras-fit", "--device", "gpu", "--json", "--out", str(kept)]
    result = CliRunner().invoke(profile, arguments)

    assert result.exit_code == 1
    assert says in result.stderr
    assert "secret" not in result.stderr
    assert result.stdout == ""
    assert {file.name for file in kept.iterdir()} == {"profile.sqlite", "old_cuda_api_sum.csv"}


def test_an_nsys_that_works_is_read_and_kept(stub, tmp_path):
    stub(WORKS)
    made = capture("keras-fit", "gpu", out=tmp_path / "kept")

    assert (made.tool, made.device_name, made.saved) == ("nsys", "stand-in", "profile.sqlite")
    assert made.summary == read_profile(example())
    assert [file.name for file in (tmp_path / "kept").iterdir()] == ["profile.sqlite"]
    assert any("do not publish" in note for note in made.notes)


def test_an_nsys_that_hangs_is_stopped_with_what_it_started(stub, tmp_path):
    stub(
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    with pytest.raises(ProfileError, match="took longer than 2 s"):
        capture("keras-fit", "gpu", timeout_s=2)

    child = psutil.Process(int((tmp_path / "child").read_text())) if (tmp_path / "child").exists() else None
    assert child is None or child.status() == psutil.STATUS_ZOMBIE or not child.is_running()


TELLS = """
import json, os, sys
out = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("--output="))
with open(TOLD, "w") as file:
    json.dump([sys.argv, dict(os.environ)], file)
sys.exit("enough")
"""


@pytest.mark.parametrize("loop", ["jax-step", "keras-fit", "keras-jax-fit", "cupy"])
def test_a_profiled_run_has_the_environment_of_a_timed_one(stub, tmp_path, monkeypatch, loop):
    """Field of issue 13: JAX was profiled in TF32 with default threads while timed runs use `highest`."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    stub(f"TOLD = {str(tmp_path / 'told')!r}\n{TELLS}")
    with pytest.raises(ProfileError, match="enough"):
        capture(loop, "gpu")
    arguments, told = json.loads((tmp_path / "told").read_text())

    assert {**told, **environment(Contestant(loop, "gpu").resolved())} == told
    assert told["JAX_DEFAULT_MATMUL_PRECISION"] == "highest"
    assert told["CUDA_VISIBLE_DEVICES"] == "2"
    assert told["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert told["OMP_NUM_THREADS"] == str(host.cores_allowed())
    assert "--cuda-graph-trace=node" in arguments


def test_without_nsys_jax_loops_use_jax_and_others_say_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    tool, notes = choose("jax-step", "gpu")
    assert tool == "jax"
    assert "nsys is not on the PATH" in notes[0]
    with pytest.raises(ProfileError, match=r"nsys is not on the PATH.*jax-step.*got keras-fit"):
        choose("keras-fit", "gpu")
    with pytest.raises(ProfileError, match=r"on the CPU only JAX loops.*got numpy"):
        choose("numpy", "cpu")
    with pytest.raises(ProfileError, match="numpy runs on cpu only, got gpu"):
        choose("numpy", "gpu")
    with pytest.raises(ProfileError, match="loop must be one of"):
        choose("pytorch", "cpu")


class StandIn(ModuleType):
    """A driver with one device whose readings are known."""

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    class NVMLError(Exception):
        pass

    def __init__(self):
        super().__init__("pynvml")
        self.open = 0

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetHandleByIndex(self, index):
        if index > 2:
            raise self.NVMLError("Invalid Argument")
        self.index = index
        return "handle"

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=97, memory=3)

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetTemperature(self, handle, kind):
        return 41

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return 0x04

    def nvmlDeviceGetPowerUsage(self, handle):
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(used=1 << 30)


def test_the_sampler_reads_the_driver_while_a_loop_runs(monkeypatch):
    driver = StandIn()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    with NvmlSampler(interval_s=0.005) as sampler:
        time.sleep(0.05)

    found = medians(sampler.samples)
    assert found == {
        "utilisation": 0.97, "memory_used_mib": 1024, "sm_clock_mhz": 1980, "temperature_c": 41, "power_w": None,
    }  # fmt: skip
    times = [sample.time_s for sample in sampler.samples]
    assert times == sorted(times)
    assert driver.open == 0
    assert {sample.state.held_back for sample in sampler.samples} == {("the power cap",)}
    shares = {name: share for name, share, _ in three_shares(sampler.samples, 0.3, 2e12, 1e14)}
    assert list(shares.values()) == [0.97, 0.3, 0.02]
    assert three_shares([], None, None, None)[2][1] is None


@pytest.mark.parametrize(("visible", "index"), [(None, 0), ("2,0", 2), ("1", 1), ("GPU-b", 1)])
def test_the_sampler_watches_the_gpu_that_a_worker_is_given(monkeypatch, visible, index):
    """Not the first of the machine, whatever CUDA_VISIBLE_DEVICES says."""
    driver = StandIn()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(gpus, "_run", lambda *_: "GPU 0: X (UUID: GPU-a1)\nGPU 1: X (UUID: GPU-b2)\n")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with NvmlSampler():
        pass
    assert driver.index == index


def test_the_sampler_watches_no_gpu_that_is_hidden(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", StandIn())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(ProfileError, match="CUDA_VISIBLE_DEVICES allows no GPU"), NvmlSampler():
        pass


def test_the_sampler_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ProfileError, match="nvidia-ml-py"), NvmlSampler():
        pass
    monkeypatch.setitem(sys.modules, "pynvml", StandIn())
    with pytest.raises(ProfileError, match="no NVIDIA GPU 3"), NvmlSampler(3):
        pass
    with pytest.raises(ProfileError, match=r"interval_s must be at least 0\.005 s, got 0"):
        NvmlSampler(interval_s=0)


def test_the_example_launches_grids_smaller_than_the_device():
    frame = frames.grid_sizes(read_events(example()), 132)

    assert frame["kernels"].sum() == 3442
    assert frame.loc[frame["fewer_than_sms"], "kernels"].sum() == 1920
    assert (frame["blocks"].diff().dropna() > 0).all()


def test_the_three_times_of_the_example_are_three_different_things():
    frame = frames.three_times(read_profile(example()))

    assert frame["count"].sum() == 1632
    assert frame["queued"].sum() == 1629
    assert (frame["queue_us"] > frame["api_us"]).mean() > 0.9  # this run is far ahead of its device
    totals = frames.totals(read_profile(example())).set_index("time")["share_of_wall"]
    assert totals["queue times, sum"] > 100  # a sum that is no share of the wall time
    assert totals["device 0 busy, union"] <= 1


def test_a_timeline_of_the_example_is_clipped_to_its_window():
    frame = frames.timeline(read_events(example()), start_ns=700_000_000, length_ns=500_000, process=111)

    assert {lane.split()[0] for lane in frame["lane"]} == {"host", "device"}
    assert frame["start_us"].min() >= 0
    assert frame["end_us"].max() <= 500
    assert not frame["lane"].str.contains("112").any()
    with pytest.raises(ProfileError, match="at most 5000 intervals"):
        frames.timeline(read_events(example()), start_ns=0, length_ns=10**10)


def test_the_ranges_of_keras_nest_and_count(monkeypatch):
    """The callback in a process of its own: Keras has one backend a process."""
    code = """
import sys
from contextlib import contextmanager
import numpy as np
import keras
from overhead.profiles.nvtx import keras_ranges
seen, depth = [], []
@contextmanager
def mark(name):
    depth.append(name); seen.append(">".join(depth))
    yield
    assert depth.pop() == name
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, activation="softmax")])
model.compile("sgd", "sparse_categorical_crossentropy")
x, y = np.ones((96, 4), np.float32), np.zeros(96, np.int32)
model.fit(x, y, batch_size=16, validation_data=(x[:48], y[:48]), epochs=2, verbose=0, callbacks=[keras_ranges(mark)])
model.fit(x, y, batch_size=16, verbose=0, callbacks=[keras_ranges(mark)])
assert not depth
print({name: seen.count(name) for name in dict.fromkeys(seen)})
"""
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip("Keras or TensorFlow is not installed")

    assert done.stdout.strip() == str(
        {"epoch": 3, "epoch>train": 3, "epoch>train>step": 18, "epoch>validate": 2, "epoch>validate>step": 6}
    ), done.stderr


def test_the_script_of_the_book_runs_without_nvtx():
    code = "import sys; sys.modules['nvtx'] = None; sys.argv[1:] = ['--images', '960']; "
    code += f"exec(open({str(SCRIPT)!r}).read())"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip("Keras or TensorFlow is not installed")

    assert done.returncode == 0, done.stderr
    assert "24/24" in done.stdout  # 80 % of 960 images in batches of 32
    assert "NVTX ranges: none" in done.stdout


def test_ranges_are_written_by_whatever_is_there(monkeypatch):
    from overhead.profiles.nvtx import nvtx_marker

    opened = []

    @contextmanager
    def annotate(name):
        opened.append(name)
        yield

    module = ModuleType("nvtx")
    module.annotate = annotate
    monkeypatch.setitem(sys.modules, "nvtx", module)
    mark, writer = nvtx_marker()
    with mark("train"):
        pass
    assert (writer, opened) == ("nvtx", ["train"])

    monkeypatch.setitem(sys.modules, "nvtx", None)
    cuda, pushed = ModuleType("cupy.cuda"), []
    cuda.nvtx = SimpleNamespace(RangePush=pushed.append, RangePop=lambda: pushed.append("pop"))
    monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    mark, writer = nvtx_marker()
    with mark("train"):
        pass
    assert (writer, pushed) == ("cupy", ["train", "pop"])


def test_help_has_an_example_and_json_is_one_document():
    result = CliRunner().invoke(profile, ["--help"])
    assert result.exit_code == 0
    assert "overhead profile before.sqlite after.sqlite" in " ".join(result.stdout.split())
    result = CliRunner().invoke(profile, [str(example()), "--json"])
    json.loads(result.stdout)
