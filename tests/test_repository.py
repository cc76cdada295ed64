"""What is in the repository, apart from what the code does: notebooks, results, texts and commands."""

from __future__ import annotations

import ast
import getpass
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "overhead"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RESULTS = sorted(p for p in (ROOT / "results").rglob("*") if p.is_file() and ".staging" not in str(p))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FRAMEWORKS = ["jax", "jaxlib", "tensorflow", "keras", "cupy", "torch"]
MAX_FILE_BYTES = 12_000_000

# Written in pieces, so that this file does not hold what it looks for.
REGISTRIES = [
    "pypi." + "org/simple",
    "pythonhosted." + "org",
    "registry." + "npmjs",
    "deb." + "debian.org",
    "--" + "index-url",
]
HOME = "home"
MACHINE_PATH = re.compile(
    rf"(?<![\w.~*-])/(?:{HOME}/(?!user\b|you\b|someone\b)|Users/(?!user\b|you\b|someone\b)|root/|work/|farm/|mnt/)[\w.-]+"
)
# A page or record has no reason to hold any path that starts at a root.
ABSOLUTE_PATH = re.compile(
    rf"(?<![\w.~:/<>*-])/(?:{HOME}|Users|root|work|tmp|var|opt|usr|mnt|private|srv)/[\w.-]+|\b[A-Za-z]:\\+\w+"
)
NOT_IDENTIFYING = {"root", "user", "runner", "ubuntu", "jovyan", "localhost", "local"}


def tracked() -> list[Path]:
    """The files that git tracks."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs git and a checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def texts() -> Iterator[tuple[str, str]]:
    """Name and content of every tracked file that is text."""
    for path in tracked():
        try:
            yield str(path.relative_to(ROOT)), path.read_text()
        except UnicodeDecodeError:
            continue


def shown(path: Path) -> str:
    """The text of a result; of a notebook without its pictures, in which any short name may stand by chance."""
    if path.suffix != ".ipynb":
        return path.read_text()
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            for kind in [kind for kind in output.get("data", {}) if kind in ("image/png", "image/jpeg")]:
                del output["data"][kind]
    return re.sub(r"data:image/(png|jpeg);base64,[\w+/=]+", "", "\n".join(strings(notebook)))


def strings(value: Any) -> Iterator[str]:
    """Every text in a JSON document as it reads: escaped, a line end after a colon looks like a drive."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def run(code: str) -> list[str]:
    """What a fresh Python prints as JSON."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return json.loads(done.stdout)


# Source notebooks


def test_there_are_notebooks_where_there_are_studies():
    assert [path.stem for path in NOTEBOOKS] == sorted(_studies())


def _studies() -> list[str]:
    if not (PACKAGE / "chapters").exists():
        return []
    return run("import json, overhead.chapters as s; print(json.dumps(list(s.CHAPTERS)))")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_source_notebook_is_valid_and_holds_no_outputs(path):
    text = path.read_text()
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)

    for cell in notebook.cells:
        assert cell.get("id")
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
    assert notebook.metadata.kernelspec.name == "python3"
    assert "papermill" not in notebook.metadata
    assert "widgets" not in notebook.metadata


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_papermill_reads_every_parameter_with_type_and_help(path):
    tagged = [c for c in nbformat.read(path, 4).cells if "parameters" in c.metadata.get("tags", [])]
    assert len(tagged) == 1
    declared = ast.parse(tagged[0].source).body

    read = papermill.inspect_notebook(str(path))

    assert len(read) == len(declared) > 0  # what papermill cannot read would be missing
    for statement, (name, parameter) in zip(declared, read.items(), strict=True):
        assert isinstance(statement, ast.AnnAssign), name
        assert ast.unparse(statement.target) == name
        assert parameter["inferred_type_name"] in ("str", "int", "float", "bool", "list", "dict"), name
        value = ast.literal_eval(parameter["default"])
        assert type(value).__name__ == parameter["inferred_type_name"], name
        assert statement.value is not None
        assert value == ast.literal_eval(statement.value), name
        assert parameter["help"], name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_cell_calls_and_shows(path):
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code" and "parameters" not in cell.metadata.get("tags", []):
            lines = [line for line in cell.source.splitlines() if line.strip() and not line.startswith("#")]
            assert len(lines) <= 5, cell.source  # more belongs into src/


# What tracked files hold


def test_no_file_names_a_machine_s_folders():
    found = [f"{name}: {match[0]}" for name, text in texts() for match in MACHINE_PATH.finditer(text)]
    assert found == []


def test_no_file_names_a_registry():
    found = [f"{name}: {address}" for name, text in texts() for address in REGISTRIES if address in text]
    assert found == []


def test_no_file_is_large():
    assert [str(path) for path in tracked() if path.stat().st_size > MAX_FILE_BYTES] == []


def test_the_patterns_find_what_they_look_for():
    top = {name: f"/{name}" for name in ("root", "work", "mnt", "Users", "tmp", "var", "usr", HOME)}  # none stands here
    for bad in ("see {root}/x.py", "'{work}/main/a'", "{home}/joe/a", "at {Users}/joe/a", '"{mnt}/disk"'):
        assert MACHINE_PATH.search(bad.format(**top)), bad
    for bad in ("({tmp}/x", '"{var}/log', '"{home}/someone/a', r"C:\\Users\\someone", "{usr}/lib/x.so"):
        assert ABSOLUTE_PATH.search(bad.format(**top)), bad
    for good in ("images/s", "https://example.org{work}/x", "results/local/x", "and/or", "..{tmp}/x", "<{tmp}/x>"):
        assert not MACHINE_PATH.search(good.format(**top)), good
        assert not ABSOLUTE_PATH.search(good.format(**top)), good


# Results


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_result_says_nothing_of_who_measured_where(path):
    text = shown(path)
    names = {getpass.getuser(), socket.gethostname(), socket.gethostname().split(".")[0], Path.home().name}

    assert not [match[0] for match in ABSOLUTE_PATH.finditer(text)]
    for name in names - NOT_IDENTIFYING:
        # a part of a longer name is another name
        assert not re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text), name


def test_results_are_pairs_of_known_notebooks():
    hosts = [path for path in (ROOT / "results").glob("[!.]*") if path.is_dir()]
    assert {path.parent for path in RESULTS} == set(hosts)  # every file is in a host's folder, and none is empty
    for host in hosts:
        stems = {path.stem for path in host.glob("*.ipynb")}
        assert stems, host.name
        assert stems == {path.stem for path in host.glob("*.jsonl")}, host.name
        assert stems <= set(_studies()), host.name
        assert (host / "host.json").exists(), host.name


# The package


@pytest.mark.parametrize("module", ["overhead", "overhead.loops", "overhead.cli"])
def test_starting_loads_no_framework(module):
    heavy = [*FRAMEWORKS, "matplotlib", "papermill", "scipy", "pandas"]
    assert run(f"import json, sys, {module}; print(json.dumps([m for m in {heavy} if m in sys.modules]))") == []


def test_starting_the_command_takes_little_longer_than_an_empty_python():
    def best(*arguments: str) -> float:
        """The fastest of five: whatever else runs only adds."""
        found = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True, timeout=60)
            found.append(time.perf_counter() - start)
        return min(found)

    assert best("-m", "overhead", "--help") - best("-c", "pass") < 0.3


def test_nothing_reads_the_environment_while_it_is_imported():
    """Values of the moment of import would be those of whoever imported first."""
    for path in PACKAGE.rglob("*.py"):
        waiting: list[ast.AST] = [ast.parse(path.read_text())]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.FunctionDef | ast.Lambda):
                continue
            assert not (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")), path.name
            waiting += ast.iter_child_nodes(node)


def test_no_room_loads_a_framework():
    names = sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py"))
    assert len(names) > 8
    imports = "; ".join(f"import overhead.{name}" for name in names)
    assert run(f"import json, sys; {imports}; print(json.dumps([m for m in {FRAMEWORKS} if m in sys.modules]))") == []


# Texts that must be true


def documents() -> str:
    return "\n".join((ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md"))


def test_every_make_target_that_is_named_exists():
    # comments of the indented blocks included; prose writes targets in backquotes
    named = set(re.findall(r"(?:^ +|`|&& )make ([a-z][\w-]*)", documents(), re.M))
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.M))

    assert {"book", "test", "setup", "clean"} <= named
    assert named <= targets
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_every_command_that_is_named_exists_with_its_options():
    import click

    from overhead.cli import cli

    context = click.Context(cli)
    named = re.findall(r"(?:^ +|[`/ ])overhead ([a-z]+)((?: --?[a-z-]+(?: [\w,./-]+)?)*)", documents(), re.M)
    commands = [(name, options) for name, options in named if name in cli.list_commands(context) or options]
    assert {"run", "book", "bench", "bounds", "doctor"} <= {name for name, _ in commands}
    for name, options in commands:
        known = {option for parameter in cli.get_command(context, name).params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", options)) <= known, name


def test_every_link_and_file_that_is_named_exists():
    for name in re.findall(r"\]\(([\w./-]+)\)", documents()):
        assert (ROOT / name).exists(), name
    if NOTEBOOKS:
        for name in re.findall(r"notebooks/[0-9][\w-]+\.ipynb", documents()):
            assert (ROOT / name).exists(), name


def test_the_architecture_names_every_module_in_the_order_of_the_layers():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    listed = re.findall(r"^    (\w+)(?:\.py|/) ", text, re.M)
    present = {p.stem for p in PACKAGE.glob("[!_]*.py")} | {p.parent.name for p in PACKAGE.glob("*/__init__.py")}

    assert set(listed) == present
    for room in PACKAGE.glob("*/__init__.py"):  # what stands in a room is named in its entry
        entry = re.search(rf"^    {room.parent.name}/ +(.*(?:\n     +.*)*)", text, re.M)[1]
        for module in room.parent.glob("[!_]*.py"):
            assert room.parent.name == "loops" or re.search(rf"\b{module.stem}\b", entry), module
    assert len(listed) == len(set(listed))
    # from the ground up, as import-linter checks it
    (contract,) = [c for c in PYPROJECT["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    layers = [[name.strip().removeprefix("overhead.") for name in layer.split("|")] for layer in contract["layers"]]
    rank = {name: height for height, layer in enumerate(reversed(layers)) for name in layer}
    assert listed == sorted(listed, key=lambda name: rank[name])


def test_the_number_of_layers_is_the_one_that_is_named():
    (contract,) = [c for c in PYPROJECT["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    named = re.search(r"checks them: (\d+) layers", (ROOT / "CONTRIBUTING.md").read_text())

    assert named
    assert int(named[1]) == len(contract["layers"])


def test_no_module_is_long():
    """A reader holds one of at most 300 lines in mind; loops are exhibits, whole and flat, and may be longer."""
    modules = [path for path in PACKAGE.rglob("*.py") if PACKAGE / "loops" not in path.parents]
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in modules}

    assert {name: length for name, length in lengths.items() if length > 300} == {}


def test_the_conda_file_has_what_the_user_asked_for():
    environment: dict[str, Any] = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    asked = [Requirement(line) for line in pip if not line.startswith("--")]

    names = {requirement.name for requirement in asked}
    wanted = {"jupyter-book", "numpy", "tensorflow", "jax", "cupy-cuda12x", "matplotlib", "papermill", "nvtx", "dask"}
    assert wanted <= names
    assert {r.name: r.extras for r in asked}["cupy-cuda12x"] == {"ctk"}  # else no headers where CUDA is not installed
    # nothing that pyproject.toml does not know, at the same versions
    extras = PYPROJECT["project"]["optional-dependencies"]
    known = {
        Requirement(line).name: Requirement(line)
        for lines in [PYPROJECT["project"]["dependencies"], *extras.values()]
        for line in lines
    }
    for requirement in asked:
        assert requirement.specifier == known[requirement.name].specifier, requirement.name
        if "12" in requirement.name:
            assert requirement.extras == known[requirement.name].extras


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PYPROJECT["project"]["version"]
    assert (
        f"## [{citation['version']}]" in (ROOT / "CHANGELOG.md").read_text()
        or "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()
    )


def test_every_hook_is_local():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert {repository["repo"] for repository in config["repos"]} == {"local"}
    assert {hook["id"] for repository in config["repos"] for hook in repository["hooks"]} == {
        "ruff", "ruff-format", "nbstripout", "check-added-large-files",
    }  # fmt: skip


# The Makefile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the Makefile and what it looks at, and no packages to install."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.lock").write_text("")
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


def make(folder: Path, target: str, python: str) -> subprocess.CompletedProcess[str]:
    """`make TARGET` with a `python` that is the text of a shell script."""
    script = folder / "python"
    script.write_text(f"#!/bin/sh\n{python}\n")
    script.chmod(0o755)
    return subprocess.run(["make", target, f"PYTHON={script}"], cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("version", [(3, 10), (3, 14), (2, 7)])
def test_make_names_the_python_it_needs(folder, version):
    pretended = f"import sys; sys.version_info = ({version[0]}, {version[1]}, 1); exec(sys.argv[1])"
    done = make(folder, "setup", f"exec '{sys.executable}' -c '{pretended}' \"$2\"")

    assert done.returncode == 2
    assert f"python must be 3.11 to 3.13, got {version[0]}.{version[1]}" in done.stderr
    assert not (folder / ".venv").exists()


# Stands in for Python: logs the environments it makes, and what it or an environment's python is asked to install.
FAKE = """
case "$*" in
  -c*) echo "$0" ;;
  *install*) echo install-from-outside >> log ;;
  *venv*) echo venv >> log; mkdir -p .venv/bin; cat > .venv/bin/python <<'END'
#!/bin/sh
case "$*" in *install*) echo install >> log; test ! -e fail ;; esac
END
  chmod +x .venv/bin/python; cp .venv/bin/python .venv/bin/pip ;;
esac
"""
WITHOUT_ENSUREPIP = FAKE.replace("*venv*)", "'-m venv .venv') exit 1 ;; *venv*)").replace("cp .venv", "true .venv")


def log(folder: Path) -> list[str]:
    path = folder / "log"
    lines = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


WHOLE = ["venv", "install", "install"]


def test_make_installs_once_and_again_when_what_it_installs_has_changed(folder):
    assert make(folder, "setup", FAKE).returncode == 0
    assert log(folder) == WHOLE
    assert make(folder, "setup", FAKE).returncode == 0
    assert log(folder) == []

    (folder / "requirements.lock").write_text("changed")
    assert make(folder, "setup", FAKE).returncode == 0
    assert log(folder) == WHOLE
    (folder / "pyproject.toml").write_text("changed")
    assert make(folder, "setup", FAKE).returncode == 0
    assert log(folder) == ["install"]  # of the package alone; what it needs is in the lock


def test_make_installs_where_the_python_has_no_ensurepip(folder):
    assert make(folder, "setup", WITHOUT_ENSUREPIP).returncode == 0
    assert log(folder) == ["venv", "install-from-outside", "install-from-outside"]
    assert make(folder, "setup", WITHOUT_ENSUREPIP).returncode == 0
    assert log(folder) == []


def test_make_does_not_trust_what_an_interrupted_run_left(folder):
    (folder / "fail").touch()
    assert make(folder, "setup", FAKE).returncode != 0
    assert log(folder) == ["venv", "install"]
    (folder / "fail").unlink()
    (folder / ".venv" / "stale").touch()

    assert make(folder, "setup", FAKE).returncode == 0
    assert log(folder) == WHOLE
    assert not (folder / ".venv" / "stale").exists()

    (folder / ".venv" / "bin" / "python").unlink()  # as when the Python it was made with was removed
    assert make(folder, "setup", FAKE).returncode == 0
    assert log(folder)[0] == "venv"


def test_make_does_not_trust_an_environment_from_another_folder(folder, tmp_path_factory):
    make(folder, "setup", FAKE)
    log(folder)
    moved = tmp_path_factory.mktemp("elsewhere") / "copy"
    shutil.copytree(folder, moved)

    assert make(moved, "setup", FAKE).returncode == 0
    assert log(moved) == WHOLE


def test_make_clean_keeps_what_was_measured(folder):
    for name in ("src", "tests", "results/local", ".venv", "_build"):
        (folder / name).mkdir(parents=True)
    (folder / "results" / "local" / "host.json").touch()

    assert make(folder, "clean", FAKE).returncode == 0
    assert (folder / "results" / "local" / "host.json").exists()
    assert not (folder / ".venv").exists()
    assert not (folder / "_build").exists()
