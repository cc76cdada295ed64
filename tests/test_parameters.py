"""The page of parameters says what the notebooks take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from overhead.book import parameters
from overhead.chapters import CHAPTERS, chapter_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_parameter_of_a_notebook_is_a_field_of_its_chapter_and_stands_on_the_page(chapter: str) -> None:
    found = parameters.of(ROOT / "notebooks" / f"{chapter}.ipynb")

    assert {"host", "preset"} <= {parameter.name for parameter in found}
    fields = chapter_of(chapter).model_fields
    section = parameters.page(ROOT).partition(f"\n`{chapter}`\n")[2].partition("\n## ")[0]
    for parameter in found:
        assert parameter.name in fields
        assert f"| `{parameter.name}` | `{parameter.kind}` | `{parameter.default}` |" in section


def test_a_line_of_another_form_is_named(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": ["# parameters\n", "rate = 0.1"]}
    (tmp_path / "own.ipynb").write_text(json.dumps({"cells": [cell]}))

    with pytest.raises(ValueError, match=r"own\.ipynb: a parameter must be .* got 'rate = 0\.1'"):
        parameters.of(tmp_path / "own.ipynb")
