"""Several models that multiply by no zero: shared out equally, on any images, with any number of threads."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead import sweep
from overhead.loops import Declined, make
from overhead.loops.sparse_many import aligned, shared_out
from overhead.problem import mlp
from overhead.problem.data import Split
from overhead.problem.workload import Workload
from overhead.sweep.plan import Sweep, rates_of

RATES = [0.01, 0.1, 0.05]


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 8))
def test_every_step_is_trained_once_in_order_and_threads_get_equal_work(models: int, steps: int, threads: int) -> None:
    pieces = shared_out(models, steps, threads)

    assert len(pieces) == threads
    work = [sum(piece.steps for piece in mine) for mine in pieces]
    assert max(work) - min(work) <= 1
    trained = sorted((p.model, step) for mine in pieces for p in mine for step in range(p.first, p.first + p.steps))
    assert trained == [(model, step) for model in range(models) for step in range(steps)]
    ends, waiting = set(), [list(mine) for mine in pieces]  # threads take turns; none waits for ever
    while any(waiting):
        able = [mine for mine in waiting if mine and (not mine[0].first or (mine[0].model, mine[0].first) in ends)]
        assert able
        piece = able[0].pop(0)
        ends.add((piece.model, piece.first + piece.steps))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("kind", ["no zero", "all zero", "a fifth"])
def test_models_agree_with_numpy_whatever_the_images(kind: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overhead.loops.sparse_many.threads_allowed", lambda: threads)
    workload = Workload(layers=(50, 20, 10), images=130, batch_size=37, remainder="keep")
    rng = np.random.default_rng(2)
    x = rng.random((160, 50), dtype=np.float32) + np.float32(1e-3)
    x = {"no zero": x, "all zero": 0 * x, "a fifth": np.where(rng.random(x.shape) < 0.2, x, np.float32(0))}[kind]
    y = rng.integers(0, 10, 160).astype(np.int32)
    split, params = Split(x[:130], y[:130], x[130:], y[130:], "made here"), [mlp.init(workload)] * 3

    def trained(name: str) -> Any:
        loop: Any = make(name)
        state = loop.run(loop.place_many(params, RATES, split, workload), 3)
        first = loop.losses(state)
        state = loop.run(state, 8)  # round the epoch of four steps
        return loop.fetch_many(state), np.concatenate([first, loop.losses(state)]), *loop.judge(state)

    ours, losses, accuracy, finite = trained("sparse-many")
    theirs, expected, shares, _ = trained("sequential-numpy")

    assert losses.shape == (11, 3)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(accuracy, shares)
    assert finite.all()
    for one, other in zip(ours, theirs, strict=True):
        assert mlp.relative_error(one, other) < 1e-5


def test_layers_that_the_kernel_does_not_have_are_declined() -> None:
    workload, loop = Workload(layers=(784, 10), images=64), cast(Any, make("sparse-many"))
    with pytest.raises(Declined, match="one hidden layer, got 0"):
        loop.place_many([], [], Split(*(np.zeros(0),) * 4, "none"), workload)


def test_memory_alone_limits_how_many_models_share_the_index() -> None:
    asked = Sweep(rates=rates_of("1e-3:1:41"))
    dense, sparse = (sweep.plan(asked, engine, 8 * 2**30)[0] for engine in ("stacked", "sparse"))
    assert len(dense) > len(sparse) == 1
    assert len(sparse[0].members) == 41
    assert sparse[0].engine == "sparse-many"


def test_the_room_in_which_a_model_is_judged_is_held_until_it_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freed before, it would be another thread's: accuracies came out wrong now and then."""
    workload = Workload(layers=(50, 20, 10), images=130, batch_size=37, remainder="keep")
    rng = np.random.default_rng(3)
    x, y = rng.random((160, 50), dtype=np.float32), rng.integers(0, 10, 160).astype(np.int32)
    loop: Any = make("sparse-many")
    state = loop.place_many(
        [mlp.init(workload)], [0.1], Split(x[:130], y[:130], x[130:], y[130:], "made here"), workload
    )
    loop.run(state, 4)
    rooms: list[weakref.ref] = []

    def noted(*shape: int) -> np.ndarray:
        room = aligned(*shape)
        rooms.append(weakref.ref(room))
        return room

    def right(*_: Any) -> int:
        assert rooms
        assert all(room() is not None for room in rooms)
        return 30

    monkeypatch.setattr("overhead.loops.sparse_many.aligned", noted)
    monkeypatch.setattr(type(loop), "functions", lambda self, layers: SimpleNamespace(right=right))
    assert loop.judge(state)[0] == [1.0]
