"""Damaged records, host files and data files: read, or refused in one line that names file and reason.

`OVERHEAD_MUTATIONS=20000 pytest tests/test_mutations.py tests/test_profiles_damaged.py` tries as many of each kind.
"""

import copy
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mutating import edits, many, mutate
from overhead.chapters import base
from overhead.chapters.base import Chapter, ParameterError
from overhead.machine import host as hosts
from overhead.problem.data import DataError, load_idx, load_npz
from overhead.records import record as records
from overhead.records.record import RecordError
from test_data import IMAGES, LABELS, idx

SECONDS = 10  # for one small file, on a busy machine
OLD = Path(__file__).parent / "data" / "records-schema-1.jsonl"

odd = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=6),
    st.sampled_from([0, -1, 1, 1e308, "", "\ud800", "\u2028", "1e400", [], {}, [[]], [None], {"": None}, "x" * 10_000]),
    st.recursive(st.none(), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner)),
)  # fmt: skip
changes = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.booleans(), odd), min_size=1, max_size=3)


def places(value, path=()):
    """Every place in a JSON document, the document itself first."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*path, key))


def changed(document, wanted):
    """A JSON document with some of its values replaced, or left out."""
    document = json.loads(json.dumps(document))
    for where, leave_out, put in wanted:
        value = copy.deepcopy(put)  # one list may be wanted at two places, of which one lies in the other
        found = list(places(document))
        path = found[int(where * len(found))]
        if not path:
            document = value
            continue
        at = document
        for key in path[:-1]:
            at = at[key]
        if leave_out:
            del at[path[-1]]
        else:
            at[path[-1]] = value
    return document


def in_one_line(read: Callable[[], object], refusal: type[Exception], *names: str) -> None:
    """`read` ends soon, and raises nothing but `refusal`: one line that can be printed and has one of `names`."""
    began = time.monotonic()
    try:
        read()
    except refusal as error:
        said = str(error)
        assert any(name in said and said != name for name in names)
        assert len(said.splitlines()) == 1
        assert len(said) < 600
        said.encode()
    assert time.monotonic() - began < SECONDS


# Records


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("OVERHEAD_RESULTS", str(tmp_path))
    return tmp_path


def check_records(folder, raw: bytes) -> None:
    path = folder / "made.jsonl"
    path.write_bytes(raw)
    in_one_line(lambda: records.read(path), RecordError, "made.jsonl")


@many
@given(edits)
def test_records_with_mutated_bytes(tmp_path_factory, wanted):
    lines = OLD.read_bytes().splitlines(keepends=True)
    check_records(tmp_path_factory.getbasetemp(), mutate(b"".join(lines[:2]), wanted))


@many
@given(changes)
def test_records_with_impossible_values(tmp_path_factory, wanted):
    first = json.loads(OLD.read_text().splitlines()[0])
    check_records(tmp_path_factory.getbasetemp(), json.dumps(changed(first, wanted)).encode())


def test_records_nested_too_deeply(tmp_path):
    check_records(tmp_path, b'{"schema": ' + b"[" * 200_000)


# The facts of a host


def read_host(path: Path) -> None:
    """What reads a host.json: the file is PATH, the refusal names its host. (Point this at another reader.)"""
    Chapter(host=path.parent.name).check_host()


HOST_REFUSAL: type[Exception] = ParameterError


@pytest.fixture(scope="module")
def facts():
    return json.loads(json.dumps(hosts.facts()))


def check_host(folder: Path, raw: bytes) -> None:
    folder = folder / "somehost"
    folder.mkdir(exist_ok=True)
    (folder / "host.json").write_bytes(raw)
    in_one_line(lambda: read_host(folder / "host.json"), HOST_REFUSAL, "somehost")


@pytest.mark.parametrize("how", ["bytes", "values"])
def test_mutated_host_files(results, monkeypatch, facts, how):
    monkeypatch.setattr(base.hosts, "facts", lambda: facts)  # reading them anew takes a while

    @many
    @given(edits if how == "bytes" else changes)
    def attempt(wanted):
        mutated = mutate(json.dumps(facts).encode(), wanted) if how == "bytes" else changed(facts, wanted)
        check_host(results, mutated if isinstance(mutated, bytes) else json.dumps(mutated).encode())

    attempt()


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"\xef\xbb\xbf{}", b'{"os": "\xe4"}', b"null", b"[" * 200_000])
def test_host_files_that_people_made(results, monkeypatch, facts, raw):
    monkeypatch.setattr(base.hosts, "facts", lambda: facts)
    check_host(results, raw)


# Data files


def an_npz(folder: Path) -> bytes:
    np.savez_compressed(folder / "whole.npz", x_train=IMAGES, y_train=LABELS)
    return (folder / "whole.npz").read_bytes()


@pytest.mark.parametrize("kind", ["images", "images.gz", "labels", "labels.gz", "images.npz"])
@pytest.mark.filterwarnings("default")  # NumPy and zipfile warn of some damage before they refuse it
def test_mutated_data_files(tmp_path, kind):
    good = {"images": idx(IMAGES), "labels": idx(LABELS)}
    for name, raw in good.items():
        (tmp_path / f"good-{name}").write_bytes(raw)
    what, _, packing = kind.partition(".")
    whole = an_npz(tmp_path) if packing == "npz" else good[what]
    path = tmp_path / kind

    def load() -> object:
        if packing == "npz":
            return load_npz(path)
        images, labels = (path if what == name else tmp_path / f"good-{name}" for name in ("images", "labels"))
        return load_idx(images, labels)

    @many
    @given(edits, st.booleans())
    def attempt(wanted, inside):
        if packing == "gz":  # what is packed is damaged, or the package
            raw = gzip.compress(mutate(whole, wanted), 1) if inside else mutate(gzip.compress(whole, 1), wanted)
        else:
            raw = mutate(whole, wanted)
        path.write_bytes(raw)
        # Images and labels that do not fit each other are said of the data set, not of one of its two files.
        in_one_line(load, DataError, kind, "images@" if packing == "npz" else "idx@")

    attempt()


@pytest.mark.parametrize("clock", [[], {}, None, 1, "count:page-faults"])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), [], "1", None])
def test_counts_of_an_older_schema_that_are_none(tmp_path, clock, value):
    record = json.loads(OLD.read_text().splitlines()[0])
    record["timing"]["samples"][0] |= {"clock": clock, "seconds": [value]}
    check_records(tmp_path, json.dumps(record).encode())


def test_a_value_of_any_length_is_quoted_in_part(tmp_path):
    record = json.loads(OLD.read_text().splitlines()[0])
    record["workload"]["images"] = "x" * 10_000
    check_records(tmp_path, json.dumps(record).encode())
