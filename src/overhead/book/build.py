"""Results to book: table of contents, fragments, then jupyter-book. The only place that knows it."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from overhead.book import execute, fragments
from overhead.chapters import CHAPTERS
from overhead.chapters.base import HOST_NAME, checkout
from overhead.records import record as records

PARTS_BEFORE = {"The question": ["book/intro", "book/article", "book/method"]}
PARTS_AFTER = {
    "In class": ["book/workshop/plan", "book/workshop/questions"],
    "Reference": ["book/loops", "book/glossary", "book/reproduce", "book/references"],
}
PROSE = [page for parts in (PARTS_BEFORE, PARTS_AFTER) for pages in parts.values() for page in pages]
MAX_PAGE_BYTES = 3_000_000
OUTPUTS = {"figures": 'class="overhead-figure for-light"', "tables": 'class="overhead-table"'}
# What a browser would fetch from another address while it opens the page; a link that a reader follows is none.
FOREIGN = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["']((?:https?:)?//[^"']*)""", re.I)
# Cells that show nothing by design: parameters, and what a notebook asks the book to hide.
SILENT = {"parameters", "injected-parameters", "remove-output", "remove-cell", "hide-output"}
LONGEST_CALL = 3  # lines; a code cell up to this long is shown small, since it only calls


class BookError(RuntimeError):
    """A book that cannot be built or is not whole; names the page and what is wrong with it."""


def build(results: Path, out: Path) -> Path:
    """Render everything under `results` into `out`/html and check it; measures nothing.

    Returns the path of index.html. Raises `BookError` for results that are not whole, for any warning of
    the build, and for a page that lacks its outputs; the book that was there before stays then.
    """
    root = checkout()
    if root is None:
        raise BookError("the book is built in a checkout of its repository; its pages are not in the package")
    if fault := builder_fault():
        raise BookError(fault)
    hosts = execute.hosts(results)
    if fault := results_fault(results, hosts):
        raise BookError(f"results/{fault}")
    source = out / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(out / "build", ignore_errors=True)
    assemble(root, results, hosts, source)
    html = _jupyter_book(source, out / "build")
    check(source, html, hosts)
    shutil.rmtree(out / "html", ignore_errors=True)
    shutil.move(html, out / "html")
    shutil.rmtree(out / "build")
    return out / "html" / "index.html"


def builder_fault() -> str | None:
    """Why the installed Jupyter Book cannot build this book, or None: version 2 ignores `_config.yml`."""
    try:
        version = metadata.version("jupyter-book")
    except metadata.PackageNotFoundError:
        return "jupyter-book is not installed; pip install 'overhead[book]'"
    return None if version.startswith("1.") else f"jupyter-book must be a version 1, got {version}"


def results_fault(results: Path, hosts: Mapping[str, list[str]]) -> str | None:
    """Why what lies under `results` is not whole, naming the file, or None. Files of no chapter are not looked at."""
    for host in hosts:
        if not HOST_NAME.fullmatch(host):
            return f"{host}: a host's name must be 1 to 64 letters, digits, '-' or '_'; rename the folder"
    for lines in sorted(results.glob("*/*.jsonl")):
        if (
            lines.stem in CHAPTERS
            and not lines.parent.name.startswith(".")
            and not lines.with_suffix(".ipynb").exists()
        ):
            return f"{lines.parent.name}/{lines.stem}.ipynb is missing; run the notebook again"
    for host, chapters in hosts.items():
        if not (results / host / "host.json").exists():
            return f"{host}/host.json is missing; run a notebook there again"
        for chapter in chapters:
            if fault := execute.pair_fault(results / host, chapter):
                return fault
            if fault := outputs_fault(read_notebook(results / host / f"{chapter}.ipynb")):
                return f"{host}/{chapter}.ipynb: {fault}; run the notebook again"
    return None


def assemble(root: Path, results: Path, hosts: Mapping[str, list[str]], source: Path) -> None:
    """Put the book's source together: prose, generated fragments, and every host's executed notebooks."""
    shutil.copytree(root / "book", source / "book")
    shutil.copytree(root / "book" / "_static", source / "_static", dirs_exist_ok=True)
    shutil.copy(root / "_config.yml", source / "_config.yml")
    (source / "results").mkdir()
    for host, chapters in hosts.items():
        (source / "results" / host).mkdir()
        shutil.copy(results / host / "host.json", source / "results" / host)
        for chapter in chapters:
            shutil.copy(results / host / f"{chapter}.jsonl", source / "results" / host)
            page = as_page(
                results / host, chapter, [other for other in hosts if other != host and chapter in hosts[other]]
            )
            _write(source / "results" / host / f"{chapter}.ipynb", json.dumps(page, ensure_ascii=False))
    _write(source / "book" / "generated" / "headline.md", fragments.headline(results, hosts))
    _write(source / "book" / "generated" / "hosts.md", fragments.hosts_table(root, results, hosts))
    _write(source / "book" / "generated" / "agreement.md", fragments.agreement_rule())
    _write(source / "book" / "generated" / "presets.md", fragments.presets_table())
    _write(source / "book" / "loops.md", fragments.loops_page(root))
    for page in PROSE:
        path = source / f"{page}.md"
        if not path.exists():
            raise BookError(f"{page}.md is missing")
        _write(path, fragments.expand(path.read_text(encoding="utf-8"), root, hosts))
    _write(source / "_toc.yml", yaml.safe_dump(contents(hosts), sort_keys=False, allow_unicode=True))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def contents(hosts: Mapping[str, list[str]]) -> dict[str, Any]:
    """The table of contents: the book's prose, a part a host, reference pages. Adding a host needs no edit."""
    measured = {
        f"Measured on {host}": [f"results/{host}/{chapter}" for chapter in chapters] for host, chapters in hosts.items()
    }
    parts = {**PARTS_BEFORE, **measured, **PARTS_AFTER}
    return {
        "format": "jb-book",
        "root": PROSE[0],
        "parts": [
            {"caption": caption, "chapters": [{"file": page} for page in pages if page != PROSE[0]]}
            for caption, pages in parts.items()
        ],
    }


def read_notebook(path: Path) -> dict[str, Any]:
    """An executed notebook as JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


def as_page(folder: Path, chapter: str, others: Sequence[str] = ()) -> dict[str, Any]:
    """The executed notebook as the book shows it: short calls tagged to be shown small, provenance at the end.

    `others` are the other hosts that have this chapter.
    """
    page = read_notebook(folder / f"{chapter}.ipynb")
    for cell in page["cells"]:
        tags = cell["metadata"].setdefault("tags", [])
        given = {"parameters", "injected-parameters"} & {*tags}
        if cell["cell_type"] == "code" and len(lines_of(cell)) <= LONGEST_CALL and not given:
            cell["metadata"]["tags"] = [*tags, "call"]
    text = fragments.provenance(records.read(folder / f"{chapter}.jsonl"), chapter, others)
    page["cells"].append({"cell_type": "markdown", "id": "provenance", "metadata": {}, "source": text})
    return page


def lines_of(cell: Mapping[str, Any]) -> list[str]:
    """The lines of a cell's source that are not blank."""
    return [line for line in "".join(cell["source"]).splitlines() if line.strip()]


def outputs_fault(notebook: Mapping[str, Any]) -> str | None:
    """Why an executed notebook may not become a page, or None: an output that is gone, an error, a widget."""
    for number, cell in enumerate((c for c in notebook["cells"] if c["cell_type"] == "code"), 1):
        outputs, line = cell.get("outputs", []), (lines_of(cell) or [""])[-1].strip()
        if any(output["output_type"] == "error" for output in outputs):
            return f"code cell {number} ({line}) ended in an error"
        if any("widget-view" in kind for output in outputs for kind in output.get("data", {})):
            return f"code cell {number} ({line}) shows a widget, which a page cannot"
        shows = not SILENT & {*cell["metadata"].get("tags", [])} and ends_in_expression("".join(cell["source"]))
        if shows and not any(output.get("data") for output in outputs):
            return f"code cell {number} ({line}) has no output"
    return None


def ends_in_expression(source: str) -> bool:
    """Whether a cell's last statement is an expression, whose value the notebook shows."""
    try:
        body = ast.parse(source).body
    except SyntaxError:  # a cell of IPython's own syntax
        return False
    return bool(body) and isinstance(body[-1], ast.Expr) and not source.rstrip().endswith(";")


def _jupyter_book(source: Path, out: Path) -> Path:
    command = [
        sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(source),
        "--path-output", str(out), "--toc", str(source / "_toc.yml"), "--config", str(source / "_config.yml"),
        "--warningiserror", "--keep-going", "--all", "--quiet",
    ]  # fmt: skip
    plain = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=source, env=plain)
    page = out / "_build" / "html"
    if done.returncode != 0 or not (page / "index.html").exists():
        lines = [line for line in (done.stderr + done.stdout).splitlines() if re.search(r"WARNING|ERROR|rror:", line)]
        said = "\n".join(lines[:12]) or done.stderr[-600:] or "no page was written"
        raise BookError("jupyter-book: " + said.replace(f"{source}/", ""))
    return page


def check(source: Path, html: Path, hosts: Mapping[str, list[str]]) -> None:
    """Every page of the contents exists, with its figures and tables, and opens offline. Raises `BookError`."""
    for page in PROSE:
        if not (html / f"{page}.html").exists():
            raise BookError(f"{page}.html was not built")
    for host, chapters in hosts.items():
        for chapter in chapters:
            name = f"results/{host}/{chapter}.html"
            if not (html / name).exists():
                raise BookError(f"{name} was not built")
            if (size := (html / name).stat().st_size) > MAX_PAGE_BYTES:
                raise BookError(f"{name}: must be at most {MAX_PAGE_BYTES} bytes, got {size}")
            text = (html / name).read_text(encoding="utf-8")
            made = count_outputs(read_notebook(source / "results" / host / f"{chapter}.ipynb"))
            for kind, marker in OUTPUTS.items():
                shown = text.count(marker)
                if shown < made[kind] or not made[kind]:
                    raise BookError(f"{name}: shows {shown} {kind}, its notebook made {made[kind]}")
    for path in sorted(html.rglob("*.html")):
        if foreign := FOREIGN.search(path.read_text(encoding="utf-8")):
            raise BookError(f"{path.relative_to(html)}: must open without a network, loads {foreign[1]}")


def count_outputs(notebook: Mapping[str, Any]) -> dict[str, int]:
    """Figures and tables in an executed notebook's outputs."""
    texts = [
        "".join(output.get("data", {}).get("text/html", ""))
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
    ]
    return {kind: sum(text.count(marker) for text in texts) for kind, marker in OUTPUTS.items()}
