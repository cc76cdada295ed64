"""A book of made-up results: two hosts with what a real run leaves, built once a session."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import numpy as np

from overhead.book import build as book
from overhead.book import execute, pages
from overhead.chapters.batch_sweep.chapter import BatchSweep
from overhead.chapters.pages import Markdown
from overhead.problem.workload import Workload
from overhead.records import record as records
from overhead.records.record import Record, Samples, Timing

SWEEP = "05-batch-sweep"
CPU_HOST, GPU_HOST = "cpu-box", "gpu-box"
FACTS: dict[str, Any] = {
    "cpu_model": "Made <Up> CPU | model_1", "architecture": "x86_64", "cores_present": 4, "cores_allowed": 4,
    "memory_bytes": 2**34, "os": "Linux 6.1", "python": "3.12.1", "gpus": [],
}  # fmt: skip
ROOT = Path(__file__).resolve().parents[1]
GPU = {"name": "Made-Up GPU 9000", "driver": "555.1", "memory_mib": "81559"}


def record(loop: str, seconds: float, size: int = 32, device: str = "cpu", **more: Any) -> Record:
    """A timed case around `seconds` an epoch, eleven rounds in one process."""
    workload = Workload(batch_size=size)
    values = (seconds * np.random.default_rng(len(loop) + size).uniform(0.97, 1.03, 11)).tolist()
    wall = Samples(clock="wall", steps=workload.steps, process=0, round=list(range(11)), seconds=values)
    fields: dict[str, Any] = {
        "host": CPU_HOST, "notebook": SWEEP, "status": "ok", "loop": loop, "device": device, "threads": 4,
        "workload": workload,
        "timing": Timing(first_s=2 * seconds, stopped="target", samples=[wall]), "val_accuracy": [0.93],
        "versions": {"numpy": "2.0.0"}, "started": "2026-01-01T00:00:00Z", "commit": "0123456789abcdef", "dirty": False,
        "code_sha256": "f" * 64,
    }  # fmt: skip
    return Record(**{**fields, **more})


def sweep(gpu: bool = False, host: str = CPU_HOST) -> list[Record]:
    """A batch sweep: Keras slow, one compiled epoch fast; on a GPU host also a GPU row that is slower at 32."""
    found = [
        record(loop, seconds * scale, size)
        for loop, seconds in (("keras-fit", 1.2), ("numpy", 0.2), ("jax-epoch", 0.1))
        for size, scale in ((32, 1.0), (512, 0.4))
    ]
    failed = {"status": "declined", "reason": "tensorflow: <not> installed", "timing": None, "val_accuracy": None}
    found.append(record("keras-fit-validated", 1.0, **failed))
    if gpu:
        found += [record("cupy", 0.3, device="gpu"), record("cupy", 0.02, 512, device="gpu")]
    return [one.model_copy(update={"host": host}) for one in found]


def write_host(results: Path, host: str, found: list[Record], facts: dict[str, Any] | None = None) -> Path:
    """What `overhead run` leaves for one chapter: the pair, and the host's facts. Returns the host's folder."""
    folder = results / host
    folder.mkdir(parents=True)
    chapter = BatchSweep.checked(host=host)
    records.write(folder / f"{SWEEP}.jsonl", found)
    (folder / "host.json").write_text(json.dumps(facts or FACTS))
    calls: dict[str, Any] = {"sentence": chapter.sentence, "figure": chapter.figure, "table": chapter.table}
    source = nbformat.read(ROOT / "notebooks" / f"{SWEEP}.ipynb", as_version=4)
    cells = []
    for cell in source.cells:
        cells.append(cell)
        if "parameters" in cell.metadata.get("tags", []):
            cells.append(code(f"# Parameters\nhost = '{host}'", tags=["injected-parameters"]))
        elif cell.cell_type == "code":
            call = calls.get(pages.called(cell.source), lambda records: Markdown("Not measured on a made-up host."))
            shown = call(found) if pages.shows(cell) else None
            cell.update(chatty(code(cell.source, shown)), id=cell.id, metadata=cell.metadata)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    language = {"name": "python", "pygments_lexer": "ipython3"}
    page = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": language})
    page.metadata["overhead"] = {"records_sha256": execute.checksum(folder / f"{SWEEP}.jsonl")}
    nbformat.write(page, folder / f"{SWEEP}.ipynb")
    return folder


def code(source: str, shown: Any = None, tags: list[str] | None = None) -> Any:
    """A code cell that was run, with `shown` as IPython would have kept it."""
    data: dict[str, Any] = {}
    if hasattr(shown, "_repr_mimebundle_"):
        data = shown._repr_mimebundle_()
    elif hasattr(shown, "_repr_html_"):
        data = {"text/html": shown._repr_html_()}
    elif hasattr(shown, "_repr_markdown_"):
        data = {"text/markdown": shown._repr_markdown_()}
    outputs = [nbformat.v4.new_output("execute_result", data=data, execution_count=1)] if data else []
    return nbformat.v4.new_code_cell(source, execution_count=1, outputs=outputs, metadata={"tags": tags or []})


def chatty(cell: Any) -> Any:
    """The cell, with what a framework says on stderr while it starts."""
    cell.outputs.insert(0, nbformat.v4.new_output("stream", name="stderr", text="Unable to register cuDNN factory\n"))
    return cell


@cache
def results() -> Path:
    """Results of a CPU host and a GPU host, with a file that belongs to no chapter; not to be changed."""
    folder = until_exit("overhead-results-")
    write_host(folder, CPU_HOST, sweep())
    write_host(folder, GPU_HOST, sweep(gpu=True, host=GPU_HOST), {**FACTS, "gpus": [GPU]})
    (folder / CPU_HOST / "99-unknown.ipynb").write_text("{}")
    return folder


@cache
def html() -> Path:
    """The book of `results()`, built once; returns the folder of its pages."""
    return book.build(results(), until_exit("overhead-book-")).parent


def until_exit(prefix: str) -> Path:
    """A folder that lasts as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
