"""Loops that leave out zeros: exact on any image, at any width, with any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from overhead.loops import LOOPS, Declined, make
from overhead.loops.sparse import index
from overhead.measure import agreement
from overhead.problem import data
from overhead.problem.data import Split
from overhead.problem.mlp import Params, flat, init
from overhead.problem.workload import Workload

EXACT = [name for name, info in LOOPS.items() if info.module in ("products", "sparse")]


def images(kind: str, workload: Workload) -> np.ndarray:
    """(images, inputs) float32: without a zero, nothing but zeros, one pixel an image, or a fifth of the pixels."""
    rng, shape = np.random.default_rng(5), (workload.images, workload.layers[0])
    noise = rng.random(shape, dtype=np.float32) + np.float32(1e-3)
    if kind == "noise":
        return noise
    kept = np.zeros(shape, bool)
    if kind == "one pixel":
        kept[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = True
    if kind == "a fifth":
        kept = rng.random(shape) < 0.4 * np.linspace(0, 1, shape[1])  # some pixels seldom, some often
    return np.where(kept, noise, np.float32(0))


def disagreement(name: str, workload: Workload, x: np.ndarray) -> str | None:
    """What keeps the loop from agreeing with the float64 reference by the rules of `overhead bench`, or None."""
    y = np.random.default_rng(6).integers(0, workload.layers[-1], workload.images).astype(np.int32)
    split, params = Split(x, y, x[:0], y[:0], "made here"), init(workload)
    loop = make(name)

    def trained(at: Workload, steps: int) -> Params:
        try:
            return loop.fetch(loop.run(loop.place(params, split, at), steps))
        except Declined as reason:
            pytest.skip(f"{name}: {reason}")

    after_steps = trained(agreement.at_agreement_rate(workload), agreement.STEPS)
    after_epoch = trained(agreement.at_epoch_rate(workload), workload.steps)
    return agreement.compare(after_steps, after_epoch, workload, split).disagreement


@pytest.mark.parametrize("kind", ["noise", "all zero", "one pixel", "a fifth"])
@pytest.mark.parametrize("name", EXACT)
def test_agreement_does_not_hang_on_where_the_zeros_are(name: str, kind: str) -> None:
    workload = Workload(images=200, batch_size=37, remainder="keep")
    assert disagreement(name, workload, images(kind, workload)) is None


@pytest.mark.parametrize(
    "layers",
    [(7, 16, 2), (50, 20, 17), (300, 100, 10), (784, 300, 10), (1, 1, 2)],
    ids=lambda sizes: "-".join(map(str, sizes)),
)
@pytest.mark.parametrize("name", EXACT)
def test_widths_that_fill_no_vector(name: str, layers: tuple[int, ...]) -> None:
    workload = Workload(layers=layers, images=200, batch_size=32, remainder="keep")
    assert disagreement(name, workload, images("a fifth", workload)) is None


@pytest.mark.parametrize("size", [1, 64, 65, 200])
@pytest.mark.parametrize("name", EXACT)
def test_batches_smaller_and_larger_than_a_block(name: str, size: int) -> None:
    workload = Workload(images=200, batch_size=size, remainder="keep")
    assert disagreement(name, workload, images("a fifth", workload)) is None


@pytest.mark.parametrize("size", [32, 37, 512])
@pytest.mark.parametrize("name", EXACT)
def test_agreement_on_digits(name: str, size: int) -> None:
    workload = Workload(images=600, batch_size=size, remainder="keep")
    assert disagreement(name, workload, data.for_workload(workload).x) is None


@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_threads_change_rounding_only(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overhead.loops.sparse.threads_allowed", lambda: int(threads))
    workload = Workload(images=200, batch_size=32, remainder="keep")
    assert disagreement("sparse", workload, images("a fifth", workload)) is None


def test_threads_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from overhead.loops.sparse import threads_allowed

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert threads_allowed() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "100000")
    assert 1 <= threads_allowed() < 100_000


def test_a_rate_that_is_too_high_ends_in_what_is_no_number() -> None:
    workload = Workload(images=200, batch_size=32, learning_rate=1e30)
    x, y = images("a fifth", workload), np.arange(200, dtype=np.int32) % 10
    for name in ("numpy", "sparse", "sorted"):
        loop = make(name)
        with np.errstate(all="ignore"):
            state = loop.run(loop.place(init(workload), Split(x, y, x[:0], y[:0], "made here"), workload), 20)
        assert not all(np.isfinite(tensor).all() for tensor in flat(loop.fetch(state))), name


@pytest.mark.parametrize("size", [1, 32, 100])
def test_the_index_holds_every_non_zero_twice(size: int) -> None:
    workload = Workload(layers=(50, 4, 2), images=250, batch_size=size)
    x, block = images("a fifth", workload), min(size, 64)

    found = index(x, size, block)

    by_image, by_row = np.zeros_like(x), np.zeros_like(x)
    for i in range(len(x)):
        part = slice(found.image_start[i], found.image_start[i + 1])
        by_image[i, found.pixel[part]] = found.value[part]
    for first, count, first_block, blocks in found.batches.tolist():
        assert blocks == -(-count // block)
        for k in range(blocks):
            for r in range(found.block_start[first_block + k], found.block_start[first_block + k + 1]):
                part = slice(found.row_start[r], found.row_start[r + 1])
                by_row[first + k * block + found.image[part], found.row[r]] = found.by_row[part]
    np.testing.assert_array_equal(by_image, x)
    np.testing.assert_array_equal(by_row, x)


def test_what_the_kernel_does_not_do_is_declined() -> None:
    deep = Workload(layers=(784, 64, 32, 10), images=64)
    broad = Workload(layers=(70_000, 2, 2), images=32)
    for name in EXACT:
        with pytest.raises(Declined, match="one hidden layer, got 2"):
            make(name).place(init(deep), Split(*[np.zeros(0)] * 4, "none"), deep)
    with pytest.raises(Declined, match="inputs must be at most 65536"):
        make("sparse").place(init(broad), Split(*[np.zeros(0)] * 4, "none"), broad)


def test_who_does_less_arithmetic_says_so() -> None:
    assert {name for name, info in LOOPS.items() if info.less_arithmetic} == {"dropped", "gathered", "sorted", "sparse"}
