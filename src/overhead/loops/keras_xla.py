"""Keras's `fit` with XLA on and with XLA off: the setting that its defaults leave to what TensorFlow sees."""

from __future__ import annotations

from typing import final

from overhead.loops.keras_ import KerasOnTensorFlow, State, compiled, fit_arrays, given
from overhead.problem.data import Split
from overhead.problem.mlp import Params
from overhead.problem.workload import Workload


@final
class KerasFitXlaLoop(KerasOnTensorFlow):
    """`keras-fit` with its step compiled by XLA, as Keras does by itself where TensorFlow sees a GPU."""

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        return given(compiled(params, workload, jit_compile=True), data, workload)

    def fit(self, state: State, first: int, steps: int, epochs: int) -> None:
        fit_arrays(state, first, steps, epochs)


@final
class KerasFitWithoutXlaLoop(KerasOnTensorFlow):
    """`keras-fit` without XLA, as Keras does by itself where TensorFlow sees a CPU only."""

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        return given(compiled(params, workload, jit_compile=False), data, workload)

    def fit(self, state: State, first: int, steps: int, epochs: int) -> None:
        fit_arrays(state, first, steps, epochs)
