"""What a cell of an executed notebook showed, as a page may show it: tables and figures of ours, sentences, text.

An output is never taken over. HTML goes through Ammonia (`nh3`) with the few tags, attributes and classes that this
package writes; Markdown is rendered here, without raw HTML, directives, roles or foreign links; figures are PNG whose
chunks hold pixels only. Any other kind of output is refused.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Any

from overhead.book import exhibits
from overhead.book.folder import FolderError

SHOWN = ("text/html", "text/markdown", "text/plain")  # the first that an output has
MAX_HTML = 3_000_000  # characters of one output
MAX_MARKDOWN = 20_000
MAX_PLAIN = 20_000
MAX_PIXELS = 40_000_000
CLASSES = {"overhead-host", "overhead-table", "overhead-figure", "overhead-note", "for-light", "for-dark", "number"}
TABLES = {
    *("div", "table", "caption", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd", "img"),
    *("p", "a", "b", "br", "code", "em", "strong", "ul", "ol", "li", "details", "summary"),
}
CODE = {"div", "pre", "span", "code", "p", "em", "strong", "ul", "ol", "li", "a", "br", "h2", "h3", "h4", "blockquote"}
LOOPS_PAGES = "../../book/loops/"  # seen from results/HOST/
PIXELS = {b"IHDR", b"PLTE", b"tRNS", b"pHYs", b"IDAT", b"IEND"}
SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_ADDRESS = "data:image/png;base64,"


def output(data: Mapping[str, Any]) -> dict[str, str]:
    """One output's data, cleaned: a single kind, `text/html` or `text/plain`.

    Raises `FolderError` for kinds that no page shows, for one that is too long, and for a figure that is no PNG.
    """
    foreign = sorted(kind for kind in data if kind not in SHOWN)
    if foreign:
        widget = "a widget" if "widget-view" in foreign[0] else foreign[0][:60]
        raise FolderError(f"shows {widget}, which a page cannot")
    kind = next((kind for kind in SHOWN if kind in data), None)
    if kind is None:
        return {}
    text = data[kind]
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        text = "".join(text)
    if not isinstance(text, str):
        raise FolderError(f"{kind} must be text")
    limit = {"text/html": MAX_HTML, "text/markdown": MAX_MARKDOWN, "text/plain": MAX_PLAIN}[kind]
    if len(text) > limit:
        raise FolderError(f"{kind} of an output must be at most {limit} characters, got {len(text)}")
    if kind == "text/html":
        return {"text/html": html(text)}
    return {"text/html": markdown(text)} if kind == "text/markdown" else {"text/plain": text}


def html(text: str) -> str:
    """Markup of tables and figures with nothing in it that this package does not write itself."""
    import nh3

    faults: list[FolderError] = []  # an exception would not come out of Ammonia

    def kept(tag: str, attribute: str, value: str) -> str | None:
        if attribute == "class":
            return " ".join(name for name in value.split() if name in CLASSES) or None
        if attribute == "src":
            try:
                return figure(value)
            except FolderError as error:
                faults.append(error)
                return None
        if attribute == "style":
            return value if value == "display:none" else None
        return value

    attributes = {
        "img": {"class", "alt", "src", "style"}, "div": {"class"}, "th": {"class"}, "td": {"class"}, "dl": {"class"},
        "p": {"class"},
    }  # fmt: skip
    cleaned = nh3.clean(
        text, tags=TABLES, attributes=attributes, attribute_filter=kept, url_schemes={"data"}, link_rel=None
    )
    if faults:
        raise faults[0]
    return cleaned


def figure(address: str) -> str | None:
    """A PNG in a data address without its metadata; None for any other address. Raises `FolderError` for a bad one."""
    if not address.startswith(PNG_ADDRESS):
        return None
    try:
        data = base64.b64decode(address[len(PNG_ADDRESS) :], validate=True)
    except (binascii.Error, ValueError):
        raise FolderError("a figure's data are no base64") from None
    return PNG_ADDRESS + base64.b64encode(pixels(data)).decode()


def pixels(png: bytes) -> bytes:
    """A PNG with the chunks that make the picture and no others. Raises `FolderError` for what is none."""
    if not png.startswith(SIGNATURE) or png[12:16] != b"IHDR":
        raise FolderError("a figure is no PNG")
    width, height = int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
    if not 0 < width * height <= MAX_PIXELS:
        raise FolderError(f"a figure must have at most {MAX_PIXELS} pixels, got {width} x {height}")
    kept, at = [SIGNATURE], len(SIGNATURE)
    while at < len(png):
        length = int.from_bytes(png[at : at + 4])
        chunk = png[at : at + 12 + length]
        if len(chunk) != 12 + length or zlib.crc32(chunk[4:-4]) != int.from_bytes(chunk[-4:]):
            raise FolderError("a figure is a damaged PNG")
        if chunk[4:8] in PIXELS:
            kept.append(chunk)
        at += 12 + length
        if chunk[4:8] == b"IEND":  # what stands behind it is no picture
            return b"".join(kept)
    raise FolderError("a figure is a damaged PNG")


def markdown(text: str) -> str:
    """A sentence, a list or a piece of code as HTML. Links lead to the loops of this book only; others are words."""
    import nh3
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 20})
    parser.add_render_rule("fence", _fence)
    parser.disable(["image", "autolink", "html_block", "html_inline", "reference"])
    tokens = parser.parse(text)
    for token in tokens:
        for inner in token.children or []:
            if inner.type == "link_open":
                name = str(inner.attrs.get("href", "")).removeprefix("loop-")
                where = exhibits.address(name)
                inner.attrs = {"href": f"../../book/{where}", "class": "reference internal"} if where else {}
    rendered = parser.renderer.render(tokens, parser.options, {})

    def kept(tag: str, attribute: str, value: str) -> str | None:
        return value if attribute != "href" or value.startswith(LOOPS_PAGES) else None

    return nh3.clean(
        rendered, tags=CODE, attributes={"a": {"href", "class"}, "div": {"class"}, "span": {"class"}},
        attribute_filter=kept, url_schemes=set(), link_rel=None,
    )  # fmt: skip


def _fence(renderer: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer, TextLexer

    lexer = PythonLexer() if tokens[index].info == "python" else TextLexer()
    shown = highlight(tokens[index].content, lexer, HtmlFormatter())
    return f'<div class="highlight-python notranslate">{shown}</div>\n'
