"""The learning-rate chapter: parameters, and tables, figures and sentences from records."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from overhead.chapters.base import ParameterError
from overhead.chapters.learning_rates import figures, models
from overhead.chapters.learning_rates.chapter import SHAPES, LearningRates, of_part, source
from overhead.problem.workload import Workload
from overhead.records.record import Record
from overhead.sweep.passing import WAYS

STUDY = LearningRates.checked(learning_rates=[0.01, 0.1, 10.0], models=[1, 4])


def record(part: str, loop: str, **fields: Any) -> Record:
    given = {"host": "x", "notebook": "y", "status": "ok", "device": "cpu", "threads": 2, "versions": {"jax": "1.0"}}
    return Record(**{**given, "part": part, "loop": loop, **fields})


def timed(loop: str, models: int, beside: int, us: float, device: str = "cpu") -> Record:
    """A record whose rounds take `us` microseconds a model and step, give or take 1 %."""
    workload = Workload(images=3200)
    seconds = [us * 1e-6 * workload.steps * models * (1 + 0.01 * (i % 3 - 1)) for i in range(9)]
    samples = {"clock": "wall", "steps": workload.steps, "process": 0, "round": list(range(9)), "seconds": seconds}
    return record(
        "models", loop, device=device, models=models, beside=beside,
        workload=workload,
        timing={"first_s": 1.5, "stopped": "target", "samples": [samples]},
    )  # fmt: skip


def curve(rate: float, own: bool, share: float | None) -> Record:
    bad = share is None
    member = {
        "rate": rate, "seed": 0, "own_weights": own, "diverged_at": 7 if bad else None,
        "loss": [None, None] if bad else [1.0, 0.5], "val_accuracy": [None, None] if bad else [0.5, share],
    }  # fmt: skip
    return record(
        "curves", "stacked", member=member, workload=Workload(epochs=2),
        val_accuracy=None if bad else [0.5, share],
        **({"status": "diverged", "reason": "diverged at step 7"} if bad else {}),
    )  # fmt: skip


CURVES = [
    curve(0.01, False, 0.81), curve(0.1, False, 0.92), curve(10.0, False, None),
    curve(0.01, True, 0.80), curve(0.1, True, 0.93), curve(10.0, True, None),
]  # fmt: skip
MODELS = [
    *(timed(loop, models, models, us) for models, us_of in ((1, (60, 66)), (3, (60, 45)), (4, (60, 90)))
      for loop, us in zip(("sequential", "vmap"), us_of, strict=True)),
    *(timed("jax-epoch", 1, models, 58) for models in (1, 3, 4)),
    *(timed(f"floor-{library}", 1, models, us) for models in (1, 3, 4) for library, us in (("numpy", 80), ("xla", 50))),
    record("models", "stacked", models=3, beside=3, status="failed", reason="out of memory"),
]  # fmt: skip
COST = {
    "wall_s": 3.0, "processes": 2, "threads": 1, "import_s": 1.0, "start_s": 0.5, "compile_s": 0.4, "train_s": 0.3,
    "peak_rss_bytes": 2**30, "process_bytes": 2**29, "models": 3,
}  # fmt: skip
COMMANDS = [
    record("command", "jax-pool", cost=COST),
    record("command", "keras-pool", status="declined", reason="not measured in the quick preset"),
    record("command", "article-pool", cost={"wall_s": 9.0, "processes": 5, "models": 3, "import_s": 2.0}),
]
PASSING = [
    record("passing", how, cost={"how": how, "seconds": 0.5, "once_s": 0.0, "sent_bytes": 10, "peak_rss_bytes": 2**28})
    for how in WAYS
]
PASSING[1] = record("passing", "package", status="failed", reason="the worker ended early")
RECORDS = [*CURVES, *MODELS, *COMMANDS, *PASSING]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"learning_rates": [0.1, "x"]}, "learning_rates must be finite numbers above 0, got 'x'"),
        ({"learning_rates": []}, "learning_rates must be a list"),
        ({"learning_rates": 0.1}, "learning_rates must be a list"),
        ({"models": [0]}, "models"),
        ({"models": [1.5]}, "models must be a whole number, got 1.5"),
        ({"epochs": 0}, "epochs"),
        ({"batch_size": 48_001}, "batch_size"),
        ({"timed_images": True}, "timed_images must be a whole number"),
    ],
)
def test_parameters_are_refused_by_name(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(said)):
        LearningRates.checked(**parameters)


def test_texts_ranges_and_lists_are_rates() -> None:
    assert LearningRates.checked(learning_rates=["1e-3", 1]).learning_rates == [0.001, 1.0]
    assert len(LearningRates.checked(learning_rates=["1e-3:1e1:41"]).learning_rates) == 41
    assert LearningRates.checked(learning_rates="[1e-3, 1e-1]").learning_rates == [0.001, 0.1]


def test_the_number_of_rates_is_always_timed_and_presets_only_add_numbers() -> None:
    assert STUDY.counts() == [1, 3, 4]
    counts = [set(LearningRates.checked(preset=preset).counts()) for preset in ("quick", "workshop", "full")]
    assert counts[0] < counts[1] < counts[2]
    assert max(counts[2]) == 128


def test_a_frame_holds_time_a_model_and_the_floor() -> None:
    frame = models.frame(of_part(RECORDS, "models")).set_index(["engine", "models"])
    assert frame.loc[("vmap", 3), "us"] == pytest.approx(45, rel=0.01)
    assert frame.loc[("vmap", 3), "times_floor"] == pytest.approx(0.9, rel=0.03)  # of the better library
    assert frame.loc[("jax-epoch", 4), "us"] == pytest.approx(58, rel=0.01)  # one model, whatever stands beside it
    assert frame.loc[("floor", 4), "us"] == pytest.approx(50, rel=0.01)
    assert frame.loc[("stacked", 3), "status"] == "failed"


def test_the_advice_names_engines_by_number_and_says_when_vmap_loses() -> None:
    text = STUDY.advice(RECORDS).text
    assert "**sequential** for 1 model, **vmap** for 3 models, **sequential** for 4 models" in text
    assert re.search(r"`vmap` takes less time than one compiled run after another at 3 \(0\.75", text)
    assert re.search(r"`vmap` loses to one compiled run after another at 1 .*, 4 \(1\.50", text)
    assert "CPU" in text
    assert "nothing to advise" in STUDY.advice(CURVES).text


def test_the_sentence_never_lets_a_diverged_rate_win() -> None:
    text = STUDY.curves_sentence(RECORDS).text
    assert "**0.1** reaches the highest validation accuracy, 92.00 %" in text
    assert "Diverged: 10 (at step 7)" in text
    assert "up to 1.00 points" in text
    assert "Every rate diverged" in STUDY.curves_sentence([CURVES[2]]).text


def test_tables_show_every_row_and_never_a_zero_for_what_was_not_measured() -> None:
    assert STUDY.curves_table(RECORDS).text.count("diverged at step 7") == 4
    command = STUDY.command_table(RECORDS).text
    assert "declined: not measured in the quick preset" in command
    assert "2 × 1" in command
    assert "5 × its choice" in command
    assert ">0<" not in command
    assert "failed: the worker ended early" in STUDY.passing_table(RECORDS).text
    models = STUDY.models_table(RECORDS).text
    assert "failed: out of memory" in models
    for table in (models, command, STUDY.rates_table(RECORDS).text, STUDY.passing_table(RECORDS).text):
        assert "nan" not in table
    assert "0.75" in STUDY.rates_table(RECORDS).text or "0.776" in STUDY.rates_table(RECORDS).text  # vmap, solo runs


@pytest.mark.parametrize("dark", [False, True])
def test_figures_draw_whatever_diverged_or_failed(dark: bool) -> None:
    many = [curve(10.0**-k, own, 0.9) for k in range(14) for own in (False, True)]
    gpu = [timed("vmap", models, models, 9, "gpu") for models in (1, 4)]
    drawn = [
        STUDY.curves_figure(RECORDS), figures.curves(many), figures.curves([CURVES[2]]),
        STUDY.models_figure(RECORDS), STUDY.models_figure([*MODELS, *gpu]),
    ]  # fmt: skip
    for figure in drawn:
        assert figure._render(dark, "png").startswith(b"\x89PNG")
        assert figure.alt
        assert "nan" not in figure.alt
    assert "Not measured here" in STUDY.models_figure([]).text


def test_the_code_is_shown_from_its_file() -> None:
    text = source("jax_many", ("step", "stacked_step", "jitted_many_epoch"))
    assert text.startswith("def step(")
    assert "@partial(jax.jit, donate_argnums=0)\ndef jitted_many_epoch(" in text
    assert "def main()" in STUDY.article_code().text
    assert len(set(SHAPES)) == 4


def test_a_paired_ratio_of_a_number_of_models_is_of_time_a_model() -> None:
    (record_,) = [r for r in MODELS if r.loop == "vmap" and models.compared(r) == 4]
    values = models.per_model_us(record_)
    assert len(values) == 1
    assert math.isclose(sorted(values[0])[4], 90, rel_tol=0.01)
