"""Of the environment, a page shows settings: never an address, a token, a path or a device's own number."""

from __future__ import annotations

import pytest

from overhead.machine.environment import shown, telling_environment


@pytest.mark.parametrize(
    "value",
    [
        "2", "0,1", "-1", "true", "AVX512F AVX2", "AVX512_CORE", "Haswell", "float32", "1.5", "0-3",
        "--xla_cpu_max_isa=AVX2 --xla_force_host_platform_device_count=8", "--tf_xla_auto_jit=2",
        "glibc.malloc.trim_threshold=131072:glibc.malloc.arena_max=1", "",
        "--xla_cpu_experimental_ynn_fusion_type=",
    ],
)  # fmt: skip
def test_settings_are_shown(value: str) -> None:
    assert shown(value) == value


@pytest.mark.parametrize(
    "value",
    [
        "10.0.0.7:1234", "node-17.example.org:8476", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "fe80::1", "::1",
        "2001:480:1:2", "0320219012345", "--xla_gpu_x=secret", "someone",
    ],
)  # fmt: skip
def test_a_value_is_shown_only_where_it_is_made_of_known_words(value: str) -> None:
    assert shown(value) == "(set)"


@pytest.mark.parametrize("value", ["GPU-5a1d2c3b", "0,GPU-5a1d2c3b", "MIG-5a1d2c3b"])
def test_a_card_is_not_told_by_its_number(value: str) -> None:
    assert shown(value) == "(a UUID)"


def test_only_variables_that_change_a_measurement_are_told_of() -> None:
    found = telling_environment({"JAX_COORDINATOR_ADDRESS": "10.0.0.7:1234", "HOME": "/x", "OMP_NUM_THREADS": "2"})

    assert found == {"JAX_COORDINATOR_ADDRESS": "(set)", "OMP_NUM_THREADS": "2"}
