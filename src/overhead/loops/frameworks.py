"""What a framework is to this book: a row each, and a default row for one that nobody has described. Imports none.

A name is that of the package which a loop imports (`LoopInfo.framework`). Whoever needs to know of a framework asks
`of(name)`, which has an answer for every name.
"""

from __future__ import annotations

import importlib.metadata
from typing import NamedTuple

from overhead.loops import FLOORS, LOOPS, MANY


class Framework(NamedTuple):
    """A row of the table. The defaults are those of a framework that is not in it."""

    name: str  # the package that is imported
    packages: tuple[str, ...] = ()  # distributions that carry it, the usual one first; none: one of the same name
    install: str = ""
    install_gpu: str = ""  # where it differs
    beside: tuple[str, ...] = ()  # frameworks and distributions whose versions stand beside its own
    process_bytes: int = 900_000_000  # resident, of a process that imported it and trained nothing; rounded up
    colours: tuple[str, str] = ("#5B3BC4", "#8F7BFF")  # on light pages, on dark ones
    probes: str = ""  # module in measure/probes; none: it has no probes
    brings_cuda: tuple[str, ...] = ()  # distributions with a CUDA of their own; its version ends their name
    only_gpu: bool = False
    short: str = ""  # how names of loops begin with it; none: as it is imported
    variables: tuple[str, ...] = ()  # beginnings of environment variables that change what is measured

    @property
    def shown(self) -> str:
        """Its name in tables and in the names of its loops."""
        return self.short or self.name

    @property
    def distributions(self) -> tuple[str, ...]:
        """Where its version may stand, the usual one first."""
        return self.packages or (self.name,)

    @property
    def hint(self) -> str:
        """The command that installs it."""
        return self.install or f"pip install {self.distributions[0]}"


EXTRAS = "pip install 'overhead[cpu]', or 'overhead[gpu]' on a GPU host"

# Colours: any two are at least 20 apart for deuteranopes (CIE 1976), and have 4.5:1 and more against the page.
TABLE: dict[str, Framework] = {
    row.name: row
    for row in (
        Framework(
            "numpy",
            install="pip install numpy",
            process_bytes=120_000_000,
            colours=("#0072B2", "#56B4E9"),
            probes="numpy_",
            variables=("NPY_",),
        ),
        Framework(
            "jax",
            install=EXTRAS,
            install_gpu="pip install 'jax[cuda12]'",
            beside=("jaxlib",),
            process_bytes=420_000_000,
            colours=("#C24E00", "#FF8A3D"),
            probes="jax_",
            brings_cuda=("jax-cuda12-plugin", "jax-cuda13-plugin"),
            variables=("JAX_", "XLA_"),
        ),
        Framework(
            "tensorflow",
            packages=("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-macos"),
            install=EXTRAS,
            install_gpu="pip install 'tensorflow[and-cuda]'",
            beside=("keras",),
            process_bytes=900_000_000,
            colours=("#4D3B00", "#FFE680"),
            probes="tensorflow_",
            brings_cuda=("nvidia-cuda-runtime-cu12",),
            short="tf",
            # By their second word: Terraform's variables begin with TF_ too.
            variables=tuple(
                f"TF_{word}"
                for word in ("NUM", "XLA", "CPP", "ENABLE", "DISABLE", "FORCE", "GPU", "CUD", "DETERM", "USE")
            ),
        ),
        Framework(
            "keras",
            install="pip install keras",
            beside=("jax", "jaxlib"),
            colours=("#8E4585", "#E39AD0"),
            variables=("KERAS_",),
        ),
        Framework(
            "cupy",
            packages=("cupy-cuda12x", "cupy-cuda13x", "cupy-cuda11x", "cupy"),
            install="pip install 'overhead[gpu]' on a host with an NVIDIA GPU",
            colours=("#007A5E", "#3FCFA4"),
            probes="cupy_",
            brings_cuda=("cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x"),
            only_gpu=True,
            variables=("CUPY_",),
        ),
    )
}


def of(name: str) -> Framework:
    """The row of a framework, or the default row of one that is not in the table."""
    return TABLE.get(name) or Framework(name)


def version(row: Framework) -> str | None:
    """The version of the first of a framework's distributions that is installed; None without one."""
    for distribution in row.distributions:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def listed() -> tuple[Framework, ...]:
    """The table, and a default row for each framework that only a row of the loops names."""
    named = [info.framework for loops in (LOOPS, FLOORS, MANY) for info in loops.values()]
    return tuple(of(name) for name in dict.fromkeys([*TABLE, *named]))


def of_loop(label: str) -> Framework:
    """Whose loop it is that a label begins with, by its name ("keras-fit") or by its row in the table of loops."""
    loop = label.partition(" ")[0]
    for row in TABLE.values():
        if row.shown == loop.partition("-")[0]:
            return row
    info = LOOPS.get(loop) or MANY.get(loop)
    return of(info.framework if info else loop)
