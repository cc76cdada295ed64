"""Chapter 10: verdicts and prices as its tables show them, and how a price is taken."""

import random

import pytest

from overhead.chapters.your_loop import chapter as chapters
from overhead.chapters.your_loop.chapter import YourLoop, factor
from overhead.diagnose import pitfalls
from overhead.diagnose.interventions import INTERVENTIONS
from overhead.diagnose.session import Failed, Session
from overhead.diagnose.shares import LIMITS
from overhead.problem.workload import Workload
from overhead.records.record import Record

ABOUT = {"host": "here", "notebook": "10-your-loop", "device": "cpu"}
SHARES = dict(zip(LIMITS, (0.62, 0.3, 0.05, 0.0, 0.03), strict=True))
DIAGNOSIS = {
    "verdict": "dispatch-bound",
    "certain": True,
    "shares": [{"limit": limit, "median": x, "low": 0.9 * x, "high": 1.1 * x} for limit, x in SHARES.items()],
    "advice": {"change": "a batch 4 times as large", "gain": 2.1, "low": 2.0, "high": 2.2},
}


class Asked:
    """A step's session whose pitfall takes three times as long."""

    target = pitfalls.target("numpy")
    random = random.Random(0)
    chosen = "plain"

    def ask(self, do, limit_s=None, **arguments):
        if do == "tell":
            self.chosen = arguments["arguments"][0]
            return {}
        return {"ns": arguments["steps"] * (100_000 if self.chosen == "plain" else 300_000)}


class Broken(Asked):
    def ask(self, do, limit_s=None, **arguments):
        raise Failed("step raised ValueError: no")


@pytest.fixture
def chapter() -> YourLoop:
    return YourLoop.checked()


def worked() -> list[Record]:
    workload = Workload(batch_size=32)
    return [
        Record(status="ok", loop="keras-fit", workload=workload, diagnosis=DIAGNOSIS, **ABOUT),
        Record(status="failed", reason="keras is not installed", loop="tf-eager", workload=workload, **ABOUT),
    ]


def price(asked=Asked) -> Record:
    return chapters._price(asked(), "float64", 6, {"loop": "numpy", **ABOUT})


def test_a_price_is_the_ratio_of_pairs():
    found = factor(price())

    assert found.median == pytest.approx(3)
    assert found.n == 6


def test_a_price_that_cannot_be_taken_says_why():
    found = price(Broken)

    assert (found.status, found.reason) == ("failed", "step raised ValueError: no")


def test_every_pitfall_and_every_loop_has_a_row(chapter):
    prices, loops = chapter.prices([*worked(), price(), price(Broken)]), chapter.worked([*worked(), price()])

    assert list(prices["pitfall"]) == [pitfalls.PITFALLS["float64"].does] * 2
    assert prices["times"][0].startswith("3")
    assert prices["times"][1] == "failed: step raised ValueError: no"
    assert list(loops["verdict"]) == ["dispatch-bound", "failed: keras is not installed"]
    assert loops["dispatch"][0].startswith("0.62")
    assert "× 2.1" in loops["one change"][0]


def test_the_sentence_names_what_was_told(chapter):
    said = chapter.sentence(worked()).text

    assert said == "On this host `keras-fit` at 32 is **dispatch-bound**."
    assert "No loop" in chapter.sentence([]).text


def test_the_figure_says_in_words_what_it_shows(chapter):
    assert "float64 3" in chapter.prices_figure([price()]).alt


def test_every_intervention_says_what_it_tells_and_cannot(chapter):
    frame = chapter.interventions()

    assert list(frame["changed"]) == list(INTERVENTIONS)
    assert frame.notna().all().all()


@pytest.mark.parametrize("name", [name for name, pitfall in pitfalls.PITFALLS.items() if pitfall.framework == "numpy"])
def test_a_step_with_a_pitfall_runs(name):
    with Session(pitfalls.target("numpy"), 60) as session:
        session.ask("hello")
        session.ask("tell", function="choose", arguments=[name])
        assert session.ask("sample", n=pitfalls.BATCH_SIZE, steps=1, condition={})["ns"] > 0
