"""A workload and data small enough for every test, and real."""

from __future__ import annotations

import signal

import hypothesis
import pytest

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


BARRIERS = pytest.StashKey[str]()  # how many removals were caught, told at the end of the tests


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if said := config.stash.get(BARRIERS, None):
        terminalreporter.write_line(said)


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
