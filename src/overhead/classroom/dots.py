"""Dots on a logarithmic axis as SVG, and the page around it: no script, no other file, light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from overhead.records.stats import Interval
from overhead.showing import tables

WIDTH, LEFT, RIGHT = 960, 170, 20  # of a drawing, in its own units
LANE, RADIUS, PAD = 17, 8, 7

Row = Sequence[tuple[int, str, Interval]]  # number on the dot, name, figure

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --faint: #57606a; --grid: #d8dee4; --paper: #fff; --dot: #0a58a8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --faint: #9aa4ae; --grid: #3a424b; --paper: #14181e; --dot: #6cb2f5; }
}
body { margin: 0 auto; padding: 1.5rem; max-width: 64rem; font: 16px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); }
h1 { font-size: 1.7rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 640px; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .tick { fill: var(--faint); }
svg .grid { stroke: var(--grid); } svg .bar { stroke: var(--dot); opacity: .55; }
svg circle { fill: var(--dot); stroke: var(--paper); } svg .number { fill: var(--paper); font-size: 9px; }
svg g:hover circle { fill: var(--ink); }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: 3px 12px 3px 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--grid); }
@media print { body { max-width: none; padding: 0; } h2 { break-after: avoid; } .wide { break-inside: avoid; } }
"""


def document(title: str, body: str) -> str:
    """A whole page that may load nothing and run nothing."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>\n{body}\n</main></body></html>\n"
    )


def drawn(rows: Mapping[str, Row], unit: str) -> str:
    """A line a row, a dot a figure; dots that would cover each other go into lanes above each other."""
    figures = [figure for row in rows.values() for _, _, figure in row if figure.median > 0]
    low = math.log10(min(max(f.low, f.median / 100) for f in figures)) - 0.05
    high = math.log10(max(min(f.high, f.median * 100) for f in figures)) + 0.05
    scale = (WIDTH - LEFT - RIGHT) / max(high - low, 0.1)

    def at(value: float) -> float:
        return round(LEFT + (min(max(math.log10(value), low), high) - low) * scale, 1)

    parts, y = [], 8.0
    for name, row in rows.items():
        lanes = _lanes([(number, at(figure.median)) for number, _, figure in row])
        height = LANE * (max(lanes.values()) + 1) + 2 * PAD
        parts.append(f'<text x="0" y="{y + height / 2 + 4:.1f}">{escape(name)}</text>')
        parts.append(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y + height:.1f}" y2="{y + height:.1f}"/>')
        for number, who, figure in row:
            x, middle = at(figure.median), y + PAD + LANE * (lanes[number] + 0.5)
            told = escape(f"{who}: {tables.interval(figure)} {unit}")
            parts.append(
                f'<g><title>{told}</title><line class="bar" x1="{at(max(figure.low, 1e-12))}" x2="{at(figure.high)}" '
                f'y1="{middle:.1f}" y2="{middle:.1f}"/><circle cx="{x}" cy="{middle:.1f}" r="{RADIUS}"/>'
                f'<text class="number" x="{x}" y="{middle + 3:.1f}" text-anchor="middle">{number}</text></g>'
            )
        y += height
    grid = "".join(
        f'<line class="grid" x1="{at(tick)}" x2="{at(tick)}" y1="4" y2="{y:.1f}"/>'
        f'<text class="tick" x="{at(tick)}" y="{y + 16:.1f}" text-anchor="middle">{tick:g}</text>'
        for tick in ticks(low, high)
    )
    label = escape(f"Dots of {unit}, a row each: {', '.join(rows)}")
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{label}"><svg viewBox="0 0 {WIDTH} {y + 36:.0f}" '
        f'role="img" aria-label="{label}">{grid}{"".join(parts)}'
        f'<text class="tick" x="{WIDTH - RIGHT}" y="{y + 32:.1f}" text-anchor="end">{escape(unit)}</text></svg></div>'
    )


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade between two powers of ten; the decades alone where that is many."""
    found = [
        digit * 10.0**decade
        for decade in range(math.floor(low), math.ceil(high) + 1)
        for digit in ((1, 2, 5) if high - low < 2.5 else (1,))
    ]
    return [tick for tick in found if low <= math.log10(tick) <= high]


def _lanes(places: Sequence[tuple[int, float]]) -> dict[int, int]:
    """Number → lane, from the left: the first lane whose last dot is not in the way."""
    ends: list[float] = []
    found = {}
    for number, x in sorted(places, key=lambda place: place[1]):
        lane = next((lane for lane, end in enumerate(ends) if end + 2 * RADIUS + 1 <= x), len(ends))
        ends[lane : lane + 1] = [x]
        found[number] = lane
    return found
