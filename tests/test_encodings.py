"""Text is UTF-8 wherever it is read or written, whatever a user's environment says (field case N15)."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
BINARY = ("os.open", "gzip.open")  # unless they are asked for text
TEXTUAL = ("text", "universal_newlines")  # of subprocess


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str, set[str]]]:
    """Every call with the last part of its name and the names of its arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield node, name, {keyword.arg for keyword in node.keywords if keyword.arg}


def mode(call: ast.Call) -> str:
    """The mode of a call of `open`: a literal among its arguments."""
    literals = [a.value for a in [*call.args, *(k.value for k in call.keywords)] if isinstance(a, ast.Constant)]
    return next((v for v in literals if isinstance(v, str) and v and set(v) <= set("rwaxbt+")), "r")


def guesses(source: str) -> list[int]:
    """Lines that leave the encoding to the environment."""
    found = []
    for call, name, given in calls(ast.parse(source)):
        of_path = isinstance(call.func, ast.Attribute) and len(call.args) == (name == "write_text")
        reads = name in ("read_text", "write_text") and of_path
        opens = name in ("open", "fdopen") and "b" not in mode(call) and ast.unparse(call.func) not in BINARY
        if (reads or opens or given & set(TEXTUAL)) and "encoding" not in given:
            found.append(call.lineno)
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.name)
def test_no_encoding_is_left_to_the_environment(path):
    assert guesses(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("path.read_text()", True),
        ("path.read_text(encoding='utf-8')", False),
        ("path.write_text(text)", True),
        ("record.write_text(path, text)", False),
        ("path.open()", True),
        ("open(name, 'a')", True),
        ("path.open('rb')", False),
        ("os.open(path, flags)", False),
        ("subprocess.run(command, text=True)", True),
        ("subprocess.run(command)", False),
    ],
)
def test_what_would_guess_is_found(line, told):
    assert guesses(line) == ([1] if told else [])


@pytest.mark.long
def test_ascii_as_the_environments_encoding_changes_nothing(tmp_path):
    """The first words of a host with letters beyond ASCII go through files and pipes."""
    plain = {**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii:backslashreplace", "LC_ALL": "C"}
    env = {**plain, "PYTHONCOERCECLOCALE": "0", "TMPDIR": str(tmp_path), "OVERHEAD_LOCK": str(tmp_path / "lock")}
    arguments = ["bench", "--loops", "numpy", "--batch-sizes", "32", "--images", "640", "--json"]
    done = subprocess.run([sys.executable, "-m", "overhead", *arguments], capture_output=True, env=env, timeout=200)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
