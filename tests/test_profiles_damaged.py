"""Damaged profiles of every kind: a summary or a one-line error, no crash, no hang, nothing written.

`OVERHEAD_MUTATIONS=20000 pytest tests/test_profiles_damaged.py` tries as many of each kind.
"""

import gzip
import json
import os
import sqlite3
import subprocess
import sys

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from make_big_profile import SCHEMA, write_export
from mutating import edits, many, mutate
from overhead.profiles import ProfileError, limits, read_profile
from overhead.profiles.text import show
from test_profiles_csv import Writer
from test_profiles_xla import TRACED


def check(folder, name, raw):
    """The only two outcomes allowed, and nothing but the file itself in its folder afterwards."""
    path = folder / name
    path.write_bytes(raw)
    found, says = None, ""
    try:
        found = read_profile(path)
    except ProfileError as error:
        says = str(error)
    if found is None:
        event("error")
        assert says.startswith(f"{name}: ")
        assert "\n" not in says
        assert len(says) < 400
    else:
        event("summary")
        json.dumps(found.to_json(), allow_nan=False)
        show(found)
        assert all(row.busy_share is None or 0 <= row.busy_share <= 1 for row in found.busy)
    assert [file.name for file in folder.iterdir()] == [name]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """A small whole profile of each kind."""
    folder = tmp_path_factory.mktemp("whole")
    write_export(folder / "made.sqlite", 40)
    text = Writer(folder / "made.sqlite").everything()
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", TRACED, str(folder)], env=environment, check=True, capture_output=True)
    (xplane,) = folder.glob("plugins/profile/*/*.xplane.pb")
    (packed,) = folder.glob("plugins/profile/*/*.trace.json.gz")
    return {
        "sqlite": (folder / "made.sqlite").read_bytes(),
        "csv": text.encode(),
        "xplane.pb": xplane.read_bytes(),
        "trace.json.gz": packed.read_bytes(),
        "trace.json": gzip.decompress(packed.read_bytes()),
    }


@pytest.mark.parametrize("kind", ["sqlite", "csv", "xplane.pb", "trace.json.gz", "trace.json"])
def test_mutated_bytes_give_a_summary_or_one_line(seeds, tmp_path_factory, kind):
    folder = tmp_path_factory.mktemp("damaged")

    @many
    @given(edits)
    def attempt(wanted):
        check(folder, f"made.{kind}", mutate(seeds[kind], wanted))

    attempt()


cell = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, -1, 7, 2**31, 2**32, 2**53, 2**62, -(2**63), 2**63 - 1]),
    st.none(), st.floats(allow_nan=False), st.text(max_size=8), st.binary(max_size=8), st.integers(0, 2_000),
)  # fmt: skip
tables = {"RUNTIME": 8, "KERNEL": 13, "MEMCPY": 9}


def test_impossible_values_give_a_summary_or_one_line(tmp_path_factory):
    folder = tmp_path_factory.mktemp("values")
    loose = SCHEMA.replace(" NOT NULL", "").replace(" INTEGER", "").replace(" TEXT", "").replace("PRIMARY KEY", "")

    @many
    @given(
        st.lists(
            st.sampled_from(list(tables)).flatmap(
                lambda table: st.tuples(st.just(table), st.lists(cell, min_size=tables[table], max_size=tables[table]))
            ),
            max_size=8,
        ),
        st.lists(st.tuples(cell, cell, cell, cell, cell, cell), max_size=3),
        st.lists(st.tuples(cell, cell), max_size=4),
    )
    def attempt(rows, ranges, strings):
        path = folder / "made.sqlite"
        path.unlink(missing_ok=True)
        sql = sqlite3.connect(path)
        sql.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + loose)
        for table, cells in rows:
            marks = ", ".join("?" * len(cells))
            sql.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES ({marks})", cells)
        sql.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", ranges)
        sql.executemany("INSERT INTO StringIds VALUES (?, ?)", strings)
        sql.commit()
        sql.close()
        check(folder, "made.sqlite", path.read_bytes())

    attempt()


@many
@given(st.text(alphabet="0123456789,.;\"'-eE \n\tTimeTotal()%nsNCallsum", max_size=300))
def test_any_text_gives_a_summary_or_one_line(tmp_path_factory, text):
    folder = tmp_path_factory.getbasetemp() / "text"
    folder.mkdir(exist_ok=True)
    check(folder, "any.csv", text.encode())


def test_a_gzip_that_unpacks_to_gigabytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LARGEST_JSON_BYTES", 1 << 16)
    path = tmp_path / "bomb.trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (1 << 20)))
    with pytest.raises(ProfileError, match=r"bytes of a trace, unpacked, must be at most 65,536, got 65,537"):
        read_profile(path)


def test_json_nested_too_deeply_is_refused(tmp_path):
    path = tmp_path / "deep.json"
    path.write_bytes(b'{"traceEvents": ' + b"[" * 200_000)
    with pytest.raises(ProfileError, match="not a trace in JSON"):
        read_profile(path)
