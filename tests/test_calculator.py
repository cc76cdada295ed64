"""The calculator: JavaScript gives what Python gives, from the disk; its form needs no mouse."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import chromium
import model_constants
from overhead.book import calculator as placing
from overhead.model import calculator
from overhead.model.census import CENSUS, CPU_LOOPS, GPU_LOOPS
from overhead.model.constants import Constants
from overhead.model.gpus import GPUS
from overhead.model.replay import CannotModel, on_cpu, on_gpu
from overhead.problem.workload import Workload

in_browser = pytest.mark.skipif(chromium.BINARY is None, reason="no Chromium on this machine")
PAGE = "<!DOCTYPE html><html><head><title>t</title></head><body><p>{}</p></body></html>"


def constants() -> Constants:
    """With leftovers at some places, tiles and switches, so that no part of the formulas is idle."""
    rng, made = random.Random(1), model_constants.constants("here</script>")

    def rough(frame: Any) -> Any:
        at = [(float(rng.randrange(12)), rng.uniform(8, 20), 1.5 * rng.randrange(1, 5)) for _ in range(9)]
        return frame.model_copy(update={"at": at, "weights": [rng.uniform(-0.2, 0.2) for _ in at]})

    def library(held: Any) -> Any:
        fit = model_constants.fit(
            m_half=3.0, n_half=9.0, k_half=20.0, near_bytes_per_s=8e10, far_bytes_per_s=2e10, wake_s=3e-6, switch=1e5,
            tile_m=4, tile_n=16, at=[(5.0, 7.0, 9.0), (9.0, 3.0, 7.0)], weights=[0.1, -0.2],
        )  # fmt: skip
        return held.model_copy(update={"fits": dict.fromkeys(("nn", "tn", "nt"), fit)})

    return made.model_copy(
        update={
            "frames": {name: rough(frame) for name, frame in made.frames.items()},
            "products": {
                name: {threads: library(held) for threads, held in by.items()} for name, by in made.products.items()
            },
        }
    )


def inputs(count: int) -> Iterator[tuple[str, str | None, tuple[int, ...], int, int]]:
    """(loop, GPU or none, layers, batch size, images), seeded."""
    rng = random.Random(0)
    for number in range(count):
        gpu = rng.choice(GPUS).name if number % 2 else None
        loop = rng.choice(GPU_LOOPS if gpu else CPU_LOOPS)
        hidden = [round(2 ** rng.uniform(0, 11)) for _ in range(rng.randrange(4))]
        layers = (784, *hidden, 10) if CENSUS[loop].validated_images else (rng.randrange(1, 2000), *hidden, 10)
        images = rng.randrange(1, 60_000)
        yield loop, gpu, layers, min(round(2 ** rng.uniform(0, 13)), images), images


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page of a book with a place for the calculator, as the build leaves it."""
    made = constants()
    monkeypatch.setattr(placing, "kept", lambda folder: made)
    (tmp_path / "_static").mkdir()
    (tmp_path / "results" / "here").mkdir(parents=True)
    path = tmp_path / "results" / "here" / "08-crossover.html"
    path.write_text(PAGE.format(placing.PLACE))

    assert placing.on_pages(tmp_path, {"here": tmp_path}) == ["results/here/08-crossover.html"]
    return path


@in_browser
def test_javascript_and_python_agree(browser: chromium.Chromium, page: Path) -> None:
    made, asked = constants(), list(inputs(200))
    script = """((asked) => {
      const data = JSON.parse(document.getElementById("overhead-constants").textContent), m = overheadModel(data);
      return asked.map(([loop, gpu, layers, batch, images]) => {
        const w = m.workload(layers, batch, images);
        const p = gpu ? m.onGpu(loop, w, data.gpus.find((g) => g.name === gpu), 1) : m.onCpu(loop, w);
        return p && [...p.terms, p.seconds, p.low, p.high];
      });
    })(%s)"""

    seen = browser.open(page, script % json.dumps(asked))

    assert seen.errors == []
    assert [address for address in seen.requests if not address.startswith("file:")] == []
    modelled = 0
    for (loop, gpu, layers, batch, images), found in zip(asked, seen.answer, strict=True):
        workload = Workload(layers=layers, batch_size=batch, images=images)
        try:
            preset = next((g for g in GPUS if g.name == gpu), None)
            p = on_gpu(loop, workload, made, preset) if preset else on_cpu(loop, workload, made)
        except CannotModel:
            assert found is None
            continue
        modelled += 1
        assert found == pytest.approx([*p.terms, p.epoch_s, p.low_s, p.high_s], rel=1e-9, abs=1e-18)
    assert modelled > 150


@in_browser
def test_the_form_answers_in_words_and_says_what_is_wrong(browser: chromium.Chromium, page: Path) -> None:
    seen = browser.open(page, """(() => {
      const form = document.querySelector("form.overhead-calculator"), said = [];
      const type = (name, value) => {
        const field = form.elements.namedItem(name);
        field.focus();
        field.value = value;
        field.dispatchEvent(new Event("input", {bubbles: true}));
        said.push(form.querySelector("output").textContent);
      };
      said.push(form.querySelector("output").textContent);
      type("gpu", "T4"); type("batch", "0"); type("batch", "64"); type("layers", "784, conv, 10");
      const rows = form.querySelectorAll("tbody tr").length;
      return {said, rows, live: form.querySelector("output").getAttribute("aria-live"), hidden: form.hidden,
              labelled: [...form.querySelectorAll("input, select")].every((field) => field.labels.length === 1)};
    })()""")  # fmt: skip

    first, with_gpu, no_batch, batch, no_layers = seen.answer["said"]
    assert seen.errors == []
    assert first.startswith("Fastest on here</script>: ")
    assert "Modelled T4: " in with_gpu
    assert no_batch == "The batch size must be between 1 and 48000 (images)."
    assert batch.startswith("Fastest on")
    assert no_layers.startswith("Layers must be 2 to 12 whole numbers")
    assert (seen.answer["live"], seen.answer["hidden"], seen.answer["labelled"]) == ("polite", False, True)
    assert seen.answer["rows"] == 0


def test_the_script_is_small_and_classic() -> None:
    text = calculator.SCRIPT.read_text()

    assert len(text.encode()) <= calculator.LIMIT_BYTES
    assert "import " not in text
    assert "http" not in text


def test_constants_cannot_end_their_element() -> None:
    shown = calculator.form(constants())

    assert shown.count("</script>") == 1
    assert shown.endswith("</script>")


def test_a_page_without_constants_loses_the_place(tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    path.write_text(PAGE.format(placing.PLACE))

    assert placing.on_pages(tmp_path, {}) == []
    assert placing.PLACE not in path.read_text()
