"""Records: what a line holds, what it refuses, and that old files stay readable."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from overhead.problem.workload import Workload
from overhead.records import record as records
from overhead.records.record import MAX_FILE_BYTES, SCHEMA, Record, RecordError, Samples, Timing

OLD = Path(__file__).parent / "data" / "records-schema-1.jsonl"
NEW = Path(__file__).parent / "data" / "records-schema-2.jsonl"

finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
seconds = st.floats(1e-9, 1e5)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20) | st.just("two\u2028lines\x85\r\n")


def record(**other: Any) -> Record:
    fields = {"host": "here", "notebook": "05-batch-sweep", "status": "ok", "loop": "numpy", "device": "cpu"}
    return Record(**{**fields, **other})


@st.composite
def some_records(draw: st.DrawFn) -> Record:
    status = draw(st.sampled_from(["ok", "declined", "failed", "disagrees", "diverged"]))
    values = draw(st.lists(seconds, max_size=5))
    rounds = list(range(len(values)))
    samples = [
        Samples(clock="wall", steps=1500, process=0, round=rounds, seconds=values),
        Samples(clock="op", steps=1, process=1, round=rounds, ns=draw(st.lists(st.integers(1, 10**12), max_size=5))),
    ]
    return record(
        status=status,
        reason=draw(names) if status != "ok" else None,
        loop=draw(names),
        timing=draw(st.none() | st.just(Timing(first_s=draw(seconds), stopped="target", samples=samples))),
        val_accuracy=draw(st.none() | st.lists(st.floats(0, 1), max_size=3)),
        member=draw(st.none() | st.dictionaries(names, finite | st.integers() | names, max_size=3)),
        preset=draw(st.none() | names),
        **draw(st.dictionaries(st.sampled_from(["placed_s", "import_s"]), finite)),
    )


@given(st.lists(some_records(), max_size=5))
def test_what_is_written_is_read(tmp_path_factory, kept):
    path = tmp_path_factory.mktemp("records") / "a.jsonl"
    records.write(path, kept)
    read = records.read(path)

    assert len(read) == len(kept)
    for ours, theirs in zip(read, kept, strict=True):
        assert ours.as_json() == theirs.as_json()
        assert ours.loop == theirs.loop  # texts to the letter
    records.write(path.with_name("b.jsonl"), read)  # rounding twice changes nothing
    assert path.read_bytes() == path.with_name("b.jsonl").read_bytes()


@given(finite)
def test_a_float_keeps_six_digits(value):
    (line,) = records.dumps([record(placed_s=value)]).splitlines()
    kept = json.loads(line)["placed_s"]
    assert kept == float(f"{value:.6g}")
    assert math.isclose(kept, value, rel_tol=5e-6) or kept == value


def test_nanoseconds_stay_whole():
    samples = Samples(clock="op", steps=1, process=0, round=[0], ns=[123_456_789_012])
    (line,) = records.dumps([record(op="z1", timing=Timing(samples=[samples]))]).splitlines()
    assert json.loads(line)["timing"]["samples"][0]["ns"] == [123_456_789_012]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_line_holds_what_is_not_finite(bad, tmp_path):
    diverged = record(member={"loss": [0.5, bad]}, placed_s=bad)
    assert "NaN" not in records.dumps([diverged])
    assert "Infinity" not in records.dumps([diverged])
    assert json.loads(records.dumps([diverged]))["member"]["loss"] == [0.5, None]

    samples = Samples(clock="wall", steps=1, process=0, round=[0], seconds=[bad])
    for fields in ({"timing": Timing(samples=[samples])}, {"val_accuracy": [bad]}):
        with pytest.raises(RecordError, match=r"05-batch-sweep: .* of numpy must be a finite number"):
            records.write(tmp_path / "bad.jsonl", [record(**fields)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", ["declined", "failed", "disagrees", "diverged"])
@pytest.mark.parametrize("reason", [None, ""])
def test_what_is_not_ok_says_why(status, reason):
    with pytest.raises(ValidationError, match=f"a record that is {status} must carry a reason"):
        record(status=status, reason=reason)


def test_a_status_is_one_of_five():
    with pytest.raises(ValidationError, match="'ok', 'declined', 'failed', 'disagrees' or 'diverged'"):
        record(status="skipped", reason="why not")


def test_a_file_stays_under_two_megabytes(tmp_path):
    path = tmp_path / "a.jsonl"
    records.write(path, [record()])
    before = path.read_bytes()
    samples = Samples(clock="op", steps=1, process=0, round=[0] * 400_000, ns=[123_456] * 400_000)

    with pytest.raises(RecordError, match=rf"a\.jsonl: must stay under {MAX_FILE_BYTES} bytes, got \d{{7}}"):
        records.write(path, [record(op="z1", timing=Timing(samples=[samples]))])

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    records.write(path, [record()])
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    with pytest.raises(OSError, match="No space left"):
        records.write(path, [record(loop="other")])

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "Expecting property name"),
        ("[]", "it has no schema"),
        ("3", "it has no schema"),
        ('{"host": "here"}', "it has no schema"),
        ('{"schema": 1}', "Field required"),
        (f'{{"schema": {SCHEMA + 1}}}', f"schema must be between 1 and {SCHEMA}, got {SCHEMA + 1}"),
        ('{"schema": 0}', "got 0"),
        ('{"schema": true}', "got True"),
        ('{"schema": "1"}', "got '1'"),
        ('{"schema": 1, "peak": NaN}', "NaN is no JSON"),
        ("<html>", "Expecting value"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path, line, why):
    path = tmp_path / "a.jsonl"
    path.write_text(records.dumps([record()]) + line + "\n")
    with pytest.raises(RecordError) as caught:
        records.read(path)
    assert str(caught.value).startswith("a.jsonl: line 2 is no record: ")
    assert why in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, content):
    path = tmp_path / "a.jsonl"
    if content:
        path.write_bytes(content)
    with pytest.raises(RecordError, match=r"^a\.jsonl: cannot be read: "):
        records.read(path)


# A file of schema 1, never to be changed. Whoever raises SCHEMA freezes another one beside it.


def test_an_old_file_stays_readable():
    kept = records.read(OLD)
    assert [r.status for r in kept] == [
        "ok", "ok", "declined", "failed", "disagrees", "diverged", "ok", "ok", "ok", "ok",
    ]  # fmt: skip
    assert [bool(r.reason) for r in kept] == [r.status != "ok" for r in kept]
    assert all(r.schema_ == records.SCHEMA for r in kept)
    assert records.dumps(kept) == NEW.read_text()  # what a schema-1 file is once it is converted
    for line, record_ in zip(OLD.read_text().splitlines(), kept, strict=True):
        was, now = json.loads(line), record_.as_json()
        for samples in now["timing"]["samples"] if now["timing"] else []:
            del samples["process_set"]
        for name in ("steps", "images_seen") if was["workload"] else ():
            assert getattr(record_.trained, name) == was["workload"].pop(name)  # which follow from the rest
        assert {**now, "schema": 1} == was

    numpy, floor = kept[0], kept[1]
    assert len(numpy.processes()) == 1
    assert len(floor.processes()) == 3
    assert [len(p) for p in numpy.processes("dispatch")] == [2]
    assert numpy.epochs() == numpy.processes()  # a sample is an epoch here
    op = next(r for r in kept if r.op == "z1")
    assert all(1e-9 < value < 1 for value in op.processes("op")[0])  # seconds, from nanoseconds


def test_a_workload_is_read_as_one_whatever_a_file_says_of_it_besides():
    kept = Record.model_validate({**record().as_json(), "workload": {"batch_size": 512, "steps": 7, "unknown": 1}})
    assert kept.trained == Workload(batch_size=512)
    assert kept.steps_per_epoch == 93
    with pytest.raises(RecordError, match="must have a workload"):
        _ = record(workload=None).trained


@pytest.mark.parametrize(
    ("clock", "seconds", "name", "unit", "values"),
    [("count:page-faults", [1500.0, 0.0], "page-faults", "counts", [1500, 0]),
     ("nvml:utilisation", [0.93, 0.5], "gpu-utilisation", "shares", [0.93, 0.5])],
)  # fmt: skip
def test_what_older_files_kept_as_seconds_and_is_no_time_is_read_as_what_it_is(clock, seconds, name, unit, values):
    series = {"clock": clock, "steps": 10, "process": 0, "round": [0, 1], "seconds": seconds, "ns": None}
    kept = Record.model_validate({**record().as_json(), "timing": {"samples": [series]}})

    (found,) = kept.of_no_unit(name)
    assert getattr(found, unit) == values
    assert found.values_s == []
    assert kept.processes(name) == [[]]
    assert records.dumps([kept]) == records.dumps([Record.model_validate(kept.as_json())])


def test_a_field_that_nobody_knows_is_not_read_and_cannot_be_written():
    assert Record.model_validate({**record().as_json(), "weather": "fine"}) == Record.model_validate(record().as_json())
    with pytest.raises(ValidationError, match="weather"):
        record(weather="fine")


def test_a_file_of_this_schema_is_read_and_written_without_a_change():
    assert records.dumps(records.read(NEW)) == NEW.read_text()


@pytest.mark.parametrize(
    ("loop", "preset", "sets"),
    [("floor-xla", "quick", [0, 0]), ("floor-xla", "full", [0, 1]), ("numpy", "quick", [0, 1])],
)
def test_schema_1_says_by_its_preset_which_processes_took_turns(loop, preset, sets):
    samples = [{"clock": "wall", "steps": 1, "process": p, "round": [0], "seconds": [1.0]} for p in (0, 1)]
    fields = {**record(loop=loop, preset=preset).as_json(), "schema": 1, "timing": {"samples": samples}}
    kept = Record.model_validate(fields)

    assert [s.set_number for s in kept.timing.samples] == sets  # type: ignore[union-attr]


def test_a_part_of_an_epoch_is_scaled_to_the_epoch():
    samples = [
        Samples(clock="wall", steps=100, process=1, round=[0], seconds=[2.0]),
        Samples(clock="wall", steps=300, process=0, round=[0, 1], seconds=[3.0, 4.5]),
        Samples(clock="dispatch", steps=8, process=0, round=[0], seconds=[0.1]),
    ]
    kept = record(workload=Workload(images=600 * 32), timing=Timing(samples=samples))
    assert kept.epochs() == [[6.0, 9.0], [12.0]]
    assert kept.processes("dispatch") == [[0.1]]
    assert record().epochs() == record().processes() == []
