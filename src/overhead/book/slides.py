"""Slides and a poster of a host, from the figures and claims of its pages: plain HTML that opens offline and prints.

Slides snap as they are scrolled, so that the keys of a browser turn them and no script is needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from overhead.book import story
from overhead.book.whole_page import OfHost
from overhead.showing.claims import Claim, Finding

FIGURE = re.compile(r'<img class="overhead-figure for-light"[^>]*>')
# The figures of the poster, by chapter, in reading order.
POSTER = ("03-where-time-goes", "05-batch-sweep", "06-overhead-ladder", "09-under-the-floor")
ADVICE = (
    "Compile the step, and then the whole epoch.",
    "Use larger batches, as far as the model still learns as much.",
    "Train several models at once, if you have several to train.",
    "Ask what limits your own step: overhead diagnose FILE:FUNCTION.",
)
HEAD = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="../slides.css">
</head>
<body class="{kind}">
<main>
"""


def write(html: Path, hosts: Mapping[str, Mapping[str, dict[str, Any]]], of: Mapping[str, OfHost]) -> None:
    """Put `slides/HOST.html` and `slides/poster-HOST.html` into a built book."""
    folder = html / "slides"
    folder.mkdir()
    for host, made in hosts.items():
        (folder / f"{host}.html").write_text(_slides(host, made, of[host]), encoding="utf-8")
        (folder / f"poster-{host}.html").write_text(_poster(host, made, of[host]), encoding="utf-8")


def links(hosts: Mapping[str, Any]) -> str:
    """A list of them in HTML, for a page under `book/workshop/`."""
    items = "".join(
        f'<li>{escape(host)}: <a href="../../slides/{escape(host)}.html">slides</a>, '
        f'<a href="../../slides/poster-{escape(host)}.html">poster</a></li>'
        for host in hosts
    )
    return f"<ul>{items}</ul>"


def _slides(host: str, made: Mapping[str, dict[str, Any]], of: OfHost) -> str:
    title = f"Where does a step go? · {host}"
    parts = [HEAD.format(title=escape(title), kind="slides")]
    bar = story.bar(of.told, None) if of.told else ""
    parts.append(f"<section><h1>{escape(title)}</h1>{bar}<p>A slide a chapter. Bet before you turn it.</p></section>")
    for chapter, page in made.items():
        asked = escape(story.QUESTIONS.get(chapter, chapter))
        source = f'{escape(host)} · <a href="../results/{escape(host)}/{chapter}.html">{chapter}</a>'
        parts.append(f"<section><h2>{asked}</h2>{figure(page)}{_said(chapter, of)}<footer>{source}</footer></section>")
    return "\n".join([*parts, "</main></body></html>\n"])


def _poster(host: str, made: Mapping[str, dict[str, Any]], of: OfHost) -> str:
    title = "Where does a step go?"
    parts = [HEAD.format(title=escape(f"{title} · {host}"), kind="poster"), f"<h1>{title}</h1>"]
    if of.told:
        of_what = f"at batch size {of.told.batch_size}, on {escape(host)}"
        words = f"A step of training a network of 784, 128 and 10 units with Keras's defaults, {of_what}."
        parts.append(f'<p class="lead">{words}</p>{story.bar(of.told, None)}')
    parts.append('<div class="columns">')
    for chapter in POSTER:
        if chapter in made and (shown := figure(made[chapter])):
            parts.append(f"<article><h2>{escape(story.QUESTIONS[chapter])}</h2>{shown}{_said(chapter, of)}</article>")
    advice = "".join(f"<li>{escape(line)}</li>" for line in ADVICE)
    parts.append(f"<article><h2>What to do</h2><ol>{advice}</ol></article></div>")
    end = f"<footer>{escape(host)}. Every figure is made from records of this host.</footer>"
    return "\n".join([*parts, end, "</main></body></html>\n"])


def figure(page: Mapping[str, Any]) -> str:
    """The first figure of a page, for a light ground; nothing where it has none."""
    for cell in page["cells"]:
        for output in cell.get("outputs", []):
            if found := FIGURE.search("".join(output.get("data", {}).get("text/html", ""))):
                return found[0]
    return ""


def _said(chapter: str, of: OfHost) -> str:
    items = [_item(*of.judged[name]) for name in story.REMEMBER.get(chapter, ()) if name in of.judged]
    return f"<ul>{''.join(items)}</ul>" if items else ""


def _item(claim: Claim, finding: Finding) -> str:
    verdict = story.VERDICTS.get(finding.status, "Not measured here")
    return f"<li><strong>{verdict}:</strong> {escape(claim.statement)} <em>{escape(finding.figure)}</em></li>"
