"""Results to book: table of contents, fragments, then jupyter-book. The only place that knows it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from overhead.book import calculator, classes, comparison, finish, fragments, front, ledger, pages, policy, status
from overhead.book import folder as folders
from overhead.book import hosts as host_pages
from overhead.book.folder import FolderError
from overhead.chapters.provenance import checkout

PARTS_BEFORE = {"The question": ["book/intro", "book/article", "book/method", "book/ledger"]}
PARTS_AFTER = {
    "In class": [f"book/workshop/{page}" for page in ("plan", "questions", "exercises", "test", "guesses")],
    "Hosts": ["book/hosts", "book/compare", "book/status"],
    "Reference": ["book/loops", "book/glossary", "book/reproduce", "book/references"],
}
PROSE = [page for parts in (PARTS_BEFORE, PARTS_AFTER) for pages in parts.values() for page in pages]
MAX_PAGE_BYTES = 3_000_000
INCLUDE = re.compile(r"^```\{include\} (generated/\w+\.md)\n```$", re.M)
# No directive of a page may read a file or pass markup through, whoever wrote it.
DOCUTILS = "[general]\nfile_insertion_enabled: false\nraw_enabled: false\n"


class BookError(RuntimeError):
    """A book that cannot be built or is not whole; names the page and what is wrong with it."""


class Survey(NamedTuple):
    """What of the results makes pages, and what does not."""

    hosts: dict[str, dict[str, dict[str, Any]]]  # host → chapter → the notebook of its page
    left_out: list[str]  # "results/NAME: left out: reason"


def build(results: Path, out: Path, say: Callable[[str], None] = lambda line: None) -> Path:
    """Render everything under `results` into `out`/html and check it; measures nothing.

    What cannot be used is left out, with a note on the first page, and said to `say`, a line each.
    Returns the path of index.html. Raises `BookError` for results of which nothing can be used, for any warning of
    the build, and for a page that lacks its outputs; the book that was there before stays then.
    """
    root = checkout()
    if root is None:
        raise BookError("the book is built in a checkout of its repository; its pages are not in the package")
    if fault := builder_fault():
        raise BookError(fault)
    with _alone(out):
        found = survey(root, results)
        if not found.hosts:
            raise BookError("\n".join(found.left_out))
        for line in found.left_out:
            say(line)
        source = out / "source"
        shutil.rmtree(source, ignore_errors=True)
        shutil.rmtree(out / "build", ignore_errors=True)
        slots = assemble(root, results, found, source)
        html = _jupyter_book(source, out / "build")
        calculator.on_pages(html, {host: source / "results" / host for host in found.hosts})
        finish.finish(html, slots)
        policy.set_policies(html, {f"results/{host}/{c}" for host, made in found.hosts.items() for c in made})
        check(found.hosts, html)
        shutil.rmtree(out / "old", ignore_errors=True)
        if (out / "html").exists():
            os.replace(out / "html", out / "old")
        os.replace(html, out / "html")
        for done in ("old", "build"):
            shutil.rmtree(out / done, ignore_errors=True)
    return out / "html" / "index.html"


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keep a second build out of the same folder. Raises `BookError` for it."""
    out.mkdir(parents=True, exist_ok=True)
    handle = os.open(out / ".building", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    try:
        try:
            _lock(handle)
        except OSError:
            raise BookError(f"{out.name}: another build writes there; wait for it, or give another --out") from None
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    """Lock a file for this process. Raises `OSError` where another has it."""
    try:
        fcntl: Any = import_module("fcntl")
    except ImportError:  # native Windows
        msvcrt: Any = import_module("msvcrt")
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def builder_fault() -> str | None:
    """Why the installed Jupyter Book cannot build this book, or None: version 2 ignores `_config.yml`."""
    try:
        version = metadata.version("jupyter-book")
        metadata.version("nh3")
    except metadata.PackageNotFoundError as error:
        return f"{error.name} is not installed; pip install 'overhead[book]'"
    return None if version.startswith("1.") else f"jupyter-book must be a version 1, got {version}"


def survey(root: Path, results: Path) -> Survey:
    """Read every host's folder as a stranger's. Raises `BookError` for a folder of results that holds none.

    A chapter that cannot be used is left out, and a host without its facts or without any chapter.
    """
    try:
        names = folders.hosts(results)
    except FolderError as error:
        raise BookError(str(error)) from None
    hosts: dict[str, dict[str, dict[str, Any]]] = {}
    left_out = []
    for name in names:
        shown = name if name.isprintable() else ascii(name)
        try:
            chapters = folders.chapters(results / name)
            folders.check_name(results / name)
            if chapters:
                folders.facts(results / name)
        except FolderError as error:
            left_out.append(f"results/{shown}: left out: {error}")
            continue
        made = {}
        for chapter in chapters:
            try:
                made[chapter] = page_of(root, results / name, chapter)
            except FolderError as error:
                left_out.append(f"results/{shown}/{chapter}: left out: {error}")
        if made:
            hosts[name] = made
    if not hosts and not left_out:
        raise BookError(f"{results.name}: holds no chapter; measure first (overhead run)")
    return Survey(hosts, left_out)


def page_of(root: Path, host: Path, chapter: str) -> dict[str, Any]:
    """The notebook of a chapter's page, once its records were read and say what a page needs. Raises `FolderError`."""
    read = folders.read_records(host, chapter)
    if not read:
        raise FolderError(f"{chapter}.jsonl holds no record")
    try:
        if chapter == fragments.SWEEP:
            fragments.headline_of(host.name, read, folders.facts(host))
        fragments.provenance(read, chapter, [])
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise FolderError(f"{chapter}.jsonl: its records lack what a page needs ({error!r:.80})") from None
    return pages.page(root, host, chapter)


def assemble(root: Path, results: Path, found: Survey, source: Path) -> dict[str, str]:
    """Put the book's source together; returns what is to be put into marked places once the pages are built."""
    shutil.copytree(root / "book", source / "book")
    shutil.copytree(root / "book" / "_static", source / "_static", dirs_exist_ok=True)
    shutil.copy(root / "_config.yml", source / "_config.yml")
    _write(source / "docutils.conf", DOCUTILS)
    hosts = {host: list(made) for host, made in found.hosts.items()}
    for host, made in found.hosts.items():
        took = status.seconds_of(results / host)
        _write(source / "results" / host / "host.json", folders.read_text(results / host / "host.json"))
        for chapter, page in made.items():
            read = folders.read_records(results / host, chapter)
            lines = folders.read_text(results / host / f"{chapter}.jsonl")
            _write(source / "results" / host / f"{chapter}.jsonl", lines)
            others = [other for other in hosts if other != host and chapter in hosts[other]]
            last = {"cell_type": "markdown", "id": "provenance", "metadata": {}}
            last["source"] = fragments.provenance(read, chapter, others)
            words = host_pages.made_by(host, chapter, page, read, took.get(chapter))
            first, *rest = host_pages.with_command(classes.covered(page, host, chapter, read)["cells"], words)
            block = host_pages.switcher(host, chapter, hosts)
            first = {**first, "source": host_pages.under_title("".join(first["source"]), block, host)}
            note = fragments.stale_note(read)
            top = [{"cell_type": "markdown", "id": "stale", "metadata": {}, "source": note}] if note else []
            text = json.dumps({**page, "cells": [first, *top, *rest, last]}, ensure_ascii=False)
            _write(source / "results" / host / f"{chapter}.ipynb", text)
    made = front.front(results, hosts)
    titles = {chapter: fragments.title_of(root, chapter) for chapters in hosts.values() for chapter in chapters}
    generated = {
        "generated/answers.md": made.answers,
        "generated/gains.md": made.what_helps,
        "generated/prices.md": made.prices,
        "generated/headline.md": fragments.headline(results, hosts, found.left_out),
        "generated/agreement.md": fragments.agreement_rule(),
        "generated/presets.md": fragments.presets_table(),
    }
    said = ledger.found_on(results, hosts)
    _write(source / "book" / "loops.md", fragments.loops_page(root))
    _write(source / "book" / "ledger.md", ledger.page(root, said))
    _write(source / "book" / "hosts.md", host_pages.page(root, results, found.hosts))
    _write(source / "book" / "status.md", host_pages.status_page(root, results, found.hosts))
    _write(source / "book" / "compare.md", comparison.page(results, hosts))
    classes.add(root, source)
    for page in PROSE:
        path = source / f"{page}.md"
        if not path.exists():
            raise BookError(f"{page}.md is missing")
        text = INCLUDE.sub(lambda match: generated[match[1]], path.read_text(encoding="utf-8"))
        _write(path, fragments.expand(ledger.expand(text, said), root, hosts))
    _write(source / "_toc.yml", yaml.safe_dump(contents(hosts, titles), sort_keys=False, allow_unicode=True))
    return made.slots


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def contents(hosts: Mapping[str, Sequence[str]], titles: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The table of contents: the book's prose, a part a host, reference pages. Adding a host needs no edit.

    `titles`: of the chapters, which the list of a host's pages shows without the host's name.
    """
    measured = {
        f"Measured on {host}": [f"results/{host}/{chapter}" for chapter in chapters] for host, chapters in hosts.items()
    }
    parts = {**PARTS_BEFORE, **measured, **PARTS_AFTER}
    named = {
        page: title for pages in measured.values() for page in pages if (title := (titles or {}).get(Path(page).name))
    }
    return {
        "format": "jb-book",
        "root": PROSE[0],
        "parts": [
            {
                "caption": caption,
                "chapters": [
                    {"file": page, **({"title": named[page]} if page in named else {})}
                    for page in pages
                    if page != PROSE[0]
                ],
            }
            for caption, pages in parts.items()
        ],
    }


def _jupyter_book(source: Path, out: Path) -> Path:
    # Should we be killed, it must not go on writing where the next build begins.
    code = "from overhead.machine import alone; alone.die_with_parent(); from jupyter_book.cli.main import main; main()"
    command = [
        sys.executable, "-c", code, "build", str(source),
        "--path-output", str(out), "--toc", str(source / "_toc.yml"), "--config", str(source / "_config.yml"),
        "--warningiserror", "--keep-going", "--all", "--quiet",
    ]  # fmt: skip
    plain = {**os.environ, "NO_COLOR": "1", "DOCUTILSCONFIG": str(source / "docutils.conf")}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", cwd=source, env=plain)
    page = out / "_build" / "html"
    if done.returncode < 0:
        raise BookError(f"jupyter-book was ended by {signal.Signals(-done.returncode).name}; the old book stays")
    if done.returncode != 0 or not (page / "index.html").exists():
        lines = [line for line in (done.stderr + done.stdout).splitlines() if re.search(r"WARNING|ERROR|rror:", line)]
        said = "\n".join(lines[:12]) or done.stderr[-600:] or "no page was written"
        raise BookError("jupyter-book: " + said.replace(f"{source}/", ""))
    return page


def check(hosts: Mapping[str, Mapping[str, dict[str, Any]]], html: Path) -> None:
    """Every page of the contents exists, with its figures and tables, and opens offline. Raises `BookError`."""
    for page in PROSE:
        if not (html / f"{page}.html").exists():
            raise BookError(f"{page}.html was not built")
    for host, chapters in hosts.items():
        for chapter, notebook in chapters.items():
            name = f"results/{host}/{chapter}.html"
            if not (html / name).exists():
                raise BookError(f"{name} was not built")
            if (size := (html / name).stat().st_size) > MAX_PAGE_BYTES:
                raise BookError(f"{name}: must be at most {MAX_PAGE_BYTES} bytes, got {size}")
            text = (html / name).read_text(encoding="utf-8")
            made = pages.count_outputs(notebook)
            for kind, marker in pages.OUTPUTS.items():
                shown = text.count(marker)
                if shown < made[kind] or not made[kind]:
                    raise BookError(f"{name}: shows {shown} {kind}, its notebook made {made[kind]}")
    for path in sorted([*html.rglob("*.html"), *html.rglob("*.css")]):
        text = path.read_text(encoding="utf-8")
        loads = policy.foreign(text) if path.suffix == ".html" else policy.foreign_style(text)
        if loads:
            raise BookError(f"{path.relative_to(html)}: must open without a network, loads {loads}")
