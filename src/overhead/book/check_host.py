"""A contributed host's folder, looked through before it is taken in: whole, private, harmless. In words."""

from __future__ import annotations

import base64
import binascii
import getpass
import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from overhead.book import build, folder
from overhead.book.folder import FolderError
from overhead.chapters.provenance import checkout

# What a folder of results may hold beside a pair a chapter.
OTHER_FILES = {"host.json", "calibration.json"}
PICTURE = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=]*)")
PRIVATE = {
    "an absolute path": re.compile(
        r"(?<![\w.~/-])/(?:home|Users|root|tmp|var|opt|mnt|media|srv|data|scratch|work|etc|usr|private)/[\w.-]+"
        r"|(?<!\w)[A-Za-z]:\\+(?:Users|home)\\+\w+"
    ),
    "an address": re.compile(
        r"(?<![\w.])(?:10|127|172|192)(?:\.\d{1,3}){3}(?![\w.])|(?:\d{1,3}\.){3}\d{1,3}:\d{2,5}\b"
    ),
    "a network card's number": re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.I),
    "a device's or machine's number": re.compile(
        r"\b(?:GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.I
    ),
    "an e-mail address": re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}\b", re.I),
    "a token": re.compile(
        r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}|sk-[\w-]{20,}|AKIA[0-9A-Z]{16}"
        r"|xox[abpr]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,})|-----BEGIN [A-Z ]*PRIVATE KEY"
    ),
}
ACTIVE = {
    "a script": re.compile(r"<script\b|javascript:|\bon(?:error|load|click|mouse\w+|focus)\s*=", re.I),
    "an embedded page": re.compile(r"<(?:iframe|object|embed|base|form|meta|link|svg|video|audio)\b", re.I),
    "a directive that reads files or passes markup": re.compile(
        r"\{(?:include|literalinclude|csv-table|download|raw|eval-rst|figure|image)\}", re.I
    ),
}
SHORTEST_NAME = 4  # a shorter host or user name is a word that stands everywhere


def findings(host: Path) -> list[str]:
    """What speaks against taking this folder in, a line each: file, place and what it is; empty for a good one.

    Raises `BookError` outside a checkout, whose notebooks the pages are made of.
    """
    root = checkout()
    if root is None:
        raise build.BookError("check-host needs a checkout of the book; its notebooks are not in the package")
    if not host.is_dir():
        return [f"{host.name}: there is no such folder"]
    try:
        folder.check_name(host)
    except FolderError as error:
        return [f"{host.name}: {error}"]
    return [f"{host.name}/{line}" for line in dict.fromkeys([*_whole(root, host), *_strange(host), *_told(host)])]


def _whole(root: Path, host: Path) -> Iterator[str]:
    try:
        folder.facts(host)
    except FolderError as error:
        yield str(error)
    chapters = folder.chapters(host)
    if not chapters:
        yield ": holds no chapter"
    for chapter in chapters:
        try:
            build.page_of(root, host, chapter)
        except FolderError as error:
            yield str(error)


def _strange(host: Path) -> Iterator[str]:
    expected = OTHER_FILES | {f"{chapter}{end}" for chapter in folder.chapters(host) for end in (".ipynb", ".jsonl")}
    for entry in sorted(os.scandir(host), key=lambda entry: entry.name):
        name = entry.name if entry.name.isprintable() else ascii(entry.name)
        if entry.is_symlink() or not entry.is_file():
            yield f"{name} is no regular file"
        elif entry.name not in expected:
            yield f"{name} belongs to no chapter; leave it out"


def _told(host: Path) -> Iterator[str]:
    """What is private or active in the text of each file."""
    patterns = {**PRIVATE, **ACTIVE}
    own = [name for name in (socket.gethostname(), _user()) if len(name) > SHORTEST_NAME]
    for path in sorted(host.iterdir()):
        if path.suffix not in folder.MAX_BYTES or path.is_symlink() or not path.is_file():
            continue
        try:
            text = folder.read_text(path)
        except FolderError as error:
            yield str(error)
            continue
        for picture in PICTURE.findall(text):
            if told := _picture_tells(picture):
                yield f"{path.name}: a figure's PNG says {told!r}"
        for number, line in enumerate(PICTURE.sub("", text).split("\n"), 1):
            for what, pattern in patterns.items():
                if match := pattern.search(line):
                    yield f"{path.name}: line {number} holds {what}: {match[0][:60]!a}"
            for name in own:
                if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", line):
                    yield f"{path.name}: line {number} holds this machine's or user's name: {name}"
        if path.suffix == ".ipynb":
            yield from _metadata(path, text)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no entry for this user; no module `pwd` on Windows
        return ""


def _picture_tells(encoded: str) -> str | None:
    """The first text in a PNG: what drew it, and maybe where."""
    try:
        data = base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return None
    for key, value in re.findall(rb"(?:tEXt|iTXt|zTXt|eXIf)([^\0]{1,79})\0([^\0]{0,60})", data):
        if not value.startswith(b"Matplotlib version"):
            return f"{key.decode('latin-1')}: {value.decode('latin-1')}"
    return None


def _metadata(path: Path, text: str) -> Iterator[str]:
    """Metadata that steer how a page is built; the build does not take them over."""
    try:
        notebook: dict[str, Any] = folder.parse(text, path.name)
    except FolderError:  # said already
        return
    steering = set(notebook.get("metadata") or {}) - {"kernelspec", "language_info", "papermill", "overhead"}
    if steering:
        yield f"{path.name}: metadata {json.dumps(sorted(steering))[:80]} are none of ours"
