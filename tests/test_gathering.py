"""A class's folders on one page: every usable one a dot, a broken one named, names as text, nothing loaded."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import sample_book
from overhead.book import policy
from overhead.book.folder import FolderError
from overhead.classroom import gathering
from overhead.classroom.dots import ticks
from overhead.cli import cli
from overhead.records import record as records
from overhead.records.record import Record


def folder(at: Path, scale: float = 1.0, host: str = "local") -> Path:
    """A student's folder of a small batch sweep, all times multiplied by `scale`."""
    at.mkdir(parents=True)
    (at / "host.json").write_text(json.dumps(sample_book.FACTS))
    records.write(at / "05-batch-sweep.jsonl", [scaled(record, scale) for record in sample_book.sweep(host=host)])
    return at


def scaled(record: Record, scale: float) -> Record:
    if record.timing is None:
        return record
    samples = [s.model_copy(update={"seconds": [v * scale for v in s.values_s]}) for s in record.timing.samples]
    return record.model_copy(update={"timing": record.timing.model_copy(update={"samples": samples})})


def test_thirty_folders_make_one_page_in_under_a_minute_and_a_broken_one_is_named(tmp_path):
    paths = [folder(tmp_path / f"student-{k:02d}", 1 + k / 30) for k in range(30)]
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "host.json").write_text(json.dumps(sample_book.FACTS))
    (broken / "05-batch-sweep.jsonl").write_text("{")
    began = time.perf_counter()

    done = CliRunner().invoke(cli, ["class", *map(str, paths), str(broken), "--out", str(tmp_path / "class.html")])

    assert time.perf_counter() - began < 60
    assert done.exit_code == 0, done.output
    page = (tmp_path / "class.html").read_text(encoding="utf-8")
    assert page.count("<circle") == 30 * len(re.findall(r'<text x="0"', page)) > 0
    for path in paths:
        assert f"<td>{path.name}</td>" in page
    assert "<li>broken: 05-batch-sweep.jsonl: line 1" in page
    assert "broken: left out: 05-batch-sweep.jsonl: line 1" in done.output
    assert str(tmp_path) not in page
    assert policy.foreign(page) is None
    assert "<script" not in page


def test_a_dot_stands_where_its_record_says(tmp_path):
    found = gathering.gathered([folder(tmp_path / "slow", 2.0), folder(tmp_path / "fast")])

    slow, fast = (student.figures[gathering.SECONDS]["numpy"].median for student in found.students)
    assert slow == pytest.approx(2 * fast)
    one, other = (student.figures[gathering.RATIO]["keras-fit / numpy"].median for student in found.students)
    assert one == pytest.approx(other, rel=1e-5)


def test_the_same_folders_make_the_same_page(tmp_path):
    given = [folder(tmp_path / "a"), folder(tmp_path / "b", 1.5)]

    assert gathering.page(gathering.gathered(given)) == gathering.page(gathering.gathered(given))


def test_a_folder_s_name_is_text(tmp_path):
    given = [folder(tmp_path / "<script>alert(1)<"), folder(tmp_path / ("long-" * 20))]

    page = gathering.page(gathering.gathered(given))

    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;" in page
    assert "long-" * 9 not in page


@pytest.mark.skipif(os.name == "nt", reason="such a name is no name there")
def test_a_name_that_cannot_be_printed_is_spelt_out(tmp_path):
    found = gathering.gathered([folder(tmp_path / "a\nb\x1b[31m")])

    assert found.students[0].name == "a\\nb\\x1b[31m"


def test_folders_of_one_name_are_told_apart_by_their_parents(tmp_path):
    given = [folder(tmp_path / name / "local") for name in ("anna", "ben")]

    assert [s.name for s in gathering.gathered(given).students] == ["anna/local", "ben/local"]
    assert gathering.names([given[0], given[0]]) == ["local", "local (2)"]


def test_a_folder_of_folders_is_a_class(tmp_path):
    for name in ("anna", "ben"):
        folder(tmp_path / "class" / name)

    assert [s.name for s in gathering.gathered([tmp_path / "class"]).students] == ["anna", "ben"]


@pytest.mark.parametrize("kind", ["nowhere", "file", "empty", "no facts", "link", "nothing timed"])
def test_what_cannot_be_used_is_left_out_with_a_reason(tmp_path, kind):
    at = tmp_path / "here"
    if kind == "file":
        at.write_text("x")
    elif kind == "empty":
        at.mkdir()
    elif kind == "no facts":
        (folder(at) / "host.json").unlink()
    elif kind == "link":
        at.symlink_to(folder(tmp_path / "there"))
    elif kind == "nothing timed":
        declined = [r for r in sample_book.sweep(host="local") if r.status != "ok"]
        records.write(folder(at) / "05-batch-sweep.jsonl", declined)

    found = gathering.gathered([at])

    assert found.students == []
    assert list(found.left_out) == ["here"]
    assert "\n" not in found.left_out["here"]


def test_without_a_usable_folder_there_is_no_page(tmp_path):
    done = CliRunner().invoke(cli, ["class", str(tmp_path / "none"), "--out", str(tmp_path / "class.html")])

    assert done.exit_code == 1
    assert "no folder has a batch sweep" in done.output
    assert not (tmp_path / "class.html").exists()


def test_a_class_has_a_limit(tmp_path):
    with pytest.raises(FolderError, match="at most 200 folders, got 201"):
        gathering.gathered([tmp_path / "x"] * 201)


def test_ticks_lie_inside_the_axis():
    assert ticks(-1.1, 0.4) == pytest.approx([0.1, 0.2, 0.5, 1, 2])
    assert ticks(-3.2, 1.1) == pytest.approx([0.001, 0.01, 0.1, 1, 10])
