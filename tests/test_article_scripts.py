"""The article's own forms of code: short, and they run and learn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts" / "article"


def run(name: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / name), *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_each_is_a_page_long() -> None:
    assert len(list(SCRIPTS.glob("*.py"))) >= 3
    for path in SCRIPTS.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 60, path.name


def test_the_flat_script_times_thirteen_operations_and_learns() -> None:
    found = run("per_op.py", "--steps", "200")

    assert len(found["us_per_step"]) == 13
    assert all(us > 0 for us in found["us_per_step"].values())
    assert found["val_accuracy"] > 0.7


@pytest.mark.slow
def test_the_articles_sweep_learns_at_the_rates_that_can() -> None:
    pytest.importorskip("jax", reason="needs JAX")
    found = run("jax_sweep.py", "--images", "9600")

    slowest, slow, right, _, diverges = found["val_accuracy"]
    assert slowest < slow < right
    assert right > 0.85
    assert diverges < 0.3
    assert found["first_step_s"] > 0 < found["epoch_s"]


@pytest.mark.slow
def test_the_micro_benchmark_multiplies_right_on_each_device() -> None:
    pytest.importorskip("tensorflow", reason="needs TensorFlow")
    found = run("tf_product.py", "--calls", "50")

    assert "CPU:0" in found
    for device in found.values():
        assert device["relative_error"] < 1e-5
        assert device["waited_once_us"] > 0 < device["waited_each_us"]
