"""Every test that FIELD.md names for a field case exists, and its rows are sorted."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TABLE = (HERE / "FIELD.md").read_text()
ROWS = re.findall(r"^\| ([A-Z]\d*) \| `tests/(\w+\.py)::(\w+)` \| \S+ \|$", TABLE, re.MULTILINE)


@pytest.mark.parametrize(("case", "file", "test"), ROWS)
def test_the_test_of_a_field_case_exists(case, file, test):
    assert f"\ndef {test}(" in (HERE / file).read_text()


def test_every_row_is_read_and_sorted():
    cases = [case for case, *_ in ROWS]
    assert len(cases) == TABLE.count("`tests/")
    assert cases == sorted(cases, key=lambda case: (case[0], int(case[1:] or 0)))
