"""JAX without `jit`: the same learning, and thirteen operations that wait for their own results."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from overhead.loops import Declined, make
from overhead.loops.base import STEP_OPS
from overhead.problem import data, mlp
from overhead.problem.data import Split
from overhead.problem.workload import Workload

jax = pytest.importorskip("jax", reason="needs JAX")


def reference(workload: Workload, split: Split, steps: int) -> mlp.Params:
    every = mlp.reference_steps(mlp.init(workload), split.x, split.y, workload)
    *_, (_, params) = islice(every, steps)
    return params


@pytest.mark.parametrize("layers", [(784, 128, 10), (784, 10), (784, 40, 30, 10)])
def test_it_learns_what_the_reference_learns(layers: tuple[int, ...]) -> None:
    workload = Workload(layers=layers, images=100, remainder="keep")
    split, loop = data.for_workload(workload), make("jax-op-by-op", "cpu")

    state = loop.run(loop.run(loop.place(mlp.init(workload), split, workload), 3), 6)
    loop.block(state)

    assert mlp.relative_error(loop.fetch(state), reference(workload, split, 9)) < 1e-5
    assert loop.placed_on(state)[0] == "cpu"


def test_the_thirteen_ops_are_the_step_without_waits(tiny_workload: Workload, tiny_data: Split) -> None:
    loop = make("jax-op-by-op", "cpu")
    params = mlp.init(tiny_workload)
    state = loop.place(params, tiny_data, tiny_workload)
    ops = loop.ops(state)

    for op in ops * 8:  # past the short batch and round the epoch
        op.call()
        result: Any = op.wait()
        assert isinstance(result, jax.Array)
        assert result.dtype == np.float32

    assert {op.name: op.group for op in ops} == STEP_OPS
    trained = mlp.unflat([np.asarray(op.wait()) for op in ops[-4:]])
    assert mlp.relative_error(trained, reference(tiny_workload, tiny_data, 8)) < 1e-5
    stepped = loop.fetch(loop.run(state, 8))  # `state` is where it was
    assert mlp.relative_error(trained, stepped) < 1e-6
    assert mlp.relative_error(loop.fetch(state), params) == 0


def test_the_ops_decline_other_depths() -> None:
    workload = Workload(layers=(7, 32, 32, 2), images=32, batch_size=16)
    loop = make("jax-op-by-op", "cpu")
    state = loop.place(mlp.init(workload), data.synthetic(workload), workload)
    with pytest.raises(Declined, match="two layers, got 3"):
        loop.ops(state)
