"""A notebook executed by papermill, which is known here only, in a process of its own.

Whoever ends the run then ends one process, at any instant, and the kernel with it: nothing of papermill's or Jupyter's
own clearing up, which a signal may cut in two, is left to be done where the command ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from overhead.machine.alone import die_with_parent

START_LIMIT_S = 120
LONGEST_REASON = 2_000  # characters


class NotebookFailed(RuntimeError):
    """An executed notebook that failed or did not reach its last cell; says where and why in one or two lines."""


def executed(source: Path, scratch: Path, parameters: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """Run the notebook in `scratch`, its kernel seeing `env`; without paths, with a kernel name that is true.

    Raises `NotebookFailed`.
    """
    target = scratch / source.name
    asked = {
        "source": str(source.resolve()), "target": str(target), "parameters": dict(parameters),
        "progress_bar": sys.stderr.isatty(),
    }  # fmt: skip
    ours, theirs = os.pipe()  # its answer: a kernel may print what it likes
    with os.fdopen(ours, encoding="utf-8") as answer:
        try:
            done = subprocess.run(
                [sys.executable, "-m", __name__, str(theirs)], input=json.dumps(asked).encode(), pass_fds=(theirs,),
                stdout=subprocess.DEVNULL, env={**os.environ, **env},
                start_new_session=True,  # Ctrl-C comes to us, and we end it
            )  # fmt: skip
        finally:
            os.close(theirs)
        said = answer.read()
    if done.returncode < 0:
        raise NotebookFailed(f"{source.stem}: papermill was ended by {signal.Signals(-done.returncode).name}")
    if done.returncode or not said:
        raise NotebookFailed(f"{source.stem}: papermill exited with {done.returncode}")
    if why := json.loads(said)["failed"]:
        raise NotebookFailed(f"{source.stem}: {why}")
    return _checked(json.loads(target.read_text(encoding="utf-8")), source)


def _checked(notebook: dict[str, Any], source: Path) -> dict[str, Any]:
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and "".join(cell["source"]).strip()]
    if code and code[-1].get("execution_count") is None:
        raise NotebookFailed(f"{source.stem}: the last cell was not reached")
    for cell in code:
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                raise NotebookFailed(f"{source.stem}: {output['ename']}: {output['evalue']}")
    # papermill leaves the name of the source's kernel, whichever one it started.
    notebook["metadata"]["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook["metadata"]["papermill"].update(
        input_path=f"notebooks/{source.name}", output_path=source.name, environment_variables={}
    )
    return notebook


def _papermill(asked: dict[str, Any]) -> str | None:
    """Why the notebook failed; None where papermill says nothing of the kind."""
    import papermill
    from traitlets.config import Config

    try:
        papermill.execute_notebook(
            asked["source"], asked["target"], parameters=asked["parameters"], kernel_name="python3",
            cwd=str(Path(asked["target"]).parent), progress_bar=asked["progress_bar"], log_output=False,
            start_timeout=START_LIMIT_S,
            config=Config(KernelManager={"transport": "ipc"}),  # no port that another user could speak to
        )  # fmt: skip
    except papermill.PapermillExecutionError as error:
        what = (error.evalue or "the notebook kept no more of it")[:LONGEST_REASON]
        return f"cell {error.exec_count} raised {error.ename}: {what}"
    except Exception as error:  # a dead kernel, a kernel that did not start
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:LONGEST_REASON]}"
    return None


def main() -> None:
    """Execute what is asked for on stdin. In a thread: in the main one nbclient would handle signals in its own way."""
    die_with_parent()
    answers_on = int(sys.argv[1])
    os.set_inheritable(answers_on, False)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asked = json.load(sys.stdin)

    def execute() -> None:
        failed = _papermill(asked)
        os.write(answers_on, json.dumps({"failed": failed}).encode())

    worker = threading.Thread(target=execute)
    worker.start()
    worker.join()


if __name__ == "__main__":
    main()
