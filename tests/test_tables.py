"""Tables of a page: what is alike becomes a sentence, long ones fold, numbers are aligned, values escaped."""

from __future__ import annotations

import re

import pandas as pd

from overhead.showing import tables


def rows(text: str) -> int:
    return text.count("<tr>") - text.count("<thead>")


def test_a_long_table_shows_five_rows_and_folds_the_others() -> None:
    text = tables.as_html(pd.DataFrame({"loop": [f"l{n}" for n in range(30)], "s": range(30)}), "seconds")

    shown, _, folded = text.partition("<details>")
    assert (rows(shown), rows(folded)) == (5, 25)
    assert "<summary>The other 25 rows</summary>" in folded
    assert text.count("<caption>") == 1


def test_a_short_table_is_whole() -> None:
    text = tables.as_html(pd.DataFrame({"loop": list("abcdefghi"), "s": range(9)}))

    assert rows(text) == 9
    assert "details" not in text


def test_what_every_row_says_becomes_words_of_the_caption() -> None:
    frame = pd.DataFrame({"loop": list("abcd"), "device": "cpu", "note": "too <slow>", "empty": "", "s": [1, 2, 3, 4]})

    text = tables.as_html(frame, "Median")

    assert "<caption>Median; in every row: device cpu, note too &lt;slow&gt;</caption>" in text
    assert re.findall(r"<th[^>]*>(\w+)</th>", text) == ["loop", "s"]


def test_few_rows_and_rows_that_are_all_alike_keep_their_columns() -> None:
    few = pd.DataFrame({"loop": list("ab"), "device": "cpu", "s": [1, 2]})
    same = pd.DataFrame({"loop": list("abcd"), "device": "cpu"})

    assert "device" in re.findall(r"<th[^>]*>(\w+)</th>", tables.as_html(few))
    assert "device" in re.findall(r"<th[^>]*>(\w+)</th>", tables.as_html(same))


def test_no_row_is_a_sentence() -> None:
    assert tables.as_html(pd.DataFrame(), of="a <thing>") == "<p>Not measured here: a &lt;thing&gt;.</p>"
