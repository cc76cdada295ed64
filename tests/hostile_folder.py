"""A results folder as an attacker would send it: scripts, directives, links and files that must not reach a page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from overhead.book import execute
from sample_book import FACTS, SWEEP, sweep, write_host

RUN = "window.taken=1;document.title='TAKEN'"
MARKUP = (
    f'<script>{RUN}</script><img src=x onerror="{RUN}"><svg onload="{RUN}"><script>{RUN}</script></svg>'
    f'<a href="javascript:{RUN}">link</a><iframe srcdoc="<script>parent.{RUN}</script>"></iframe>'
    f'<meta http-equiv=refresh content="0;url=javascript:{RUN}"><base href=//example.org/>'
    f"<details open ontoggle=\"{RUN}\">x</details><style>@import '//example.org/x.css'</style>"
    '<math><mtext></table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;">'
)


FIRST = f'<script>{RUN}</script><img src=x onerror="{RUN}"><p onclick="{RUN}" style="position:fixed">x</p>'


def directives(secret: Path) -> str:
    """MyST that would read a file of the builder or pass markup through."""
    inside = [f"```{{{name}}} {secret}\n```" for name in ("include", "literalinclude", "csv-table")]
    return "\n\n".join(
        [
            *inside,
            f"```{{raw}} html\n:file: {secret}\n```",
            f"```{{raw}} html\n<script>{RUN}</script>\n```",
            f"```{{eval-rst}}\n.. raw:: html\n\n   <script>{RUN}</script>\n\n.. include:: {secret}\n```",
            f"{{download}}`{secret}` {{doc}}`../../../x` [x](javascript:{RUN}) ![x]({secret})",
            MARKUP,
        ]
    )


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the executed notebook of `folder` as JSON."""
    path = folder / f"{SWEEP}.ipynb"
    notebook = json.loads(path.read_text())
    change(notebook)
    path.write_text(json.dumps(notebook))


def cell_of(notebook: dict[str, Any], call: str) -> dict[str, Any]:
    """The code cell that ends in `chapter.CALL(records)`."""
    return next(c for c in notebook["cells"] if "".join(c["source"]).endswith(f"chapter.{call}(records)"))


def scripted(results: Path, secret: Path) -> None:
    """`scripted`: a page that is built, each of its outputs, cells, metadata and records with something in it."""
    found = sweep(host="scripted")
    spoiled = {"reason": f"{MARKUP} {directives(secret)}", "tool": MARKUP, "notes": [MARKUP]}
    found[-1] = found[-1].model_copy(update=spoiled)
    found[0] = found[0].model_copy(update={"disturbed": [directives(secret)]})
    facts = {**FACTS, "cpu_model": f"<script>{RUN}</script>{{raw}}`x`", "os": f"{{include}}`{secret}` <img onerror=1>"}
    folder = write_host(results, "scripted", found, facts)

    def change(notebook: dict[str, Any]) -> None:
        kernel = {"name": "bash", "display_name": MARKUP, "language": "bash"}
        notebook["metadata"] |= {
            "mystnb": {"execution_mode": "inline", "execution_allow_errors": True}, "kernelspec": kernel,
            "substitutions": {"x": MARKUP}, "myst": {"enable_extensions": ["substitution"]},
        }  # fmt: skip
        notebook["cells"].insert(0, {"cell_type": "markdown", "id": "m", "metadata": {}, "source": directives(secret)})
        writes = f"open({str(secret.parent / 'ran')!r}, 'w')"
        notebook["cells"].append(
            {"cell_type": "code", "id": "e", "metadata": {}, "source": writes, "outputs": [], "execution_count": None}
        )
        cell_of(notebook, "sentence")["outputs"] = [
            {"output_type": "display_data", "metadata": {}, "data": {"text/markdown": directives(secret)}}
        ]
        for call in ("figure", "table"):
            data = cell_of(notebook, call)["outputs"][-1]["data"]
            data["text/html"] = FIRST + "".join(data["text/html"]) + MARKUP
        cell_of(notebook, "sentence")["metadata"] = {"mystnb": {"execution_mode": "force"}, "tags": ["x"]}

    rewrite(folder, change)


def refused(results: Path, secret: Path) -> None:
    """Hosts of which nothing is shown, each for one reason (see `REASONS`)."""

    def shows(data: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
        def change(notebook: dict[str, Any]) -> None:
            cell_of(notebook, "sentence")["outputs"].append(
                {"output_type": "display_data", "metadata": {}, "data": data}
            )

        return change

    def host(name: str, facts: dict[str, Any] | None = None, **record: Any) -> Path:
        found = sweep(host=name)
        found[0] = found[0].model_copy(update=record)
        return write_host(results, name, found, facts)

    rewrite(host("javascript"), shows({"application/javascript": RUN}))
    rewrite(host("svg"), shows({"image/svg+xml": f"<svg><script>{RUN}</script></svg>"}))
    rewrite(host("stars"), shows({"text/markdown": "*" * 90_000}))
    host("cores", {**FACTS, "cores_allowed": f"<script>{RUN}</script>"})
    host("started", started=f"2026\n```{{include}} {secret}\n```")
    host("device", device=f"<script>{RUN}</script>")
    (host("empty-facts") / "host.json").write_text("{}")
    (host("cut-facts") / "host.json").write_text('{"cpu_model": "x"')
    (host("list-facts") / "host.json").write_text("[]")
    (host("bom-facts") / "host.json").write_bytes(b"\xef\xbb\xbf{}")
    (host("latin-facts") / "host.json").write_bytes('{"cpu_model": "é"}'.encode("latin-1"))
    (host("deep-facts") / "host.json").write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    (host("half-facts") / "host.json").write_text(json.dumps({**FACTS, "os": "\ud800"}))
    (host("nan-facts") / "host.json").write_text('{"cpu_model": NaN}')
    linked = host("linked-facts") / "host.json"
    linked.unlink()
    linked.symlink_to(secret)
    pipe = host("pipe") / f"{SWEEP}.jsonl"
    pipe.unlink()
    os.mkfifo(pipe)
    zero = host("zero") / f"{SWEEP}.jsonl"
    zero.unlink()
    zero.symlink_to("/dev/zero")
    long_line = host("long-line") / f"{SWEEP}.jsonl"
    with long_line.open("w") as file:
        file.truncate(100_000_000)  # one line
    twice = host("twice") / f"{SWEEP}.jsonl"
    twice.write_text(twice.read_text() + twice.read_text().splitlines(keepends=True)[0])
    no_cells = host("no-cells") / f"{SWEEP}.ipynb"
    no_cells.write_text(
        json.dumps({"metadata": {"overhead": {"records_sha256": execute.checksum(no_cells.with_suffix(".jsonl"))}}})
    )
    mixed = sweep(host="mixed")
    write_host(results, "mixed", [mixed[0].model_copy(update={"host": "another"}), *mixed[1:]])
    named = [record.model_copy(update={"host": f"<b>{MARKUP}"}) for record in sweep()]
    write_host(results, "markup-for-a-name", named)
    host("traversal").rename(results / "..box")
    (results / "linked-host").symlink_to(results / "cores")


REASONS = {
    "javascript": r"shows application/javascript, which a page cannot",
    "svg": r"shows image/svg\+xml, which a page cannot",
    "stars": r"text/markdown of an output must be at most 20000 characters, got 90000",
    "cores": r"host\.json: cores_allowed must be a valid integer",
    "started": r"line 1: started is not of its form",
    "device": r"line 1: device is not of its form",
    "empty-facts": r"host\.json: lacks cpu_model",
    "cut-facts": r"host\.json: line 1 is no JSON",
    "list-facts": r"host\.json: must hold an object, got list",
    "bom-facts": r"host\.json: line 1 begins with a byte order mark",
    "latin-facts": r"host\.json: line 1 is not UTF-8",
    "deep-facts": r"host\.json: must be nested at most 40 deep",
    "half-facts": r"host\.json: holds half of a surrogate pair",
    "nan-facts": r"host\.json: NaN is no JSON",
    "linked-facts": r"host\.json must be a regular file",
    "pipe": r"05-batch-sweep\.jsonl must be a regular file",
    "zero": r"05-batch-sweep\.jsonl must be a regular file",
    "long-line": r"05-batch-sweep\.jsonl: must be at most 2000000 bytes",
    "twice": r"05-batch-sweep\.jsonl: line 8 is there twice",
    "no-cells": r"the notebook has no cells",
    "mixed": r"host must be one name in the whole file, 'another', got 'mixed'",
    "markup-for-a-name": r"line 1: host must be a name of letters, digits, .*, got '<b>",
    "linked-host": r"is a symbolic link",
}
