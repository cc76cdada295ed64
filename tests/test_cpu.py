"""Names and instruction sets of processors, from what Linux writes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.machine import cpu, host

ARM = """processor\t: {n}
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm aes {more}
CPU implementer\t: {implementer}
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: {part}
CPU revision\t: 1

"""


def arm(*cores: tuple[str, str], more: str = "") -> str:
    return "".join(ARM.format(n=n, implementer=i, part=p, more=more) for n, (i, p) in enumerate(cores))


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    def write(text: str) -> None:
        (tmp_path / "cpuinfo").write_text(text)
        monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")

    return write


@pytest.mark.parametrize(
    ("cores", "more", "name", "simd"),
    [
        ([("0x41", "0xd0c")] * 4, "", "ARM Neoverse-N1", "NEON"),
        ([("0x41", "0xd40")] * 2, "sve", "ARM Neoverse-V1", "SVE"),
        ([("0x41", "0xd4f")], "sve sve2", "ARM Neoverse-V2", "SVE2"),
        ([("0x41", "0xd03"), ("0x41", "0xd09"), ("0x41", "0xd03")], "", "ARM Cortex-A53 + ARM Cortex-A73", "NEON"),
        ([("0xc0", "0xac3")], "", "Ampere Ampere-1", "NEON"),
        ([("0x41", "0xfff")], "", "ARM part 0xfff", "NEON"),
        ([("0x99", "0x001")], "", "implementer 0x99 part 0x001", "NEON"),
    ],
)
def test_an_arm_core_is_named_by_its_implementer_and_part(pretend, cores, more, name, simd):
    pretend(arm(*cores, more=more))
    assert cpu.cpu_model() == host.facts()["cpu_model"] == name
    assert cpu.best_simd(cpu.cpu_flags()) == simd


def test_unlike_arm_hosts_are_told_apart(pretend):
    pretend(arm(("0x41", "0xd0c")))
    one = host.facts()
    pretend(arm(("0x41", "0xd49")))
    assert host.other_host(one, host.facts()) == "cpu_model was 'ARM Neoverse-N1', is 'ARM Neoverse-N2'"


@pytest.mark.parametrize("text", ["", "CPU implementer\t: gibberish\nCPU part\t: \n", "model name\n"])
def test_a_cpuinfo_that_says_nothing_leaves_the_architecture(pretend, text):
    pretend(text)
    assert cpu.cpu_model()
    assert cpu.best_simd(cpu.cpu_flags()) == "unknown"


def test_an_x86_core_says_its_name(pretend):
    pretend("processor\t: 0\nmodel name\t: AMD EPYC 9354\nflags\t\t: fpu sse2 avx avx2\n")
    assert (cpu.cpu_model(), cpu.best_simd(cpu.cpu_flags())) == ("AMD EPYC 9354", "AVX2")


@given(st.sets(st.sampled_from(["sse2", "avx", "avx2", "avx512f", "fma"])))
def test_the_widest_instructions_are_found(flags):
    order = ["unknown", "SSE", "AVX", "AVX2", "AVX-512"]
    best = cpu.best_simd(flags)
    assert best in order
    assert order.index(best) == max(
        [0, *(i + 1 for i, f in enumerate(["sse2", "avx", "avx2", "avx512f"]) if f in flags)]
    )
