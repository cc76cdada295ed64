"""The recipes of CONTRIBUTING.md, each followed in a copy of the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import overhead
from overhead.book import build, folder, fragments
from overhead.loops import frameworks
from sample_book import CPU_HOST, write_host
from sample_book import sweep as sample_records

PACKAGE = Path(overhead.__file__).parent
ROOT = PACKAGE.parents[1]

# A framework that nobody has heard of, and a loop in it.
TORCHLIKE = """
import numpy as np

def tensor(values):
    return np.array(values, np.float32)

def train(params, x, y, rate):
    (w1, b1), (w2, b2) = params
    hidden = np.maximum(x @ w1 + b1, 0)
    scores = np.exp(hidden @ w2 + b2)
    d = (scores / scores.sum(axis=1, keepdims=True) - np.eye(10, dtype=np.float32)[y]) / np.float32(len(y))
    dh = (d @ w2.T) * (hidden > 0)
    rate = np.float32(rate)
    return [(w1 - rate * x.T @ dh, b1 - rate * dh.sum(axis=0)), (w2 - rate * hidden.T @ d, b2 - rate * d.sum(axis=0))]
"""
LOOP = '''"""The step in torchlike, called once a batch."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
import torchlike

from overhead.loops.base import Loop
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params
from overhead.problem.workload import Workload


class State(NamedTuple):
    params: list[Any]
    batches: list[Any]
    at: int
    rate: float


@final
class TorchlikeStepLoop(Loop):
    framework = "torchlike"

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        size = workload.batch_size
        starts = range(0, workload.steps * size, size)
        batches = [(torchlike.tensor(data.x[i : i + size]), np.array(data.y[i : i + size])) for i in starts]
        layers = [(torchlike.tensor(w), torchlike.tensor(b)) for w, b in params]
        return State(layers, batches, 0, workload.learning_rate)

    def run(self, state: State, steps: int) -> State:
        params, batches, at, rate = state
        for _ in range(steps):
            params = torchlike.train(params, *batches[at], rate)
            at = (at + 1) % len(batches)
        return State(params, batches, at, rate)

    def block(self, state: State) -> None:
        pass

    def fetch(self, state: State) -> Params:
        return tuple(Layer(w.copy(), b.copy()) for w, b in state.params)

    def placed_on(self, state: State) -> tuple[str, str]:
        return "cpu", "host memory"
'''
LOOP_ROW = (
    '    "torchlike-step": LoopInfo("torchlike_", "TorchlikeStepLoop", "torchlike", _CPU, "a step in torchlike"),\n'
)

CHAPTER = '''"""A chapter that says hello."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from overhead.chapters import pages
from overhead.chapters.base import Chapter
from overhead.records.record import Record


class Hello(Chapter, frozen=True, strict=True, extra="forbid"):
    name: ClassVar[str] = "99-hello"

    def take(self, session: Any) -> list[Record]:
        return [Record(status="declined", reason="only says hello", loop="numpy", device="cpu", **self.provenance())]

    def sentence(self, records: Sequence[Record]) -> pages.Markdown:
        return pages.Markdown(f"Hello of {len(records)} record.")
'''
CHAPTER_ROW = '    "99-hello": ChapterInfo("hello", "Hello", "Hello", (1, 1, 1)),\n'
CELLS = (
    "from overhead.chapters.hello.chapter import Hello\n\nchapter = Hello.from_notebook(globals())",
    "records = chapter.measure()",
    "chapter.sentence(records)",
)


class Copy:
    """A checkout's copy, and what was changed in its package."""

    def __init__(self, root: Path) -> None:
        self.root, self.package = root, root / "src" / "overhead"
        shutil.copytree(PACKAGE, self.package, ignore=shutil.ignore_patterns("__pycache__"))

    def add_row(self, file: str, before: str, row: str) -> None:
        path = self.package / file
        text = path.read_text()
        assert text.count(before) == 1, file
        path.write_text(text.replace(before, row + before))

    def touched(self) -> set[str]:
        """Files of the package that are new or differ."""
        here = {p.relative_to(self.package): p.read_bytes() for p in self.package.rglob("*.py")}
        there = {p.relative_to(PACKAGE): p.read_bytes() for p in PACKAGE.rglob("*.py")}
        assert there.keys() <= here.keys()
        return {path.as_posix() for path, content in here.items() if content != there.get(path)}

    def python(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, [str(self.root / "src"), str(Path(__file__).parent), env.pop("also", "")]))
        return subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=500, cwd=self.root,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **env},
        )  # fmt: skip

    def told(self, code: str, **env: str) -> object:
        """What `code` prints, as JSON."""
        done = self.python("-c", f"import json, overhead; {code}", **env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


# Add a loop of a new framework


@pytest.fixture(scope="module")
def with_loop(tmp_path_factory) -> Copy:
    root = tmp_path_factory.mktemp("loop")
    copy = Copy(root)
    (copy.package / "loops" / "torchlike_.py").write_text(LOOP)
    copy.add_row("loops/__init__.py", "}  # fmt: skip\n\n# The floor", LOOP_ROW)
    (root / "installed" / "torchlike-1.2.3.dist-info").mkdir(parents=True)
    (root / "installed" / "torchlike-1.2.3.dist-info" / "METADATA").write_text("Name: torchlike\nVersion: 1.2.3\n")
    (root / "installed" / "torchlike.py").write_text(TORCHLIKE)
    return copy


def installed(copy: Copy) -> str:
    return str(copy.root / "installed")


def test_a_loop_of_a_new_framework_touches_two_files(with_loop):
    assert with_loop.touched() == {"loops/__init__.py", "loops/torchlike_.py"}
    where = with_loop.told("print(json.dumps(overhead.__file__))")
    assert where == str(with_loop.package / "__init__.py")


def test_the_new_loop_is_in_chapter_5_when_asked_for_and_has_a_colour(with_loop):
    code = (
        "from overhead.chapters.batch_sweep.chapter import BatchSweep as Sweep; from overhead.showing import figures; "
        "from sample_book import record; timed = [record('torchlike-step', 0.5), record('numpy', 0.2)]; "
        "asked, plain = Sweep.checked(loops=['torchlike-step'], devices=['cpu']), Sweep.checked(devices=['cpu']); "
        "print(json.dumps([[c.loop for c in asked.contestants()], [c.loop for c in plain.contestants()], "
        "asked.table(timed)._repr_html_(), len(asked.figure(timed)._render(False, 'svg')), "
        "figures.colour('torchlike-step (cpu)', False)]))"
    )
    asked, plain, table, drawn, colour = with_loop.told(code, also=installed(with_loop))
    assert "torchlike-step" in asked
    assert "torchlike-step" not in plain
    assert "torchlike-step" in table
    assert drawn > 1000
    assert colour == frameworks.of("torchlike").colours[0]


def test_doctor_lists_the_new_framework_and_how_to_get_it(with_loop):
    found = with_loop.python("-m", "overhead", "doctor", "--json", also=installed(with_loop))
    assert json.loads(found.stdout)["frameworks"]["torchlike"] == {"version": "1.2.3"}

    found = json.loads(with_loop.python("-m", "overhead", "doctor", "--json").stdout)
    assert found["frameworks"]["torchlike"] == {"missing": "not installed"}
    (warned,) = [w for w in found["warnings"] if "torchlike" in w["what"]]
    assert warned["do"] == "pip install torchlike"


def test_a_host_without_the_new_framework_says_so(with_loop):
    code = (
        "from overhead.measure.contestant import Contestant\n"
        "from overhead.measure.process import Process, WorkerFailed\n"
        "worker = Process(Contestant('torchlike-step', 'cpu', 1))\n"
        "try: worker.ask('hello')\n"
        "except WorkerFailed as failure: print(json.dumps([failure.status, failure.reason]))\n"
        "finally: worker.close()\n"
    )
    done = with_loop.python("-c", "import json\n" + code)
    assert json.loads(done.stdout) == ["declined", "torchlike is not installed"]


@pytest.mark.slow
def test_the_new_loop_is_timed_after_it_agreed(with_loop):
    arguments = ["--loops", "torchlike-step", "--batch-sizes", "32", "--images", "640", "--device", "cpu"]
    done = with_loop.python(
        "-m", "brief", "bench", *arguments, "--force", "--json", also=installed(with_loop)
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["loop"], row["status"], row["reason"]) == ("torchlike-step", "ok", None)
    assert row["epoch_s"]["median"] > 0


# Add a chapter


@pytest.fixture(scope="module")
def with_chapter(tmp_path_factory) -> Copy:
    root = tmp_path_factory.mktemp("chapter")
    copy = Copy(root)
    (copy.package / "chapters" / "hello").mkdir()
    (copy.package / "chapters" / "hello" / "__init__.py").write_text('"""A chapter that says hello."""\n')
    (copy.package / "chapters" / "hello" / "chapter.py").write_text(CHAPTER)
    copy.add_row("chapters/__init__.py", "}  # fmt: skip\n\n\ndef chapter_of", CHAPTER_ROW)
    shutil.copytree(ROOT / "notebooks", root / "notebooks")
    shutil.copy(ROOT / "pyproject.toml", root)
    declared = "# parameters\n" + "\n".join(
        ['host: str = "local"  # folder', 'preset: str = "quick"  # quick, workshop or full',
         'devices: list = ["auto"]  # auto, cpu, gpu', "learning_rate: float = 0.1  # of plain SGD"]
    )  # fmt: skip
    cells = [nbformat.v4.new_markdown_cell("# Hello"), nbformat.v4.new_code_cell(declared)]
    cells[1].metadata["tags"] = ["parameters"]
    cells += [nbformat.v4.new_code_cell(source) for source in CELLS]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    page = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})
    nbformat.write(page, root / "notebooks" / "99-hello.ipynb")
    return copy


def test_a_chapter_is_a_folder_and_a_row(with_chapter):
    assert with_chapter.touched() == {
        "chapters/__init__.py", "chapters/hello/__init__.py", "chapters/hello/chapter.py"
    }  # fmt: skip
    done = with_chapter.python("-m", "overhead", "run", "98-nothing")
    assert done.returncode == 2
    assert "99-hello" in done.stderr


@pytest.mark.slow
def test_the_new_chapter_runs_and_is_in_the_contents(with_chapter):
    done = with_chapter.python("-m", "overhead", "run", "99-hello", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    made = nbformat.read(with_chapter.root / "results" / "local" / "99-hello.ipynb", as_version=4)
    assert made.cells[-1].outputs[0].data["text/markdown"] == "Hello of 1 record."

    code = (
        "from pathlib import Path; from overhead.book import build, folder; "
        "print(json.dumps(build.contents({'local': folder.chapters(Path('results/local'))})))"
    )
    assert "results/local/99-hello" in json.dumps(with_chapter.told(code))


# Add a host


def test_a_host_is_a_folder(tmp_path):
    write_host(tmp_path, CPU_HOST, sample_records())
    before = folder.hosts(tmp_path)
    shutil.copytree(tmp_path / CPU_HOST, tmp_path / "new-box")

    hosts = {name: folder.chapters(tmp_path / name) for name in folder.hosts(tmp_path)}
    assert set(hosts) - set(before) == {"new-box"}
    parts = {part["caption"]: part["chapters"] for part in build.contents(hosts)["parts"]}
    assert parts["Measured on new-box"][0] == {"file": "results/new-box/05-batch-sweep"}
    assert "new-box" in fragments.hosts_table(ROOT, tmp_path, hosts)
