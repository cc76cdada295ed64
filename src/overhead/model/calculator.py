"""The calculator of the book: what the replay needs, as JSON, and the form that a page shows.

`calculator.js` beside this file evaluates it in the reader's browser; it gives what `replay` gives (a test compares).
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from overhead.model import products, replay
from overhead.model.census import CENSUS
from overhead.model.constants import TERMS, Constants
from overhead.model.gpus import GPUS
from overhead.problem.workload import TRAINING_IMAGES

SCRIPT = Path(__file__).with_name("calculator.js")
LIMIT_BYTES = 20_480
RULES: dict[str, Any] = {
    "level_bytes": products.LEVEL_BYTES, "product_reach": products.REACH, "step_reach": replay.REACH,
    "a_layer": replay.A_LAYER, "draws": replay.DRAWS, "reach": round(0.05 * (replay.DRAWS - 1)), "terms": TERMS,
    "spread": replay.SPREAD,
}  # fmt: skip


def data(constants: Constants) -> dict[str, Any]:
    """Constants of a host, censuses, presets and rules: all that the script reads."""
    held = constants.model_dump(mode="json", include={"threads", "far_bytes", "passes", "fresh"})
    held["products"] = {
        name: {str(constants.threads): by[str(constants.threads)].model_dump(mode="json", exclude={"rivals"})}
        for name, by in constants.products.items() if str(constants.threads) in by
    }  # fmt: skip
    held["frames"] = {
        name: frame.model_dump(mode="json", exclude={"timed"}) for name, frame in constants.frames.items()
    }
    return {
        "host": constants.name,
        "constants": held,
        "census": {loop: census._asdict() for loop, census in CENSUS.items()},
        "gpus": [{name: value for name, value in gpu._asdict().items() if name != "given"} for gpu in GPUS],
        "rules": RULES,
    }


def form(constants: Constants, name: str = "overhead-constants") -> str:
    """The calculator's markup: a form, hidden until the script runs, and its data. `name`: an id of the page's own."""
    held = json.dumps(data(constants), allow_nan=False, separators=(",", ":"))
    held = held.replace("<", "\\u003c")  # nothing in it can end the element
    choices = "".join(f"<option>{escape(gpu.name)}</option>" for gpu in GPUS)
    fields = "".join(
        f'<label>{escape(label)} <input name="{field}" value="{value}" inputmode="numeric" autocomplete="off"></label> '
        for label, field, value in (
            ("Layers", "layers", "784, 128, 10"), ("Batch size", "batch", "32"), ("Images", "images", TRAINING_IMAGES),
        )
    )  # fmt: skip
    heads = "".join(f"<th>{head}</th>" for head in ("loop", "device", "s an epoch", "90 % interval", "log scale"))
    return (
        f'<form class="overhead-calculator" data-constants="{escape(name)}" hidden>{fields}'
        f'<label>Modelled GPU <select name="gpu"><option value="">none</option>{choices}</select></label>'
        '<p><output aria-live="polite"></output></p>'
        f'<div class="overhead-table"><table><thead><tr>{heads}</tr></thead><tbody></tbody></table></div></form>'
        f"<noscript><p>The calculator needs scripts; the table above stands in for it.</p></noscript>"
        f'<script type="application/json" id="{escape(name)}">{held}</script>'
    )
