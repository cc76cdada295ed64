"""Chapter 4 on the recorded example, and on a host that could not be profiled."""

import re

import pytest

from overhead.chapters.profile import chapter as profile
from overhead.chapters.profile.chapter import Profile
from overhead.measure.session import PRESETS, Session
from overhead.records.record import Record
from overhead.showing.figures import Figure

STUDY = Profile.checked(images=640)
PROVENANCE = {"host": "here", "notebook": "04-profile"}


def texts(html: str) -> str:
    return re.sub(r"<[^>]+>", " ", html)


@pytest.fixture(scope="module")
def own() -> list[Record]:
    return STUDY.take(Session(PRESETS["quick"], PROVENANCE, seed=0, force=True))


def test_the_mistakes_are_those_of_the_example():
    page = texts(STUDY.mistakes().text)
    for figure in ("857 ms in 8 calls", "5.40 us (median)", "3,442 kernels", "1,920 of them", "99.3% busy"):
        assert figure in page


def test_two_runs_make_the_articles_count():
    assert texts(STUDY.launches_table().text).count("1,875") >= 2


def test_the_example_is_labelled_as_such():
    for part in (STUDY.mistakes().text, STUDY.example_times().text, STUDY.example_timeline().alt):
        assert "not this host" in part


def test_kernel_names_are_text():
    page = STUDY.example_times().text
    assert "elementwise_kernel&lt;" in page
    assert "<(int)" not in page


def test_this_hosts_own_run_is_profiled_and_drawn(own):
    record = own[0]
    if record.status != "ok":
        pytest.skip(record.reason)
    summary = profile.summary_of(record)
    assert summary.executions == 20
    assert summary.launches is None  # not measured on a CPU, so not zero
    assert isinstance(STUDY.timeline(own), Figure)
    assert "jitted_step" in STUDY.own_times(own).text
    assert "20 steps" in texts(STUDY.sentence(own).text)


def test_a_host_that_cannot_be_profiled_says_why():
    failed = Record(
        status="failed", reason="on the CPU only JAX loops can be profiled", loop="numpy", device="cpu", **PROVENANCE
    )
    assert "on the CPU only JAX loops" in STUDY.sentence([failed]).text
    assert "no profile" in STUDY.timeline([failed]).text


def test_what_a_profile_lacks_is_said_on_the_page(own):
    """Field case G: an export without a table of kernels."""
    lacks = "this export has no table of kernels"
    summary = {**profile.summary_of(own[0]).model_dump(mode="json"), "warnings": [f"{lacks} <b>_V2</b>"]}
    record = own[0].model_copy(update={"profile": summary})

    page = STUDY.sentence([record]).text
    assert lacks in page
    assert "<b>" not in page
