"""Finished steps outlive the run that made them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from overhead.measure.journal import OLDEST_S, Journal

RUN = {"chapter": "05-batch-sweep", "commit": "abc", "parameters": {"batch_sizes": [32]}}


def ended_early(path: Path, *values: int) -> None:
    journal = Journal(path, RUN)
    for value in values:
        journal.once("step", lambda value=value: value)
    journal.close(complete=False)


def taken(path: Path, run: dict = RUN, fresh: bool = False) -> list[int]:
    """What three steps give in the next run, each 100 where it is made anew."""
    journal = Journal(path, run, fresh=fresh)
    found = [journal.once("step", lambda: 100) for _ in range(3)]
    journal.close(complete=True)
    return found


def test_what_was_finished_is_not_made_again(tmp_path):
    ended_early(tmp_path / "j", 1, 2)
    assert taken(tmp_path / "j") == [1, 2, 100]
    assert not (tmp_path / "j").exists()  # a complete run needs none
    assert taken(tmp_path / "j") == [100, 100, 100]


@pytest.mark.parametrize("cut", range(1, 12))
def test_what_a_kill_left_of_the_last_line_is_cut_off(tmp_path, cut):
    ended_early(tmp_path / "j", 1, 2)
    text = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(text[:-cut])
    assert taken(tmp_path / "j") == [1, 100, 100]


def test_another_run_is_begun_anew(tmp_path):
    for other in ({**RUN, "commit": "def"}, {**RUN, "parameters": {"batch_sizes": [64]}}):
        ended_early(tmp_path / "j", 1, 2)
        assert taken(tmp_path / "j", other) == [100, 100, 100]
    ended_early(tmp_path / "j", 1, 2)
    assert taken(tmp_path / "j", fresh=True) == [100, 100, 100]


def test_a_run_of_yesterday_is_begun_anew(tmp_path, monkeypatch):
    ended_early(tmp_path / "j", 1, 2)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + OLDEST_S + 1)
    assert taken(tmp_path / "j") == [100, 100, 100]


@pytest.mark.parametrize("text", ["", "\n", "{", "[]\n", "{}\n", '{"run": 3, "began": "x"}\n', "\x00" * 20])
def test_what_is_no_journal_is_begun_anew(tmp_path, text):
    (tmp_path / "j").write_text(text)
    assert taken(tmp_path / "j") == [100, 100, 100]


def test_steps_of_one_name_are_told_apart_by_their_order(tmp_path):
    journal = Journal(tmp_path / "j", RUN)
    assert [journal.once(name, lambda value=value: value) for name, value in (("a", 1), ("b", 2), ("a", 3))] == [
        1,
        2,
        3,
    ]
    journal.close(complete=False)
    kept = [json.loads(line)["step"] for line in (tmp_path / "j").read_text().splitlines()[1:]]
    assert kept == ["a/1", "b/1", "a/2"]
