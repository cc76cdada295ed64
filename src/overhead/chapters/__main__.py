"""For scripts: `python -m overhead.chapters answers` lists what `make book` measures; `gpu`, what to measure first."""

from __future__ import annotations

import sys

from overhead.chapters import CHAPTERS


def listed(what: str) -> list[str]:
    """A line a chapter: its name, or for `gpu` its number and seconds in `quick`, the most telling first."""
    if what == "answers":
        return [name for name, info in CHAPTERS.items() if info.answers]
    if what == "gpu":
        ranked = sorted((info.on_gpu, name[:2], info.seconds[0]) for name, info in CHAPTERS.items() if info.on_gpu)
        return [f"{number} {seconds}" for _, number, seconds in ranked]
    raise SystemExit(f"python -m overhead.chapters: must be answers or gpu, got {what!r}")


if __name__ == "__main__":
    print("\n".join(listed(*sys.argv[1:2] or ["answers"])))
