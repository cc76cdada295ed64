"""The self-check of `overhead diagnose`: which mixtures, how they are counted, that a step has what it was given."""

import pytest

from overhead.diagnose import self_check as sc
from overhead.diagnose.own_loops import target
from overhead.diagnose.session import Session, Target
from overhead.diagnose.shares import LIMITS
from overhead.diagnose.verdict import Verdict

MIXED = sc.Case("mixed", {"memory": 0.6, "wait": 0.4})
PURE = sc.Case("pure", {"memory": 1.0})


def said(case: sc.Case, text: str, certain: bool, predicted: float = 1.4, measured: float = 1.4) -> sc.Result:
    return sc.Result(case, Verdict(text, "memory", certain), predicted, measured)


def test_there_are_pure_steps_of_every_limit_and_every_pair():
    cases = sc.cases()

    assert len(cases) >= 40
    assert len({case.name for case in cases}) == len(cases)
    assert {case.leading for case in cases if case.is_pure} == set(LIMITS)
    assert {tuple(case.shares) for case in cases if not case.is_pure} == {
        (a, b) for a in LIMITS for b in LIMITS if a != b
    }
    assert all(sum(case.shares.values()) == 1 for case in cases)


@pytest.mark.parametrize(
    ("case", "text", "right"),
    [
        (PURE, "memory-bound", True),
        (PURE, "wait-bound", False),
        (PURE, "mixed: memory-bound or wait-bound", False),
        (PURE, "cannot tell", False),
        (MIXED, "memory-bound", True),
        (MIXED, "wait-bound", False),
        (MIXED, "mixed: memory-bound or wait-bound", True),
        (MIXED, "mixed: wait-bound or memory-bound", True),
        (MIXED, "mixed: memory-bound or input-bound", False),
    ],
)
def test_what_counts_as_right(case, text, right):
    assert said(case, text, True).right is right


def test_the_report_counts_and_what_falls_short_is_named():
    found = sc.report(
        [
            said(PURE, "memory-bound", True),
            said(PURE, "wait-bound", True),
            said(MIXED, "memory-bound", True, 1.4, 1.0),
            said(MIXED, "cannot tell", False),
        ]
    )

    assert (found["right_pure"], found["right_mixed"], found["wrong_certain"]) == (0.5, 0.5, 0.25)
    assert found["right_gain"] == 0.75
    assert set(found["cases"][0]) == {"name", "truth", "verdict", "certain", "predicted_gain", "measured_gain"}
    assert [line.split()[0] for line in sc.shortfalls(found)] == [
        "right_pure", "right_mixed", "right_gain", "wrong_certain",
    ]  # fmt: skip
    assert sc.shortfalls(sc.report([said(PURE, "memory-bound", True), said(MIXED, "memory-bound", True)])) == []


def test_a_synthetic_step_waits_as_long_as_it_was_given():
    case = sc.Case("", {"wait": 0.5, "dispatch": 0.5}, total_ms=20.0)
    with Session(Target(sc.SYNTHETIC, env=case.environment()), 60) as session:
        session.ask("hello")
        took = session.ask("sample", n=32, steps=4, condition={})
        session.ask("tell", function="set_part", arguments=["wait", 0.0])
        without = session.ask("sample", n=32, steps=4, condition={})

    assert took["ns"] - took["cpu_ns"] >= 0.8 * 4 * 10e6
    assert without["ns"] - without["cpu_ns"] < 0.8 * (took["ns"] - took["cpu_ns"])


def test_a_loop_of_the_book_is_a_step_that_trains():
    with Session(target("numpy", producer_s=0.01), 60) as session:
        hello = session.ask("hello")
        assert session.ask("first", n=32)["warnings"] == []
        piped = session.ask("sample", n=32, steps=2, condition={"pipeline": True})

    assert hello["has_pipeline"]
    assert piped["ns"] > 2 * 10e6
