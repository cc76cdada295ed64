"""Thread pools, as a fresh process sees them."""

from __future__ import annotations

from overhead.machine.pools import blas


def test_what_a_start_up_file_prints_does_not_spoil_the_answer(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('welcome')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pools = blas({"OPENBLAS_NUM_THREADS": "1"})
    assert pools
    assert {pool["threads"] for pool in pools if pool["library"] == "openblas"} <= {1}
    assert all(set(pool) == {"library", "version", "architecture", "threads"} for pool in pools)
