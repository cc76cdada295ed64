"""A process that is asked: commands as JSON lines on stdin, answers on a descriptor of their own."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from overhead.machine.alone import die_with_parent
from overhead.measure.reasons import explain


def answer_commands(make: Callable[[], Any], device: str, answers_on: int) -> None:
    """Answer commands until stdin ends, with the methods of what `make` gives; the first answer is its `hello()`.

    A command that fails is answered with the reason, not with a crash.
    Answers go to the descriptor `answers_on` with the number of their command, so that nothing that a framework or
    a start-up file prints can be taken for one.
    """
    os.set_inheritable(answers_on, False)
    answers = os.fdopen(answers_on, "w", buffering=1, encoding="utf-8")
    die_with_parent()
    worker: Any = None
    for line in sys.stdin:
        command = json.loads(line)
        number, verb = command.pop("number"), command.pop("do")
        try:
            if worker is None:
                start = time.perf_counter()
                worker = make()
                import_s = time.perf_counter() - start
                answer = {"import_s": import_s, **worker.hello()}
            else:
                answer = getattr(worker, verb)(**command)
        except Exception as error:
            status, reason = explain(error, device)
            answer = {"status": status, "reason": reason}
        answers.write(json.dumps({"number": number, **answer}) + "\n")
        answers.flush()
