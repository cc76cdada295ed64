"""The contract of a loop that trains several models on the same images, each with a learning rate of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.loops.base import Loop
from overhead.problem.data import Split
from overhead.problem.mlp import Params
from overhead.problem.workload import Workload


class ManyLoop(Loop):
    """A `Loop` whose state holds several models. `run` trains all of them; a step is one update of each.

    Through the verbs of `Loop` it trains `models` equal models, so that it is compared with the reference and
    timed as any other loop; `fetch` then gives the first of them.
    """

    models = 1
    compile_s = 0.0  # in all, so that it can be told from training; 0 where the library compiles at its first call

    @abstractmethod
    def place_many(self, params: Sequence[Params], rates: Sequence[float], data: Split, workload: Workload) -> Any:
        """Copy the images and every model to the device; train nothing. Raises `Declined` as `place` does."""

    def prepare(self, params: Sequence[Params], workload: Workload, held: int) -> None:
        """Compile what training and judging these models on `held` images will call, from shapes alone."""

    @abstractmethod
    def losses(self, state: Any) -> NDArray[np.floating]:
        """Losses of the last `run` in nats, each of a batch before its update: (steps, models)."""

    @abstractmethod
    def judge(self, state: Any) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
        """Accuracy on the images that validate, 0 to 1, and whether every parameter is finite: (models,) each."""

    @abstractmethod
    def fetch_many(self, state: Any) -> list[Params]:
        """The parameters of every model, as `fetch` gives them of one."""

    def place(self, params: Params, data: Split, workload: Workload) -> Any:
        return self.place_many([params] * self.models, [workload.learning_rate] * self.models, data, workload)

    def fetch(self, state: Any) -> Params:
        return self.fetch_many(state)[0]
