"""Every row of the table of loops: it learns what the float64 reference learns, and leaves its inputs alone."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # before anything imports Keras
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from overhead.loops import FLOORS, LOOPS, Declined, make
from overhead.loops.base import STEP_OPS, Loop
from overhead.problem import data
from overhead.problem.mlp import flat, init, reference_steps, relative_error, travelled, unflat
from overhead.problem.workload import Workload

STEPS = 20
TOLERANCE = 1e-5  # the design's, in float32; correct loops stay below 1e-6

# 250 images: 7 or 8 steps an epoch at 32, 2 or 3 at 100, so that twenty steps wrap round the epoch.
CASES = {
    "32-keep": Workload(images=250, batch_size=32, remainder="keep"),
    "100-drop": Workload(images=250, batch_size=100, remainder="drop"),
    "deep-32-drop": Workload(layers=(784, 64, 32, 10), images=250, batch_size=32, remainder="drop"),
    "32-drop": Workload(images=250, batch_size=32, remainder="drop"),
    "100-keep": Workload(images=250, batch_size=100, remainder="keep"),
    "flat-100-keep": Workload(layers=(784, 10), images=250, batch_size=100, remainder="keep"),
    "tiny-32-keep": Workload(layers=(7, 32, 32, 2), images=250, batch_size=32, remainder="keep"),
}
# Rows that take seconds to build or to compile get the cases that differ most.
SLOW_TO_BUILD = ("keras", "tf-epoch", "jax-epoch")
THEIR_CASES = ("32-keep", "100-drop", "deep-32-drop")


def loop_or_skip(name: str) -> Any:
    """The loop on the CPU; skips with the reason where this process cannot have it."""
    info = LOOPS[name]
    if "cpu" not in info.devices:
        pytest.skip(f"{name} runs on {' or '.join(info.devices)} only")
    wanted, ours = dict(info.env).get("KERAS_BACKEND"), os.environ["KERAS_BACKEND"]
    if wanted not in (None, ours):
        pytest.skip(f"Keras has one backend a process and here it is {ours}: see test_keras_on_jax")
    try:
        return make(name)
    except ImportError as error:
        pytest.skip(f"{name}: {error}")


@lru_cache
def inputs(case: str) -> tuple[Any, data.Split]:
    """Parameters and images that cannot be written to, with few images to validate on."""
    workload = CASES[case]
    params, split = init(workload), data.for_workload(workload)
    split = split._replace(x_val=split.x_val[:40], y_val=split.y_val[:40])
    for array in (*flat(params), split.x, split.y, split.x_val, split.y_val):
        array.setflags(write=False)
    return params, split


def placed_or_skip(name: str, case: str) -> tuple[Any, Any]:
    loop = loop_or_skip(name)
    if name.startswith(SLOW_TO_BUILD) and case not in THEIR_CASES:
        pytest.skip(f"{name} is slow to build and has {', '.join(THEIR_CASES)}")
    try:
        return loop, loop.place(*inputs(case), CASES[case])
    except Declined as reason:
        pytest.skip(f"{name} declines {case}: {reason}")


def train(loop: Any, state: Any, steps: int) -> Any:
    state = loop.run(state, steps)
    loop.block(state)
    return state


def copied(params: Any) -> list[np.ndarray]:
    return [tensor.copy() for tensor in flat(params)]


def expected(case: str, steps: int) -> Any:
    params, split = inputs(case)
    return next(islice(reference_steps(params, split.x, split.y, CASES[case]), steps - 1, None))[1]


@lru_cache
def ways(case: str) -> tuple[float, ...]:
    return travelled(inputs(case)[0], [expected(case, steps) for steps in range(1, STEPS + 1)])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", LOOPS)
def test_loop_learns_what_the_reference_learns(name: str, case: str) -> None:
    before = [array.tobytes() for array in (*flat(inputs(case)[0]), *inputs(case)[1][:4])]
    loop, state = placed_or_skip(name, case)
    assert relative_error(loop.fetch(state), inputs(case)[0]) == 0, "placing trains nothing"

    state = train(loop, state, STEPS)

    ours = loop.fetch(state)
    assert relative_error(ours, expected(case, STEPS), ways(case)) < TOLERANCE
    assert {tensor.dtype for tensor in flat(ours)} == {np.dtype(np.float32)}
    assert [tensor.shape for tensor in flat(ours)] == [tensor.shape for tensor in flat(inputs(case)[0])]
    after = [array.tobytes() for array in (*flat(inputs(case)[0]), *inputs(case)[1][:4])]
    assert after == before, "the caller's parameters and images are as they were"


@pytest.mark.parametrize("name", LOOPS)
def test_runs_repeat_and_an_epoch_is_its_steps(name: str) -> None:
    case = "100-drop"
    loop, first = placed_or_skip(name, case)
    _, second = placed_or_skip(name, case)
    first, second = train(loop, first, STEPS), train(loop, second, STEPS)  # ten epochs, so both stand at a start
    once, again = (copied(loop.fetch(state)) for state in (first, second))
    assert [tensor.tobytes() for tensor in once] == [tensor.tobytes() for tensor in again]

    first = train(loop, first, CASES[case].steps)
    for _ in range(CASES[case].steps):
        second = train(loop, second, 1)

    whole, stepped = loop.fetch(first), loop.fetch(second)
    assert relative_error(whole, stepped) < 1e-6
    assert relative_error(whole, unflat(once)) > 1e-4, "the epoch did train"


@pytest.mark.parametrize("name", LOOPS)
def test_what_a_loop_says_of_itself(name: str) -> None:
    case = "32-keep"
    loop, state = placed_or_skip(name, case)

    kind, device_name = loop.placed_on(state)

    assert kind == "cpu"
    assert device_name
    assert loop.steps_per_call(CASES[case]) in (1, CASES[case].steps)
    assert all(type(key) is type(value) is str for key, value in loop.settings(state).items())


@pytest.mark.parametrize("name", LOOPS)
def test_ops_make_one_exact_step(name: str) -> None:
    case = "100-keep"
    loop = loop_or_skip(name)
    if type(loop).ops is Loop.ops:
        pytest.skip(f"{name} has no op-by-op form")
    state = loop.place(*inputs(case), CASES[case])
    ops = loop.ops(state)
    assert [(op.name, op.group) for op in ops] == list(STEP_OPS.items())

    for steps in (1, 2, 3, 4):  # the third batch is the short one, the fourth wraps round
        for op in ops:
            op.call()
            op.wait()
        newest = variables(ops)
        ours = unflat([np.asarray(getattr(newest, tensor)) for tensor in ("w1", "b1", "w2", "b2")])
        assert relative_error(ours, expected(case, steps)) < 1e-6

    assert relative_error(loop.fetch(state), inputs(case)[0]) == 0, "the loop's own parameters did not move"
    deep = loop.place(*inputs("deep-32-drop"), CASES["deep-32-drop"])
    with pytest.raises(Declined, match="two layers, got 3"):
        loop.ops(deep)


def test_the_loops_of_the_per_op_chapter_have_ops() -> None:
    for name in ("numpy", "tf-eager"):
        assert type(loop_or_skip(name)).ops is not Loop.ops
    loop, state = placed_or_skip("tf-step", "100-drop")
    with pytest.raises(Declined, match="TfStepLoop has no op-by-op form"):
        loop.ops(state)


def variables(ops: list[Any]) -> Any:
    """The namespace that the thirteen closures share."""
    return inspect.getclosurevars(ops[0].call).nonlocals["s"]


RATES = {
    "python float": 0.1,
    "np.float64": np.float64(0.1),
    "element of np.linspace": np.linspace(0.1, 0.3, 3)[0],
}


class Watched(np.ndarray):
    """An array that refuses to be computed with in anything but float32 (bools apart), temporaries included."""

    def __array_ufunc__(self, ufunc, method, *args, out=None, **kwargs):
        plain = [a.view(np.ndarray) if isinstance(a, Watched) else a for a in args]
        if out is not None:
            kwargs["out"] = tuple(o.view(np.ndarray) if isinstance(o, Watched) else o for o in out)
        found = getattr(ufunc, method)(*plain, **kwargs)
        assert found.dtype in (np.float32, np.bool_), f"{ufunc.__name__} made {found.dtype}"
        return found.view(Watched) if isinstance(found, np.ndarray) else found


@pytest.mark.parametrize("rate", RATES.values(), ids=RATES)
def test_numpy_makes_no_float64_temporary(rate: float) -> None:
    workload = CASES["32-keep"].model_copy(update={"learning_rate": Workload(learning_rate=rate).learning_rate})
    loop = make("numpy")
    state = loop.place(*inputs("32-keep"), workload)
    watched = state._replace(
        params=tuple(type(layer)(*(tensor.view(Watched) for tensor in layer)) for layer in state.params),
        batches=[(x.view(Watched), y) for x, y in state.batches],
    )

    trained = loop.run(watched, workload.steps)

    assert all(isinstance(tensor, Watched) for tensor in flat(trained.params))
    ops = loop.ops(state)
    for op in ops:
        op.call()
    made = {name: v.dtype for name, v in vars(variables(ops)).items() if hasattr(v, "dtype") and name != "y"}
    assert made.keys() >= {"x", "z1", "a1", "dz2", "dw1", "w1", "lr"}
    assert set(made.values()) == {np.dtype(np.float32)}


def test_watched_array_notices_a_float64_rate() -> None:
    with pytest.raises(AssertionError, match="multiply made float64"):
        _ = np.float64(0.1) * np.ones(3, np.float32).view(Watched)


@pytest.mark.parametrize("name", FLOORS)
def test_floors_learn_nothing(name: str) -> None:
    try:
        loop = make(name)
    except ImportError as error:
        pytest.skip(f"{name}: {error}")
    workload = CASES["100-keep"]
    state = train(loop, loop.place(*inputs("100-keep"), workload), workload.steps)
    assert loop.placed_on(state)[0] == "cpu"
    with pytest.raises(Declined, match="learns nothing"):
        loop.fetch(state)


def test_the_tuned_epoch_has_no_product_of_ynnpack(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, state = placed_or_skip("jax-epoch-tuned", "32-keep")
    assert "dot" in loop.program(state)
    assert "ynn_fusion" not in loop.program(state)
    assert loop.settings(state)["xla_cpu_experimental_ynn_fusion_type"] == "none"

    monkeypatch.setitem(sys.modules["overhead.loops.jax_"].WITHOUT_YNNPACK, "xla_no_such_option", "")
    with pytest.raises(Declined, match="no option xla_cpu_experimental_ynn_fusion_type, xla_no_such_option"):
        loop.place(*inputs("32-keep"), CASES["32-keep"])


def test_unknown_loops_and_devices_are_declined() -> None:
    with pytest.raises(Declined, match=r"loop must be one of numpy, .*got 'nympy'"):
        make("nympy")
    with pytest.raises(Declined, match="numpy runs on cpu only, got gpu"):
        make("numpy", "gpu")


def test_the_table_imports_no_framework() -> None:
    code = (
        "import sys, overhead.loops; "
        "print(*sorted({'tensorflow', 'keras', 'jax', 'cupy'} & sys.modules.keys()), end='')"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == ""


def test_tensorflow_is_set_up_twice_without_harm() -> None:
    pytest.importorskip("tensorflow")
    from overhead.loops import tensorflow_

    tensorflow_.see_only("cpu")
    tensorflow_.see_only("cpu")
    assert not tensorflow_.tf.config.experimental.tensor_float_32_execution_enabled()
    if not tensorflow_.tf.config.list_physical_devices("GPU"):
        with pytest.raises(Declined, match="must see a GPU, got none"):
            tensorflow_.see_only("gpu")
    else:
        with pytest.raises(Declined, match="needs a process of its own"):
            tensorflow_.see_only("gpu")


def test_keras_records_the_program_that_ran() -> None:
    case = "32-keep"
    for name, jit_compile, steps_per_execution in (("keras-fit", None, 1), ("keras-fit-tuned", "on", 8)):
        loop, state = placed_or_skip(name, case)
        found = loop.settings(state)
        assert found["backend"] == "tensorflow"
        assert found["steps_per_execution"] == str(steps_per_execution)
        assert found["jit_compile"] == jit_compile if jit_compile else found["jit_compile"] in ("on", "off")
    large = Workload(images=600, batch_size=512)
    loop = make("keras-fit-tuned")
    assert loop.settings(loop.place(init(large), data.for_workload(large), large))["jit_compile"] == "off"


def test_validated_keras_scores_whole_epochs_only() -> None:
    loop, state = placed_or_skip("keras-fit-validated", "100-drop")
    state = train(loop, state, 1)
    assert state.model.history.history.keys() == {"accuracy", "loss"}
    state = train(loop, state, 1 + 2 * 2)  # to the end of the epoch, then two whole ones
    assert len(state.model.history.history["val_accuracy"]) == 2
    with pytest.raises(Declined, match="got 0 in the synthetic data"):
        loop.place(*inputs("tiny-32-keep"), CASES["tiny-32-keep"])


def test_keras_on_jax() -> None:
    """The rows on Keras's other backend, in a process of their own where TensorFlow cannot be imported."""
    if os.environ["KERAS_BACKEND"] == "jax":
        with pytest.raises(Declined, match=r"KERAS_BACKEND must be tensorflow .*, got jax"):
            make("keras-fit")
        return
    pytest.importorskip("keras")
    pytest.importorskip("jax")
    code = "import sys, pytest; sys.modules['tensorflow'] = None; sys.exit(pytest.main(sys.argv[1:]))"
    arguments = ["-q", "-rs", "-p", "no:cacheprovider", "-k", "keras-jax-fit or keras_on_jax", __file__]
    env = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}

    found = subprocess.run([sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True)

    assert found.returncode == 0, found.stdout[-3000:]
    passed = re.search(r"(\d+) passed", found.stdout)
    assert passed, found.stdout[-3000:]
    # Agreement, repetition, what it says of itself, and this very test.
    assert int(passed[1]) == len(THEIR_CASES) + 3, found.stdout[-3000:]


@pytest.mark.slow
def test_labels_are_of_a_type_that_tensorflow_puts_on_a_gpu():
    """TensorFlow's own table of kernels: on any other device than the CPU, constants of int32 stay in host memory.

    They would be copied to the GPU at every step. The log of placements says where the labels were put.
    """
    code = (
        "import json, numpy as np\n"
        "from overhead.loops.tensorflow_ import device_labels, tf\n"
        "from tensorflow.python.framework import kernels\n"
        "tf.debugging.set_log_device_placement(True)\n"
        "labels = tf.constant(device_labels(np.arange(3, dtype=np.int32)))\n"
        "found = {}\n"
        "for kernel in kernels.get_registered_kernels_for_op('Const').kernel:\n"
        "    for types in [c.allowed_values.list.type for c in kernel.constraint if c.name == 'dtype']:\n"
        "        if kernel.device_type == 'DEFAULT':\n"
        "            found.update({tf.as_dtype(t).name: list(kernel.host_memory_arg) for t in types})\n"
        "print(json.dumps([labels.dtype.name, labels.backing_device, found.get('int32'), found.get('int64')]))\n"
    )
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    name, placed, of_int32, of_int64 = json.loads(done.stdout.splitlines()[-1])
    assert name == "int64"
    assert placed.endswith("CPU:0")
    assert "device:CPU:0" in done.stderr  # the log of placements
    assert of_int32 == ["output"]  # host memory
    assert of_int64 == []
