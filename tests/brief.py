"""The command with few rounds: `python -m brief bench …` is `overhead bench …` where what counts is not how well."""

from __future__ import annotations

from overhead.cli import main
from overhead.measure.session import PRESETS

if __name__ == "__main__":
    PRESETS["quick"] = PRESETS["quick"]._replace(target=0.5, budget_s=2.0, processes=2, rounds=(5, 6))
    main()
