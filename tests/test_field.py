"""FIELD.md: no field case is missing, every test that it names exists, and its rows are sorted."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TABLE = (HERE / "FIELD.md").read_text()
ROWS = re.findall(r"^\| ([A-Z]\d*) \| `tests/(\w+\.py)::(\w+)` \| \S+ \|$", TABLE, re.MULTILINE)
REASONS = dict(re.findall(r"^\| ([A-Z]\d*) \| ([^|]+) \|$", TABLE, re.MULTILINE))
# The first collection, the second, and what the campaign found.
LAST = {"A": 12, "B": 14, "C": 10, "D": 10, "E": 6, "F": 7, "G": 5, "H": 6, "X": 2, "R": 12, "S": 39}
SECOND = ["N4", "N6", "N10", "N12", "N14", "N15", "N17", "N18", "N19", "N20", "N22", "N23", "N24", "N31", *(
    f"P{number}" for number in range(1, 11)), "C", "E", "G"]  # fmt: skip
CASES = [*(f"{kind}{number}" for kind, last in LAST.items() for number in range(1, last + 1)), *SECOND]


@pytest.mark.parametrize(("case", "file", "test"), ROWS)
def test_the_test_of_a_field_case_exists(case, file, test):
    assert f"\ndef {test}(" in (HERE / file).read_text()


@pytest.mark.parametrize("case", CASES)
def test_no_field_case_is_missing(case):
    """It has a test, or a reason of a sentence why it cannot apply; never both."""
    tested = case in {case for case, *_ in ROWS}
    assert tested != (case in REASONS)
    assert tested or len(REASONS[case].split()) >= 8


def test_every_row_is_read_and_sorted():
    cases = [case for case, *_ in ROWS]
    assert len(cases) == TABLE.count("| `tests/")
    assert set(cases) | set(REASONS) == set(CASES)
    assert cases == sorted(cases, key=lambda case: (case[0], int(case[1:] or 0)))
