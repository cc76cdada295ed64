"""Play a workshop's plan with a clock: are the pages there when their slot begins?

    python scripts/rehearse.py two-hours [--blocked]

Runs the plan's commands in a results folder of their own, one after the other as a student's machine does, and adds up:
a command starts with its slot, or when the one before it has ended. `--blocked` takes the network away first (Linux,
where a user may make a network of his own). Exit status 1 where a page would be late.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from overhead.book.syllabi import SYLLABI, Syllabus, chapters_of

NO_NETWORK = [
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "sh",
    "-c",
    'ip link set lo up 2>/dev/null; exec "$@"',
    "-",
]


def played(syllabus: Syllabus, run: Callable[[str], float]) -> tuple[list[str], list[str]]:
    """The rows of the rehearsal and what was late, in words. `run` does a command and returns the seconds it took."""
    rows, late, there = [], [], {}
    begins, free = 0.0, 0.0  # minutes: of the slot, and from when on the machine is idle
    for slot in syllabus.slots:
        for chapter in slot.needs:
            if there.get(chapter, float("inf")) > begins:
                when = f"at minute {there[chapter]:.1f}" if chapter in there else "never"
                late.append(f"{slot.title} (minute {begins:g}): {chapter} is there {when}")
        for command in slot.runs:
            free = max(free, begins) + run(command) / 60
            there |= dict.fromkeys(chapters_of(command), free)
        rows.append(f"{begins:5.0f}  {slot.title:<28} {', '.join(slot.runs) or '-':<56} machine idle from {free:5.1f}")
        begins += slot.minutes
    return rows, late


def main() -> int:
    asked = argparse.ArgumentParser(description="Play a workshop's plan with a clock.")
    asked.add_argument("plan", choices=list(SYLLABI), nargs="?", default="two-hours")
    asked.add_argument("--blocked", action="store_true", help="without a network")
    given = asked.parse_args()
    before = []
    if given.blocked:
        if not shutil.which("unshare") or subprocess.run([*NO_NETWORK, "true"], capture_output=True).returncode:
            print("--blocked needs Linux and a user who may make a network of his own", file=sys.stderr)
            return 2
        before = NO_NETWORK
    with tempfile.TemporaryDirectory(prefix="overhead-rehearsal-") as results:
        env = {**os.environ, "OVERHEAD_RESULTS": results, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

        def run(command: str) -> float:
            print(f"runs: {command}", flush=True)
            begun = time.monotonic()
            done = subprocess.run([*before, *command.split()], env=env, capture_output=True, text=True)
            if done.returncode and not command.startswith("overhead doctor"):  # which may warn
                raise SystemExit(f"{command}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
            return time.monotonic() - begun

        rows, late = played(SYLLABI[given.plan], run)
    print("\n".join(["minute", *rows, *(late or ["every page is there in time"])]))
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
