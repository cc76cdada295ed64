"""The folders of a class on one page of dots, so that the room sees how far machines differ and argues about it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from overhead.book import folder as folders
from overhead.book.folder import FolderError
from overhead.chapters.batch_sweep.chapter import BatchSweep
from overhead.classroom import dots
from overhead.loops import LOOPS
from overhead.records.record import Record, write_text
from overhead.records.stats import Interval
from overhead.showing import tables

SWEEP = "05-batch-sweep"
MAX_FOLDERS = 200
MAX_NAME = 40  # characters of a folder's name that are shown
# Pairs of loops whose ratio the class compares; each is the slower one on the machines that were seen.
PAIRS = (("keras-fit", "jax-epoch"), ("keras-fit", "numpy"), ("numpy", "jax-epoch"), ("jax-step", "jax-epoch"))
SECONDS, FLOOR, RATIO = "seconds an epoch", "times the floor", "times as long"


class Student(NamedTuple):
    """One folder: its cleaned name, its machine in words, and panel → row → figure at the smallest batch size."""

    name: str
    machine: str
    batch_size: int
    figures: dict[str, dict[str, Interval]]


class Class(NamedTuple):
    """What could be read of a class, and what was left out, with the reason."""

    students: list[Student]
    left_out: dict[str, str]


def gathered(given: Sequence[Path]) -> Class:
    """Read every folder, as a stranger's; a broken one is left out. Raises `FolderError` for more than 200."""
    paths = [path for one in given for path in _hosts(one)]
    if len(paths) > MAX_FOLDERS:
        raise FolderError(f"a class must have at most {MAX_FOLDERS} folders, got {len(paths)}")
    students, left_out = [], {}
    for name, path in zip(names(paths), paths, strict=True):
        try:
            students.append(student(name, path))
        except FolderError as error:
            left_out[name] = str(error)
    return Class(students, left_out)


def _hosts(given: Path) -> list[Path]:
    """The folder itself, or the hosts' folders in it where it has no records of its own."""
    if given.is_dir() and not folders.chapters(given):
        inside = sorted(Path(entry.path) for entry in os.scandir(given) if entry.is_dir(follow_symlinks=False))
        return [path for path in inside if folders.chapters(path)] or [given]
    return [given]


def names(paths: Sequence[Path]) -> list[str]:
    """A name a folder, cleaned as text: its own, with its parent's where several have the same, numbered if need be."""
    parts = [[_clean(part) for part in path.absolute().parts[-3:]] for path in paths]
    for length in (1, 2, 3):
        found = ["/".join(of[-length:]) for of in parts]
        if len(set(found)) == len(found):
            return found
    seen: Counter[str] = Counter()
    for index, name in enumerate(found := [of[-1] for of in parts]):
        seen[name] += 1
        found[index] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return found


def _clean(name: str) -> str:
    shown = name if name.isprintable() else ascii(name)[1:-1]
    return shown if len(shown) <= MAX_NAME else shown[: MAX_NAME - 1] + "…"


def student(name: str, path: Path) -> Student:
    """What a folder says. Raises `FolderError` for one that is a link, is not there, or has no batch sweep."""
    if path.is_symlink() or not path.is_dir():
        raise FolderError("is no folder" if path.exists() and not path.is_symlink() else "there is no such folder")
    facts = folders.facts(path)
    machine = f"{facts.cpu_model}, {facts.cores_allowed} cores"
    rows = BatchSweep().rows(found := folders.read_records(path, SWEEP))
    timed = [r for r in rows if r.status == "ok" and r.timing and r.device == "cpu" and r.loop in LOOPS]
    if not timed:
        raise FolderError(f"{SWEEP}.jsonl has no loop that was timed")
    size = min(r.trained.batch_size for r in timed)
    try:
        figures = _figures([r for r in timed if r.trained.batch_size == size], found, size)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise FolderError(f"{SWEEP}.jsonl: its records lack what the page needs ({type(error).__name__})") from None
    return Student(name, machine, size, figures)


def _figures(rows: Sequence[Record], records: Sequence[Record], size: int) -> dict[str, dict[str, Interval]]:
    loops = {r.loop: r for r in rows}
    floor = tables.floor_of([r for r in records if r.op is None], size, "cpu")
    seconds = {name: tables.headline(r) for name, r in loops.items()}
    floors = {name: tables.ratio(r, floor[0]) for name, r in loops.items()} if floor else {}
    ratios = {
        f"{slow} / {fast}": tables.ratio(loops[slow], loops[fast]) for slow, fast in PAIRS if {slow, fast} <= set(loops)
    }
    panels = {SECONDS: seconds, FLOOR: floors, RATIO: ratios}
    return {panel: {name: i for name, i in found.items() if i is not None} for panel, found in panels.items()}


def write(found: Class, out: Path) -> None:
    """The page at `out`, whole or not at all. Raises `OSError` where it cannot be written."""
    write_text(out, page(found))


def page(found: Class) -> str:
    """One HTML page that needs no other file: a panel of dots for seconds, floors and ratios; who is who below."""
    sizes = Counter(student.batch_size for student in found.students)
    parts = [
        f"<h1>{len(found.students)} machines, one question</h1>",
        "<p>A dot is a folder, a bar its 95 % interval: the undisturbed epoch of each loop at its smallest batch size "
        f"({', '.join(f'{size:,}: {count} folders' for size, count in sorted(sizes.items()))}). "
        "The axis is logarithmic; the numbers are named below. Seconds differ by machine. Do the ratios?</p>",
    ]
    for panel, question in (
        (SECONDS, "Which machine is fast, and is it fast in every row?"),
        (FLOOR, "A loop at 1 does nothing but its products. In which row do the machines agree?"),
        (RATIO, "Same two loops, other machines: find the row of the table below that explains an outlier."),
    ):
        rows: dict[str, list[tuple[int, str, Interval]]] = {}
        for number, student in enumerate(found.students, 1):
            for name, interval in student.figures[panel].items():
                rows.setdefault(name, []).append((number, student.name, interval))
        if rows:
            parts.append(f"<h2>{escape(panel.capitalize())}</h2><p>{escape(question)}</p>{dots.drawn(rows, panel)}")
    lines = "".join(
        f"<tr><td>{number}</td><td>{escape(s.name)}</td><td>{escape(s.machine)}</td></tr>"
        for number, s in enumerate(found.students, 1)
    )
    parts.append(
        "<h2>Who is who</h2><table><thead><tr><th>dot</th><th>folder</th><th>machine</th></tr></thead>"
        f"<tbody>{lines}</tbody></table>"
    )
    if found.left_out:
        lines = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in found.left_out.items())
        parts.append(f"<h2>Left out</h2><ul>{lines}</ul>")
    return dots.document("A class of machines", "\n".join(parts))
