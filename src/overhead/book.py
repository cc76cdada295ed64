"""Results to book: table of contents, fragments, then jupyter-book. The only place that knows it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from overhead import execute, records, stats, tables
from overhead.loops import LOOPS
from overhead.records import Record
from overhead.studies.base import checkout

PAGES_BEFORE = ["book/intro", "book/method"]
PAGES_AFTER = ["book/loops", "book/glossary", "book/reproduce"]
MAX_PAGE_BYTES = 3_000_000
OUTPUTS = {"figures": 'class="overhead-figure for-light"', "tables": 'class="overhead-table"'}


class BookError(RuntimeError):
    """A book that cannot be built or is not whole; names the page and what is wrong with it."""


def build(results: Path, out: Path) -> Path:
    """Render everything under `results` into `out`/html and check it; measures nothing.

    Returns the path of index.html. Raises `BookError` for results that are not whole, for any warning of
    the build, and for a page that lacks its outputs.
    """
    root = checkout()
    if root is None:
        raise BookError("the book is built in a checkout of its repository; its pages are not in the package")
    hosts = execute.hosts(results)
    for host, stems in hosts.items():
        for stem in stems:
            if fault := execute.pair_fault(results / host, stem):
                raise BookError(f"results/{fault}")
    source = out / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(out / "html", ignore_errors=True)
    assemble(root, results, hosts, source)
    _jupyter_book(source, out)
    check(source, out / "html", hosts)
    shutil.copytree(source / "results", out / "html" / "results", ignore=shutil.ignore_patterns("*.ipynb"), dirs_exist_ok=True)
    return out / "html" / "index.html"


def assemble(root: Path, results: Path, hosts: Mapping[str, list[str]], source: Path) -> None:
    """Put the book's source together: prose, generated fragments, and every host's executed notebooks."""
    shutil.copytree(root / "book", source / "book")
    shutil.copytree(root / "book" / "_static", source / "_static", dirs_exist_ok=True)
    shutil.copy(root / "_config.yml", source / "_config.yml")
    generated = source / "book" / "generated"
    generated.mkdir()
    (source / "results").mkdir()
    for host, stems in hosts.items():
        (source / "results" / host).mkdir()
        shutil.copy(results / host / "host.json", source / "results" / host)
        for stem in stems:
            shutil.copy(results / host / f"{stem}.jsonl", source / "results" / host)
            page = with_provenance(results / host, host, stem)
            (source / "results" / host / f"{stem}.ipynb").write_text(json.dumps(page, ensure_ascii=False))
    (generated / "headline.md").write_text(headline(results, hosts))
    (generated / "hosts.md").write_text(hosts_table(results, hosts))
    (source / "book" / "loops.md").write_text(loops_page(root))
    (source / "_toc.yml").write_text(yaml.safe_dump(contents(hosts), sort_keys=False, allow_unicode=True))


def contents(hosts: Mapping[str, list[str]]) -> dict[str, Any]:
    """The table of contents: the book's prose, a part a host, reference pages. Adding a host needs no edit."""
    parts = [
        {"caption": f"Measured on {host}", "chapters": [{"file": f"results/{host}/{stem}"} for stem in stems]}
        for host, stems in hosts.items()
    ]
    first, *others = PAGES_BEFORE
    return {
        "format": "jb-book",
        "root": first,
        "parts": [
            {"caption": "The question", "chapters": [{"file": page} for page in others]},
            *parts,
            {"caption": "Reference", "chapters": [{"file": page} for page in PAGES_AFTER]},
        ],
    }


def with_provenance(folder: Path, host: str, stem: str) -> dict[str, Any]:
    """The executed notebook with a last section that leads from the page to its records and its code."""
    page = json.loads((folder / f"{stem}.ipynb").read_text())
    found = records.read(folder / f"{stem}.jsonl")
    first = found[0]
    commit = f"commit `{first.commit[:10]}`" if first.commit else "no checkout"
    changed = ", with changes that were not committed" if first.dirty else ""
    loops = [f"[{name}](loop-{name})" for name in dict.fromkeys(r.loop for r in found) if name in LOOPS]
    text = (
        "## Where these numbers come from\n\n"
        f"Every figure on this page is computed from {len(found)} records in "
        f"{{download}}`{stem}.jsonl`, measured on *{host}* from {first.started} with {commit}{changed} "
        f"(code `{(first.code_sha256 or '')[:10]}`); the facts of the host are in {{download}}`host.json`. "
        f"The loops that were timed: {', '.join(loops)}. How a sample is taken: {{ref}}`method`.\n"
    )
    page["cells"].append({"cell_type": "markdown", "id": "provenance", "metadata": {}, "source": text})
    return page


def loops_page(root: Path) -> str:
    """The exhibit: every loop's source with a label that pages link to."""
    parts = [
        "(loops)=\n# The loops\n\nEvery contestant is one class of one file, whole and flat, and does the same "
        "arithmetic on the same images in the same order. What differs is who calls what, and how often.\n"
    ]
    for module in dict.fromkeys(info.module for info in LOOPS.values()):
        rows = {name: info for name, info in LOOPS.items() if info.module == module}
        for name, info in rows.items():
            parts.append(
                f"(loop-{name})=\n## {name}\n\n`{info.cls}`: {info.does}. Devices: {', '.join(info.devices)}.\n"
            )
        code = (root / "src" / "overhead" / "loops" / f"{module}.py").read_text()
        parts.append(f"`src/overhead/loops/{module}.py`\n\n```python\n{code.rstrip()}\n```\n")
    return "\n".join(parts)


def headline(results: Path, hosts: Mapping[str, list[str]]) -> str:
    """One paragraph a host with the figure that answers the question there."""
    found = []
    for host, stems in hosts.items():
        if "05-batch-sweep" not in stems:
            continue
        read = records.read(results / host / "05-batch-sweep.jsonl")
        text = headline_of(host, read, json.loads((results / host / "host.json").read_text()))
        if text:
            found.append(text)
    if not any(json.loads((results / host / "host.json").read_text()).get("gpus") for host in hosts):
        found.append(
            "No GPU host has been measured for this copy of the book yet. {ref}`reproduce` says how to add one: "
            "it takes one command there, and the book then shows its pages beside these."
        )
    return "\n\n".join(found) + "\n"


def headline_of(host: str, found: list[Record], facts: dict[str, Any]) -> str | None:
    """Slowest and fastest loop of a host at its smallest batch size, with the interval of their ratio."""
    timed = [r for r in found if r.status == "ok" and r.loop in LOOPS and r.loop != "numpy-per-image"]
    if not timed:
        return None
    size = min((r.workload or {})["batch_size"] for r in timed)
    timed = [r for r in timed if (r.workload or {})["batch_size"] == size]
    ordered = sorted(timed, key=lambda r: stats.median_interval(r.epochs()).median)
    best = ordered[0]
    slow = next((r for r in ordered if r.loop == "keras-fit"), ordered[-1])
    if slow is best:
        return None
    ratio = tables.ratio(slow, best)
    assert ratio is not None
    seconds = {r.loop: stats.median_interval(r.epochs()) for r in (slow, best)}
    return (
        f"**On {host}** ({facts['cpu_model']}, {facts['cores_allowed']} cores), one epoch of 48,000 images at batch "
        f"size {size} takes {tables.interval(seconds[slow.loop])} s with [{slow.loop}](loop-{slow.loop}) and "
        f"{tables.interval(seconds[best.loop])} s with [{best.loop}](loop-{best.loop}): the same arithmetic, "
        f"the same accuracy, **{tables.interval(ratio)} times** the time "
        f"(medians and 95 % intervals, {ratio.n} pairs of rounds)."
    )


def hosts_table(results: Path, hosts: Mapping[str, list[str]]) -> str:
    """The measured hosts, with a link to the first page of each."""
    if not hosts:
        return "No host has been measured yet.\n"
    lines = ["| host | CPU | cores | GPU | system | pages |", "|---|---|---|---|---|---|"]
    for host, stems in hosts.items():
        facts = json.loads((results / host / "host.json").read_text())
        cards = ", ".join(card["name"] for card in facts["gpus"]) or "none"
        pages = ", ".join(f"[{stem}](../results/{host}/{stem}.ipynb)" for stem in stems)
        cells = [host, facts["cpu_model"], facts["cores_allowed"], cards, facts["os"], pages]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _jupyter_book(source: Path, out: Path) -> None:
    command = [
        sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(source), "--path-output", str(out / "build"),
        "--toc", str(source / "_toc.yml"), "--config", str(source / "_config.yml"), "--warningiserror", "--keep-going",
        "--all", "--quiet",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=source)
    page = out / "build" / "_build" / "html"
    if done.returncode != 0 or not (page / "index.html").exists():
        lines = [line for line in (done.stderr + done.stdout).splitlines() if re.search(r"WARNING|ERROR|rror:", line)]
        raise BookError("jupyter-book: " + ("\n".join(lines[:12]) or done.stderr[-600:] or "no page was written"))
    shutil.move(page, out / "html")
    shutil.rmtree(out / "build")


def check(source: Path, html: Path, hosts: Mapping[str, list[str]]) -> None:
    """Every page of the table of contents exists, with its figures and tables. Raises `BookError`."""
    for page in [*PAGES_BEFORE, *PAGES_AFTER]:
        if not (html / f"{page}.html").exists():
            raise BookError(f"{page}.html was not built")
    for host, stems in hosts.items():
        for stem in stems:
            path = html / "results" / host / f"{stem}.html"
            if not path.exists():
                raise BookError(f"results/{host}/{stem}.html was not built")
            if path.stat().st_size > MAX_PAGE_BYTES:
                raise BookError(
                    f"results/{host}/{stem}.html: must be at most {MAX_PAGE_BYTES} bytes, got {path.stat().st_size}"
                )
            text = path.read_text()
            made = count_outputs(json.loads((source / "results" / host / f"{stem}.ipynb").read_text()))
            for kind, marker in (
                ("figures", 'class="overhead-figure for-light"'),
                ("tables", 'class="overhead-table"'),
            ):
                shown = text.count(marker)
                if shown < made[kind] or not made[kind]:
                    raise BookError(f"results/{host}/{stem}.html: shows {shown} {kind}, its notebook made {made[kind]}")


def count_outputs(notebook: dict[str, Any]) -> dict[str, int]:
    """Figures and tables in an executed notebook's outputs."""
    texts = [
        "".join(output.get("data", {}).get("text/html", ""))
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
    ]
    return {kind: sum(text.count(marker) for text in texts) for kind, marker in OUTPUTS.items()}
