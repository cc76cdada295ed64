"""A workload and data small enough for every test, and real."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import chromium
import sample_book
from overhead.problem import data
from overhead.problem.data import Split
from overhead.problem.workload import Workload

# A test run in the background ignores Ctrl-C, one under `nohup` the end of its terminal, and so would the commands that
# the tests end by these signals.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A shared machine may stall for longer than any deadline; no test judges by absolute time.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests recorded as "told"; reports bring it here from whichever process ran them."""
    reports = [report for name in ("passed", "failed") for report in terminalreporter.stats.get(name, [])]
    for said in (value for report in reports for name, value in report.user_properties if name == "told"):
        terminalreporter.write_line(said)


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Chromium]:
    with chromium.Chromium() as started:
        yield started


@pytest.fixture(scope="module")
def html() -> Path:
    """The folder of the sample book's pages."""
    return sample_book.html()


@pytest.fixture(scope="session")
def tiny_workload() -> Workload:
    """The MLP of the book on 200 images: six whole batches of 32 and a short one of 8, which is kept."""
    return Workload(images=200, remainder="keep")


@pytest.fixture(scope="session")
def tiny_data(tiny_workload: Workload) -> Split:
    """MNIST: 200 training images in the order of `tiny_workload`, and all 12,000 that validate."""
    return data.split(data.load_mnist(), tiny_workload)


@pytest.fixture(scope="session", autouse=True)
def own_lock(tmp_path_factory: pytest.TempPathFactory):
    """A measurement that runs on this machine does not refuse these tests, nor they it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OVERHEAD_LOCK", str(tmp_path_factory.mktemp("lock") / "measuring.lock"))
        yield
