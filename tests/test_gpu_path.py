"""GPU hosts, without a GPU: a pretended device and driver from the worker to the page, and every fault by its cause."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from pathlib import Path
from typing import Any

import nbformat
import pytest

import fake_gpu
from fake_gpu import NAME, contestant, install_driver, tell
from overhead.book import build as book
from overhead.book import fragments
from overhead.chapters.base import ParameterError
from overhead.loops import Declined
from overhead.machine import doctor, gpus, host
from overhead.machine.disturbance import GpuWatch
from overhead.measure import lineup, rounds
from overhead.measure.contestant import TF32, Contestant, environment
from overhead.measure.process import Process, WorkerFailed
from overhead.measure.reasons import explain
from overhead.measure.rounds import run_cases
from overhead.measure.session import Preset, Session
from overhead.problem.workload import Workload
from overhead.records import record as records
from overhead.records.record import Record

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the pretended driver is a script")

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "measure_gpu_host.sh"
TINY = Preset("tiny", 0.5, 10.0, 1, (2, 3))
BENCH = Session(TINY, {"host": "here", "notebook": "none"})
SMALL = [Workload(images=640), Workload(images=640, batch_size=64), Workload(images=640, batch_size=20)]
STEM = fake_gpu.FakeSweep.name


@pytest.fixture(scope="module", autouse=True)
def own_lock(tmp_path_factory: pytest.TempPathFactory):
    """A measurement that runs on this machine does not refuse these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("tmp")))
        yield


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with one pretended GPU; the folder of its driver."""
    monkeypatch.setenv("PATH", str(install_driver(tmp_path / "driver")), prepend=os.pathsep)
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    return tmp_path / "driver"


# From the worker to the page


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Record], Path]:
    """A chapter whose records the script made on the pretended host; its page and the book, made elsewhere."""
    folder = tmp_path_factory.mktemp("gpu-host")
    cells = [
        nbformat.v4.new_markdown_cell("# Batch size"),
        nbformat.v4.new_code_cell(
            'host: str = "local"  # folder\npreset: str = "quick"  # how long\ndevices: list = ["auto"]  # which',
            metadata={"tags": ["parameters"]},
        ),
        nbformat.v4.new_code_cell("import fake_gpu\nchapter = fake_gpu.FakeSweep.from_notebook(globals())"),
        nbformat.v4.new_code_cell("records = chapter.measure()", metadata={"tags": ["remove-output"]}),
        nbformat.v4.new_code_cell("chapter.figure(records)"),
        nbformat.v4.new_code_cell("chapter.table(records)"),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    language = {"name": "python", "pygments_lexer": "ipython3"}
    page = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": language})
    there = folder / "checkout"  # on the machine with the GPU
    shutil.copytree(ROOT / "src", there / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with (there / "src" / "overhead" / "chapters" / "__init__.py").open("a") as table:  # what is measured there
        table.write("\n\ndef chapter_of(name):\n    import fake_gpu\n\n    return fake_gpu.FakeSweep\n")
    for name in ("pyproject.toml", "scripts/measure_gpu_host.sh"):
        (there / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, there / name)
    (there / "notebooks").mkdir()
    nbformat.write(page, there / "notebooks" / f"{STEM}.ipynb")
    asked = ["--minutes", "15", "--device", "gpu", "--host", "gpu-box", "--chapters", STEM[:2], "--records-only"]
    path = f"{install_driver(folder / 'driver')}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHON": sys.executable, "PYTHONPATH": str(Path(__file__).parent)}
    env.pop(gpus.VISIBLE, None)
    done = subprocess.run(
        ["bash", str(there / "scripts" / "measure_gpu_host.sh"), *asked],
        capture_output=True, text=True, env=env, cwd=folder, timeout=590,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    archive = there / "results" / "gpu-box.tar.gz"
    assert done.stdout.split() == [str(archive)]
    results = folder / "results"  # of the checkout where the book is built
    with tarfile.open(archive) as packed:
        assert {member.uid for member in packed} == {0}
        packed.extractall(results, filter="data")
    assert not list(results.rglob("*.ipynb"))
    again = ["-m", "overhead", "run", "--host", "gpu-box", "--from-records", "--results", str(results)]
    path = os.pathsep.join([str(there / "src"), env["PYTHONPATH"]])
    home = subprocess.run(  # where there is neither a GPU nor its driver
        [sys.executable, *again], capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": path}
    )
    assert home.returncode == 0, home.stderr
    found = records.read(results / "gpu-box" / f"{STEM}.jsonl")
    return found, book.build(results, folder / "book").parent


@pytest.mark.slow
def test_rows_of_both_devices_stand_on_the_page_of_a_gpu_host(built):
    found, html = built
    by_case = {(r.loop, r.trained.batch_size): r for r in found}
    ours = by_case["fake_gpu:FakeGpu", 32]
    assert (ours.status, ours.device, ours.device_name) == ("ok", "gpu", NAME)
    assert min(ours.epochs()[0]) >= 20 * fake_gpu.STEP_S
    assert by_case["numpy", 32].device == "cpu"

    page = (html / "results" / "gpu-box" / f"{STEM}.html").read_text()
    for text in ("fake_gpu:FakeGpu", "numpy", "<td>gpu</td>", "<td>cpu</td>", "ran on cpu", "out of device memory"):
        assert text in page
    facts = json.loads((html.parent / "source" / "results" / "gpu-box" / "host.json").read_text())
    assert [card["name"] for card in facts["gpus"]] == [NAME]


@pytest.mark.slow
def test_with_a_gpu_host_the_book_says_no_more_that_none_was_measured(built):
    _, html = built
    said = (html / "book" / "intro.html").read_text()
    assert NAME in said
    assert "No GPU host has been measured" not in said
    assert fragments.NO_GPU.startswith("No GPU host has been measured")


# Which device


def test_a_loop_that_fell_back_is_never_a_gpu_row(driver):
    (record,) = run_cases([contestant("FallsBack")], SMALL[:1], BENCH)
    assert (record.status, record.reason, record.epochs()) == ("failed", "ran on cpu", [])


def test_auto_measures_both_devices_and_only_the_cpu_where_the_gpu_is_hidden(driver, monkeypatch):
    chapter = fake_gpu.FakeSweep.checked()
    assert chapter.usable_devices() == ["cpu", "gpu"]
    assert fake_gpu.FakeSweep.checked(devices=["gpu"]).usable_devices() == ["gpu"]
    for nothing in ("", "-1", "-1,0"):
        monkeypatch.setenv(gpus.VISIBLE, nothing)
        assert chapter.usable_devices() == ["cpu"]
        with pytest.raises(ParameterError, match="got gpu: no NVIDIA GPU was found"):
            fake_gpu.FakeSweep.checked(devices=["gpu"]).usable_devices()
        (warned,) = doctor.gpu_warnings({})
        assert warned.what == f"CUDA_VISIBLE_DEVICES={nothing} hides every GPU"


@pytest.mark.parametrize(
    ("visible", "indices"),
    [(None, [0, 1, 2]), ("1", [1]), ("2,0", [2, 0]), ("1,-1,0", [1]), ("7", []),
     (fake_gpu.UUID.format(index=2), [2]), ("GPU-00000001", [1]), ("GPU-0000000", []), ("MIG-x", [])],
)  # fmt: skip
def test_of_several_gpus_those_that_are_visible_count_and_the_first_is_used(driver, monkeypatch, visible, indices):
    tell(driver, {"name": "A"}, {"name": "B"}, {"name": "C"}, pids={"1": [11, 12]})
    if visible is not None:
        monkeypatch.setenv(gpus.VISIBLE, visible)
    assert [card["index"] for card in host.gpus()] == indices
    assert [card["name"] for card in host.gpus()] == ["ABC"[index] for index in indices]
    if indices:  # the processes of another card disturb nobody
        assert host.gpu_processes() == (2 if indices[0] == 1 else 0)
    env = environment(Contestant("jax-step", "gpu", 1))
    assert env[gpus.VISIBLE] == (visible or "0").split(",")[0]
    if len(indices) > 1:
        what = f"{len(indices)} GPUs, of which GPU {indices[0]} ({'ABC'[indices[0]]}) is used"
        assert what in [w.what for w in doctor.gpu_warnings({})]


def test_a_worker_sees_one_gpu_and_the_record_says_which_and_names_no_card(driver, monkeypatch):
    tell(driver, {}, {"name": "Second"})
    uuid = fake_gpu.UUID.format(index=1)
    monkeypatch.setenv(gpus.VISIBLE, f"{uuid},0")
    (record,) = run_cases([contestant("ShowsEnvironment")], SMALL[:1], BENCH)
    assert record.settings == {
        "CUDA_VISIBLE_DEVICES": uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "NVIDIA_TF32_OVERRIDE": "0", "CUPY_TF32": "0",
    }  # fmt: skip
    assert record.env["CUDA_VISIBLE_DEVICES"] == "(a UUID)"
    assert record.host_state["gpu"]["index"] == 1


def test_workers_for_the_cpu_see_no_gpu():
    assert environment(Contestant("keras-fit", "cpu", 1))[gpus.VISIBLE] == "-1"


# Precision


def test_tf32_is_off_unless_a_contestant_asks_for_it(driver, monkeypatch):
    monkeypatch.setenv("CUPY_TF32", "1")  # of the user's own shell
    plain = contestant("Rounded")
    kept = run_cases([plain, plain._replace(env=plain.env + TF32)], SMALL[:1], BENCH)
    without, allowed = kept
    assert without.settings == {"matmul_precision": "float32"}
    assert (without.env["NVIDIA_TF32_OVERRIDE"], without.env["CUPY_TF32"]) == ("0", "0")
    assert without.status == "disagrees"  # three parts in ten thousand are no float32
    assert allowed.settings == {"matmul_precision": "tf32"}
    assert (allowed.env["NVIDIA_TF32_OVERRIDE"], allowed.env["CUPY_TF32"]) == ("1", "1")
    assert allowed.env["JAX_DEFAULT_MATMUL_PRECISION"] == "tensorfloat32"
    assert allowed.status == "ok"
    assert allowed.agreement is not None
    assert 1e-5 < allowed.agreement["error"] < 1e-2 <= allowed.agreement["tolerance"]


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "precision"), [("highest", "float32"), ("tensorfloat32", "tf32"), (None, "tf32")])
def test_jax_says_which_precision_a_gpu_would_compute_in(asked, precision):
    code = "from overhead.loops import jax_; print(jax_.matmul_precision('gpu'), jax_.matmul_precision('cpu'))"
    env = {**os.environ, "JAX_PLATFORMS": "cpu", **({"JAX_DEFAULT_MATMUL_PRECISION": asked} if asked else {})}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == [precision, "float32"], done.stderr


# Memory and faults


def test_out_of_device_memory_is_one_record_and_its_next_workload_has_a_fresh_worker(driver):
    lines: list[str] = []
    kept = run_cases([contestant("NeedsMemory"), contestant("FakeGpu")], SMALL, BENCH._replace(say=lines.append))
    first, second, third = kept[:3]
    assert (first.status, third.status) == ("ok", "ok")
    assert second.status == "failed"
    assert (second.reason or "").startswith("out of device memory: RuntimeError: RESOURCE_EXHAUSTED: Out of memory")
    assert [r.status for r in kept[3:]] == ["ok", "ok", "ok"]
    assert lines.count("fake_gpu:NeedsMemory failed and was started again") == 1


def test_the_pretended_gpu_has_its_own_memory(driver):
    (record,) = run_cases([contestant("FakeGpu", FAKE_GPU_MEMORY="1000")], SMALL[:1], BENCH)
    assert record.status == "failed"
    assert (record.reason or "").startswith("out of device memory: ")


def test_a_gpu_that_disappears_takes_nobody_along(driver):
    kept = run_cases([contestant("Disappears"), contestant("FakeGpu")], SMALL, BENCH)
    assert [r.status for r in kept] == ["ok", "failed", "ok", "ok", "ok", "ok"]
    assert "the worker was ended by SIGABRT" in (kept[1].reason or "")
    assert "GPU is lost" in (kept[1].reason or "")


@pytest.mark.parametrize(
    ("said", "status", "reason"),
    [
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes", "failed",
         "out of device memory: "),
        ("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", "failed", "the GPU was lost or its"),
        ("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version", "declined",
         "the NVIDIA driver is too old for this framework's CUDA (see overhead doctor): "),
        ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the provided PTX was compiled with an unsupported toolchain", "declined",
         "the NVIDIA driver is too old for this framework's CUDA"),
        ("Unable to initialize backend 'cuda': no CUDA-enabled jaxlib", "declined", "the framework sees no GPU"),
        ("anything else", "failed", "RuntimeError: anything else"),
    ],
)  # fmt: skip
def test_what_a_framework_says_becomes_a_reason_in_words(driver, said, status, reason):
    (record,) = run_cases([contestant("Says", SAYS=said)], SMALL[:1], BENCH)
    assert record.status == status
    assert (record.reason or "").startswith(reason)
    assert said.partition(":")[0] in (record.reason or "")


def test_a_fault_on_the_cpu_is_not_told_as_the_gpus():
    assert explain(MemoryError(), "cpu") == ("failed", "out of memory: an allocation was refused")
    status, reason = explain(RuntimeError("RESOURCE_EXHAUSTED: no"), "cpu")
    assert (status, reason.startswith("out of memory: ")) == ("failed", True)
    assert explain(RuntimeError("CUDA_ERROR_NO_DEVICE"), "cpu")[1].startswith("RuntimeError")
    too_old = Declined("CuPy cannot run a kernel here: cudaErrorInsufficientDriver: insufficient")
    assert "driver is too old" in explain(too_old, "gpu")[1]


# Partial hosts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loop", "reason"),
    [
        ("jax-epoch", "the framework sees no GPU (see overhead doctor): RuntimeError: "),
        ("keras-jax-fit", "JAX must see a gpu, got cpu only"),
        ("tf-step", "TensorFlow must see a GPU, got none"),
        ("cupy", "CuPy cannot be imported: "),
    ],
)
def test_a_framework_that_cannot_use_the_gpu_has_a_row_that_says_why(driver, loop, reason):
    if loop == "cupy" and host.frameworks()["cupy"].get("missing") != "not installed":
        pytest.skip("CuPy is installed here")
    kept = run_cases([Contestant(loop, "gpu", 1), contestant("FakeGpu")], SMALL[:1], BENCH)
    assert (kept[0].status, kept[0].device) == ("declined", "gpu")
    assert (kept[0].reason or "").startswith(reason)
    assert kept[1].status == "ok"


@pytest.mark.parametrize(
    ("driver_version", "too_old"),
    [("555.42.02", {"cupy"}), ("580.65.06", set()), ("525.60.13", {"cupy"}), ("470.82", {"jax", "cupy"}), ("", set())],
)
def test_doctor_names_the_frameworks_for_which_the_driver_is_too_old(driver, monkeypatch, driver_version, too_old):
    monkeypatch.setattr(gpus, "cudas", lambda: {"jax": 12, "cupy": 13})
    tell(driver, {"driver_version": driver_version})
    warned = [w for w in doctor.gpu_warnings({}) if "too old" in w.what]
    assert {w.why.partition(" ")[0] for w in warned} == too_old
    for warning in warned:
        assert f"driver {driver_version} is too old for the CUDA 1" in warning.what
        assert "update the driver" in warning.do


def test_doctor_says_how_a_framework_without_cuda_gets_it_and_that_nsys_is_missing(driver, monkeypatch):
    monkeypatch.setattr(gpus, "cudas", dict)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    found = {w.what: w for w in doctor.gpu_warnings({"jax": {"version": "0.6"}, "tensorflow": {"missing": "x"}})}
    assert found["no CUDA packages for jax were found"].do == "pip install 'jax[cuda12]'"
    assert "no CUDA packages for tensorflow were found" not in found
    assert "nsys is missing" in found


def test_the_cuda_of_a_framework_is_read_off_its_packages(monkeypatch):
    there = {"jax-cuda13-plugin", "cupy-cuda12x"}

    def version(package: str) -> str:
        if package not in there:
            raise gpus.importlib.metadata.PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(gpus.importlib.metadata, "version", version)
    assert gpus.cudas() == {"jax": 13, "cupy": 12}


# What disturbs


def test_a_busy_gpu_and_the_processes_of_others_are_noticed_and_disturb_gpu_rows_only(driver):
    tell(driver, {"utilization.gpu": "37"}, pids={"0": [4242]})
    cpu, gpu = run_cases([Contestant("numpy", "cpu", 1), contestant("FakeGpu")], SMALL[:1], BENCH)
    assert {"1 other process on the GPU", "the GPU was busy 37% of the time before we began"} <= set(gpu.disturbed)
    assert not [why for why in cpu.disturbed if "GPU" in why]
    said = [w.what for w in doctor.gpu_warnings({})]
    assert "1 other process on the GPU" in said
    assert "the GPU is busy 37% of the time" in said


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        ("0x0000000000000000", ()),
        ("0x0000000000000001", ()),  # idle
        ("0x0000000000000004", ("the power cap",)),
        ("0x0000000000000020", ("heat (software slowdown)",)),
        ("0x0000000000000048", ("heat (hardware slowdown)",)),
        ("0x0000000000000008", ("a hardware slowdown",)),
        ("0x00000000000000A4", ("the power cap", "heat (software slowdown)", "the power brake")),
        ("[N/A]", ()),
    ],
)
def test_the_drivers_reasons_are_told_in_words(mask, names):
    assert gpus.held_back(mask) == names


@pytest.mark.parametrize("field", gpus.REASONS)
def test_clocks_that_are_held_back_are_noticed_with_drivers_old_and_new(driver, field):
    card = {key: value for key, value in fake_gpu.CARD.items() if "reasons" not in key}
    state = {"cards": [{**card, field: "0x20", "clocks.sm": "900", "temperature.gpu": "91"}], "pids": {}}
    (driver / "driver.json").write_text(json.dumps(state))
    (record,) = run_cases([contestant("FakeGpu")], SMALL[:1], BENCH)
    (why,) = [why for why in record.disturbed if "clocks were held back" in why]
    assert "heat (software slowdown)" in why
    facts = record.host_state["gpu"]
    assert (facts["sm_clock_mhz"], facts["temperature_c"]) == ([900, 900], [91, 91])
    what = "the GPU's clocks are held back by heat (software slowdown)"
    assert what in [w.what for w in doctor.gpu_warnings({})]


@pytest.mark.skipif(sys.platform != "linux", reason="the pretended driver reads /proc")
def test_clocks_are_read_while_the_loop_works_and_not_at_rest(driver):
    state = json.loads((driver / "driver.json").read_text())
    state["at_rest"] = {"clocks.sm": "345", "clocks_event_reasons.active": "0x0000000000000001"}
    state["cards"][0]["clocks_event_reasons.active"] = "0x0000000000000004"
    (driver / "driver.json").write_text(json.dumps(state))

    (record,) = run_cases([contestant("LeavesItsPid", PID_FILE=str(driver / "pid"))], SMALL[:1], BENCH)

    assert (record.host_state or {})["gpu"]["sm_clock_mhz"] == [1980, 1980]
    assert [why for why in record.disturbed if "held back by the power cap" in why]


def test_what_was_placed_is_there_when_its_clock_stops(driver):
    (record,) = run_cases([contestant("PlacesSlowly")], SMALL[:1], BENCH)
    assert (record.placed_s or 0) >= fake_gpu.PlacesSlowly.COPY_S


@pytest.mark.parametrize(
    ("devices", "free_gb", "fit"),
    [
        ("cpu gpu gpu gpu", 4.0, 3),  # the third on the GPU waits
        ("gpu gpu cpu cpu", 4.0, 4),
        ("gpu gpu gpu", 1.0, 0),
        ("gpu gpu gpu", None, 3),
        ("cpu cpu", 0.0, 2),
    ],
)
def test_processes_on_the_gpu_are_counted_against_its_memory(devices, free_gb, fit):
    free = None if free_gb is None else int(free_gb * 10**9)
    assert gpus.fitting(devices.split(), 10**9, free) == fit


def test_workers_wait_for_the_gpus_memory_in_waves(driver):
    tell(driver, {"memory.total": "2600", "memory.used": "100"})  # MiB: two contexts and their images
    lines: list[str] = []
    kept = run_cases([contestant(SAYS=str(i)) for i in range(3)], SMALL[:1], BENCH._replace(say=lines.append))
    assert [record.status for record in kept] == ["ok"] * 3
    assert [line for line in lines if "workers started" in line] == ["2 workers started", "1 workers started"]


def test_a_broken_floor_is_replaced_by_a_thread_that_lasts(monkeypatch, tmp_path):
    class Broken:
        contestant, broken = Contestant("floor-numpy", "cpu", 1), True

        def pause(self) -> None:
            pass

    threads: list[threading.Thread] = []
    monkeypatch.setattr(lineup, "replaced", lambda worker, _: threads.append(threading.current_thread()) or worker)
    workers: list[Any] = [(Broken(), 0)]
    monkeypatch.setattr(rounds, "_rounds", lambda *_: 0)

    rounds.go_round(workers, SMALL[0], {}, BENCH, rounds.time_epochs, tmp_path)

    assert threads == [threading.main_thread()]


def test_a_driver_that_stops_answering_is_noticed(driver):
    watch = GpuWatch(0)
    watch.look()
    assert watch.found() == []
    tell(driver, says="Unable to determine the device handle for GPU0: GPU is lost.")
    watch.look()
    assert watch.found() == ["the GPU stopped answering its driver"]
    assert host.gpus() == []


@pytest.mark.parametrize(("name", "status", "faulted"), [("Says", "failed", True), ("NoSuchLoop", "declined", False)])
def test_a_worker_that_failed_is_marked_and_one_that_declined_is_not(driver, name, status, faulted):
    worker = Process(contestant(name, SAYS="x").resolved())

    def use() -> None:
        worker.ask("hello")
        worker.ask("place", data="none", params="none", workload={})

    try:
        with pytest.raises(WorkerFailed) as caught:
            use()
        assert (caught.value.status, worker.broken) == (status, faulted)
    finally:
        worker.kill()


# The script


def run_script(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments], capture_output=True, text=True, timeout=120, env={**os.environ, **env}
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--minutes", "0"], "--minutes must be a whole number from 1 to 600, got 0"),
        (["--minutes", "six"], "--minutes must be a whole number from 1 to 600, got six"),
        (["--minutes"], "--minutes needs a value"),
        (["--preset", "slow"], "--preset must be quick, workshop or full, got slow"),
        (["--device", "tpu"], "--device must be gpu or cpu, got tpu"),
        (["--host", "../x"], "--host must be 1 to 64 letters, digits, '-' or '_', got ../x"),
        (["--wheels", "/no/such/folder"], "--wheels must be a folder, got"),
        (["--chapters", "six"], "--chapters must be two digits each with commas between, got six"),
        (["--fast"], "no option --fast"),
    ],
)
def test_the_script_refuses_what_it_cannot_do_and_says_the_limit(arguments, said):
    done = run_script(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_the_script_refuses_a_gpu_that_is_not_there(tmp_path):
    install_driver(tmp_path)
    tell(tmp_path, says="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    done = run_script(
        "--device", "gpu", "--results", str(tmp_path / "results"), PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        PYTHON=sys.executable,
    )  # fmt: skip
    assert done.returncode == 1
    assert "no NVIDIA GPU was found" in done.stderr
    assert not (tmp_path / "results").exists()


def test_the_script_has_help_with_an_example():
    done = run_script("--help")
    assert done.returncode == 0
    for option in ("--preset", "--minutes", "--device", "--host", "--results", "--wheels", "Example"):
        assert option in done.stdout
