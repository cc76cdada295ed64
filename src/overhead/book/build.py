"""Results to book: table of contents, fragments, then jupyter-book. The only place that knows it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from overhead.book import (
    calculator,
    classes,
    comparison,
    exhibits,
    finish,
    fragments,
    front,
    ledger,
    pages,
    parameters,
    parts,
    policy,
    slides,
    whole_page,
)
from overhead.book import folder as folders
from overhead.book import hosts as host_pages
from overhead.book.contents import PROSE, contents
from overhead.book.folder import FolderError
from overhead.chapters.provenance import checkout

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
        slots, of = assemble(root, results, found, source)
        html = _jupyter_book(source, out / "build")
        calculator.on_pages(html, {host: source / "results" / host for host in found.hosts})
        finish.finish(html, slots)
        slides.write(html, found.hosts, of)
        measured = {f"results/{h}/{name}" for h, made in found.hosts.items() for c in made for name in parts.names(c)}
        policy.set_policies(html, measured)
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


def assemble(
    root: Path, results: Path, found: Survey, source: Path
) -> tuple[dict[str, str], dict[str, whole_page.OfHost]]:
    """Put the book's source together.

    Returns what is to be put into marked places once the pages are built, and what the pages of each host share.
    """
    shutil.copytree(root / "book", source / "book")
    shutil.copytree(root / "book" / "_static", source / "_static", dirs_exist_ok=True)
    shutil.copy(root / "_config.yml", source / "_config.yml")
    _write(source / "docutils.conf", DOCUTILS)
    hosts = {host: list(made) for host, made in found.hosts.items()}
    said, slots = ledger.found_on(results, hosts), {}
    shared = {host: whole_page.host_of(results / host, host, hosts, said[host]) for host in hosts}
    for number, (host, made) in enumerate(found.hosts.items()):
        _write(source / "results" / host / "host.json", folders.read_text(results / host / "host.json"))
        for chapter, page in made.items():
            lines = folders.read_text(results / host / f"{chapter}.jsonl")
            _write(source / "results" / host / f"{chapter}.jsonl", lines)
            cells, slot = whole_page.cells(shared[host], chapter, page, f"overhead-slot-story-{number}-{chapter}")
            slots |= slot
            for name, some in parts.split(chapter, cells, host, host_pages.switcher(host, chapter, hosts)).items():
                text = json.dumps({**page, "cells": some}, ensure_ascii=False)
                _write(source / "results" / host / f"{name}.ipynb", text)
    made = front.front(results, hosts)
    titles = {chapter: fragments.title_of(root, chapter) for chapters in hosts.values() for chapter in chapters}
    titles |= parts.titles()
    generated = {
        "generated/answers.md": made.answers,
        "generated/gains.md": made.what_helps,
        "generated/prices.md": made.prices,
        "generated/headline.md": fragments.headline(results, hosts, found.left_out),
        "generated/agreement.md": fragments.agreement_rule(),
        "generated/presets.md": fragments.presets_table(),
        **classes.plans(results, hosts),
    }
    for name, text in exhibits.pages(root):
        _write(source / "book" / f"{name}.md", text)
    _write(source / "book" / "parameters.md", parameters.page(root))
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
    return {**made.slots, **slots, "overhead-slot-slides": slides.links(hosts)}, shared


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


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
            text = ""
            for name in (f"results/{host}/{page}.html" for page in parts.names(chapter)):
                if not (html / name).exists():
                    raise BookError(f"{name} was not built")
                if (size := (html / name).stat().st_size) > MAX_PAGE_BYTES:
                    raise BookError(f"{name}: must be at most {MAX_PAGE_BYTES} bytes, got {size}")
                text += (html / name).read_text(encoding="utf-8")
            made = pages.count_outputs(notebook)
            for kind, marker in pages.OUTPUTS.items():
                shown = text.count(marker)
                if shown < made[kind] or not made[kind]:
                    raise BookError(
                        f"results/{host}/{chapter}.html: shows {shown} {kind}, its notebook made {made[kind]}"
                    )
    for path in sorted([*html.rglob("*.html"), *html.rglob("*.css")]):
        text = path.read_text(encoding="utf-8")
        loads = policy.foreign(text) if path.suffix == ".html" else policy.foreign_style(text)
        if loads:
            raise BookError(f"{path.relative_to(html)}: must open without a network, loads {loads}")
