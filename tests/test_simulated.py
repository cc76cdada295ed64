"""Chapter 11 in time that a test sets: what each exercise shows, and that everything says it is simulated."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest

from overhead.chapters.simulated import chapter as page
from overhead.chapters.simulated.chapter import DEVICE, Lab
from overhead.lab import opencl
from overhead.measure.session import Preset, Session
from overhead.records.record import Record
from test_lab import SetTime

LAB = Lab()
SESSION = Session(Preset("tiny", 0.5, 1.0, 1, (2, 2)), {"host": "here", "notebook": Lab.name})


def fake_opencl(device: str | None) -> SimpleNamespace:
    """pyopencl with one device, or none: a command takes 2 us in the queue and 8 us of work."""
    event = SimpleNamespace(
        wait=lambda: None, profile=SimpleNamespace(queued=100, submit=1_100, start=2_100, end=10_100)
    )
    platform = SimpleNamespace(get_devices=lambda: [SimpleNamespace(name=device)] if device else [])
    return SimpleNamespace(
        Error=RuntimeError, get_platforms=lambda: [platform], Context=lambda devices: None,
        CommandQueue=lambda context, properties: SimpleNamespace(finish=lambda: None),
        command_queue_properties=SimpleNamespace(PROFILING_ENABLE=2), mem_flags=SimpleNamespace(READ_WRITE=1),
        Buffer=lambda *_: None, Program=lambda *_: SimpleNamespace(build=lambda: None),
        Kernel=lambda *_: SimpleNamespace(set_arg=lambda *_: None), enqueue_nd_range_kernel=lambda *_: event,
    )  # fmt: skip


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    monkeypatch.setattr(page, "Clock", SetTime)
    monkeypatch.setitem(sys.modules, "pyopencl", fake_opencl("Made-Up CPU"))
    return LAB.take(SESSION)


def test_no_record_of_the_simulated_device_passes_for_one_of_this_host(records):
    *simulated, real = records
    assert {(r.device, r.device_name) for r in simulated} == {(DEVICE, "simulated RTX 3060")}
    assert all(r.settings == {"simulated": "true"} for r in simulated)
    assert (real.loop, real.device, real.device_name) == ("opencl", "cpu", "Made-Up CPU")


def test_every_table_and_figure_says_that_it_is_simulated(records):
    for shown in (LAB.note(), LAB.forgot(records), LAB.winner(records), LAB.changes(records)):
        assert "Simulated RTX 3060" in shown.text
    for figure in (LAB.queue_figure(records), LAB.batch_figure(records)):
        assert figure.alt.startswith("Simulated RTX 3060: no such device; ")
        assert len(figure._render(True, "png")) > 4_000


def test_who_forgets_to_wait_sees_the_wrong_winner(records):
    said = LAB.winner(records).text
    assert "seems to be the **graph of the unfused step**" in said
    assert "waited for it is the **compiled step, kernel by kernel**" in said


def test_the_queue_is_seen_to_fill_and_batches_to_pay(records):
    assert "calls take 5.15 us until the queue is full, and then 100.0 us" in LAB.queue_figure(records).alt
    alt = LAB.batch_figure(records).alt
    of_ops, of_compiled = (int(size.replace(",", "")) for size in re.findall(r"up to ([\d,]+) images", alt))
    assert of_ops > of_compiled  # the less the host does, the sooner the device is the limit


@pytest.mark.long
def test_each_way_out_is_within_a_twentieth_of_chapter_8s_prediction(records):
    rows = LAB.changes(records).text.split("<tr>")[2:]
    ratios = [re.findall(r">(\d\.\d{3})<", row)[-1] for row in rows]
    assert len(ratios) == 4
    assert all(abs(float(ratio) - 1) < 0.05 for ratio in ratios)


def test_a_real_queue_is_shown_with_the_devices_own_clock_or_says_what_is_missing(records, monkeypatch):
    shown = LAB.real_queue(records).text
    assert "Not simulated: OpenCL on Made-Up CPU" in shown
    assert shown.count("<tr>") == 1 + opencl.COMMANDS
    for module, why in ((None, "pyopencl is not installed"), (fake_opencl(None), "OpenCL finds no device")):
        monkeypatch.setitem(sys.modules, "pyopencl", module)
        without = LAB._real(SESSION)
        assert without.status == "declined"
        assert LAB.real_queue([without]).text.startswith(f"Left out here: {why} (pip install ")


def test_a_gpu_without_figures_is_refused():
    with pytest.raises(ValueError, match="got 'RTX 3061'; did you mean RTX 3060"):
        Lab(gpu="RTX 3061")
