"""Skip-gram by every grouping: the same weights as the float64 reference, duplicates in the batch included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from overhead.loops import compiled, rows
from overhead.measure import probes
from overhead.measure.probes import rows as row_probes
from overhead.problem import words
from overhead.problem.workload import Workload

VOCABULARY, PAIRS, STEPS = 60, 64, 3


def of_numpy(batches: Any, weights: Any) -> list[Any]:
    return rows.trainers(batches, weights)


def of_jax(batches: Any, weights: Any) -> list[Any]:
    pytest.importorskip("jax", reason="needs JAX")
    from overhead.loops import rows_jax

    return rows_jax.trainers("cpu", batches, weights)


def of_tensorflow(batches: Any, weights: Any) -> list[Any]:
    pytest.importorskip("tensorflow", reason="needs TensorFlow")
    from overhead.loops import rows_tensorflow

    return rows_tensorflow.trainers("cpu", batches, weights)


def disagreement(ours: words.Weights, reference: words.Weights) -> float:
    """The larger relative error of the two tensors, of what training changed."""
    first = words.init(VOCABULARY)
    return max(
        float(np.linalg.norm(a - b) / np.linalg.norm(b - c)) for a, b, c in zip(ours, reference, first, strict=True)
    )


def referred() -> tuple[list[words.Batch], words.Weights]:
    found, weights = words.batches(VOCABULARY, PAIRS), words.init(VOCABULARY)
    for batch in found[:STEPS]:
        weights = words.reference_step(weights, batch)
    return found, weights


@pytest.mark.parametrize(
    "make",
    [of_numpy, of_jax, pytest.param(of_tensorflow, marks=[pytest.mark.slow, pytest.mark.long])],
)
def test_every_grouping_adds_up_the_changes_of_a_row(make: Callable[..., list[Any]]) -> None:
    batches, reference = referred()
    assert words.counts(batches, VOCABULARY).duplicates > 0.5
    trainers = [trainer for trainer in make(batches, words.init(VOCABULARY)) if "dense" not in trainer.name]
    assert trainers
    for trainer in trainers:
        for i in range(STEPS):
            trainer.step(i)
        trainer.wait()
        assert disagreement(trainer.fetch(), reference) < 1e-5, trainer.name


def test_the_classical_mistake_is_caught() -> None:
    batches, reference = referred()
    ours = rows.copied(words.init(VOCABULARY))
    for batch in batches[:STEPS]:
        rows.step(ours, batch, rows.lost, rows.taken)
    assert disagreement(ours, reference) > 0.1


def test_dense_softmax_is_the_same_in_numpy_and_jax_and_moves_words_that_no_batch_names() -> None:
    batches, weights = words.batches(VOCABULARY, 8), words.init(VOCABULARY)
    dense = [trainer for make in (of_numpy, of_jax) for trainer in make(batches, weights) if "dense" in trainer.name]
    for trainer in dense:
        trainer.step(0)
    one, other = (trainer.fetch() for trainer in dense)
    for ours, theirs, first in zip(one, other, weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
        assert (ours != first).any()
    assert (one.targets != weights.targets).any(axis=1).all()


def test_without_a_compiler_the_rest_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise compiled.Declined("none")

    monkeypatch.setattr(compiled, "load", refuse)
    names = [trainer.name for trainer in rows.trainers(words.batches(VOCABULARY, 8), words.init(VOCABULARY))]
    assert names == [*rows.WAYS, "numpy dense softmax"]


def test_words_of_the_text_and_of_zipf_s_law() -> None:
    few, many = words.ids(100), words.ids(words.distinct() + 1000)
    assert set(few) == set(range(100))
    uses = np.bincount(few)
    assert (np.diff(uses) <= 0).all()
    drawn = np.bincount(many)
    assert drawn[0] / drawn[9] == pytest.approx(10, rel=0.2)
    batch = words.batches(100, 4)[0]
    assert batch.centres.tolist() == [few[2]] * 4
    assert batch.targets[:, 0].tolist() == [few[0], few[1], few[3], few[4]]  # two words on each side


def test_counts_of_what_a_batch_touches() -> None:
    batch = words.Batch(np.array([1, 1, 2]), np.array([[0, 1], [0, 1], [0, 3]]))
    found = words.counts([batch], 10)
    assert (found.looked_up, found.touched) == (9, 5)
    assert found.duplicates == pytest.approx(4 / 9)
    assert found.bytes == 5 * 2 * 4 * words.DIMENSIONS
    assert found.dense_bytes == 2 * 10 * 2 * 4 * words.DIMENSIONS


def test_probes_of_each_grouping_at_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_probes, "VOCABULARIES", (50, 80))
    monkeypatch.setattr(row_probes, "PAIRS", (4,))
    found = probes.make("numpy", "cpu", "rows", Workload())
    assert len({probe.name for probe in found}) == len(found)
    assert "numpy add.at, 80 words, 4 pairs" in {probe.name for probe in found}
    for probe in found:
        probe.call()
        assert probe.bytes > 0
    assert [probe.name for probe in probes.make("numpy", "cpu", "near", Workload())] == ["read-near"]
    assert probes.make("cupy", "cpu", "rows", Workload()) == []
