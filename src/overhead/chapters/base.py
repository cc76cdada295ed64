"""What every chapter shares: its parameters, checked where they enter, and where its records go."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import pandas as pd
from pydantic import BaseModel, BeforeValidator, ValidationError

from overhead.chapters import pages, provenance
from overhead.machine import host as hosts
from overhead.machine.pools import blas
from overhead.measure.case import Case
from overhead.measure.session import ONE_PROCESS, PRESETS, Preset, Session
from overhead.problem.workload import TRAINING_IMAGES
from overhead.records import record as records
from overhead.records.record import Record
from overhead.showing import tables

HOST_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?<!\.)")  # a folder's name everywhere
DEVICES = ("auto", "cpu", "gpu")


class ParameterError(ValueError):
    """A parameter that cannot be used: one line a fault, each naming the parameter, the limit and the value."""


def _host_name(value: Any) -> str:
    if not isinstance(value, str) or not HOST_NAME.fullmatch(value):
        quote = "" if isinstance(value, str) else "; YAML reads it so without quotes of its own: -p host '\"NAME\"'"
        raise ValueError(
            f"must be 1 to 64 letters, digits, '-', '_' or '.' (a folder under results/), got {value!r}{quote}"
        )
    return value


def a_list(value: Any, example: str) -> list[Any]:
    """A list; the text of one (papermill's `-p` gives text) is read as YAML. Raises `ValueError` otherwise."""
    if isinstance(value, str) and value.strip().startswith("["):
        import yaml  # not needed where nothing is parsed: a host that only measures may lack it

        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ValueError(f"must be a list such as {example}, got {value!r}") from None
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list such as {example} (papermill: -y '{{name: {example}}}'), got {value!r}")
    if not value:
        raise ValueError(f"must be a list such as {example} with at least one entry, got []")
    return list(value)


def _batch_sizes(value: Any) -> list[int]:
    sizes = a_list(value, "[32, 128]")
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= TRAINING_IMAGES:
            raise ValueError(f"must be whole numbers between 1 and {TRAINING_IMAGES} (training images), got {size!r}")
    return list(dict.fromkeys(sizes))


def _devices(value: Any) -> list[str]:
    names = a_list([value] if value in DEVICES else value, "[auto]")
    for name in names:
        if name not in DEVICES:
            raise ValueError(f"must be of {', '.join(DEVICES)}, got {name!r}")
    return names


def whole(value: Any) -> int:
    """A whole number; `ValueError` for a bool, a float or a text."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, got {value!r}")
    return value


HostName = Annotated[str, BeforeValidator(_host_name)]
BatchSizes = Annotated[list[int], BeforeValidator(_batch_sizes)]
Devices = Annotated[list[str], BeforeValidator(_devices)]


class Chapter(BaseModel, frozen=True, strict=True, extra="forbid"):
    """A chapter's parameters, with the measurement they describe. Subclasses add their axes."""

    name: ClassVar[str]  # the notebook's and the record file's name
    presets: ClassVar[Mapping[str, Preset]] = {**PRESETS, "quick": ONE_PROCESS}

    host: HostName = "local"  # folder under results/
    preset: Literal["quick", "workshop", "full"] = "quick"
    devices: Devices = ["auto"]

    @classmethod
    def checked(cls, **parameters: Any) -> Self:
        """The chapter of these parameters. Raises `ParameterError` with one line a fault."""
        try:
            return cls(**parameters)
        except ValidationError as error:
            raise ParameterError(in_words(error, cls.name, cls.model_fields)) from None

    @classmethod
    def from_notebook(cls, namespace: Mapping[str, Any]) -> Self:
        """The chapter of a notebook's parameters cell, read from its `globals()`.

        papermill only warns of a parameter that the cell does not declare, and where no cell is tagged
        `parameters` the defaults overwrite what it injects; this stops at both.
        """
        injected = {name: text for cell in namespace.get("In", ()) for name, text in injected_values(cell).items()}
        unknown = [name for name in injected if name not in cls.model_fields]
        if unknown:
            raise ParameterError(
                f"{cls.name} has no parameter {', '.join(unknown)}; it has {', '.join(cls.model_fields)}"
            )
        for name, value in injected.items():
            if value is not None and namespace.get(name) != value:
                raise ParameterError(
                    f"{name} must be what papermill injected, {value!r}, got {namespace.get(name)!r}: "
                    "no cell of this notebook is tagged 'parameters'; get a fresh copy"
                )
        chapter = cls.checked(**{name: namespace[name] for name in cls.model_fields if name in namespace})
        chapter.usable_devices()
        chapter.check_host()
        return chapter

    def usable_devices(self) -> list[str]:
        """The kinds of device to measure. Raises `ParameterError` for a GPU that this host does not have."""
        has_gpu = bool(facts_of_run()["gpus"] if os.environ.get("OVERHEAD_KEPT") else hosts.gpus())
        if "gpu" in self.devices and not has_gpu:
            raise ParameterError("devices must name a device of this host (cpu), got gpu: no NVIDIA GPU was found")
        if "auto" in self.devices:
            return ["cpu", "gpu"] if has_gpu else ["cpu"]
        return list(dict.fromkeys(self.devices))

    def host_card(self) -> pages.Html:
        """The host and the parameters of this page."""
        return pages.host_card(self)

    @property
    def settings(self) -> Preset:
        """What the preset's name stands for."""
        return self.presets[self.preset]

    def take(self, session: Session) -> list[Record]:
        """Measure. Each chapter says how."""
        raise NotImplementedError

    def records_of(self, case: Case, fields: Mapping[str, Any]) -> list[Record]:
        """What `take` makes of a case, for a run that was ended before `take` was done: a record, or one an op."""
        by_op = any("/" in clock for clock, *_ in case.samples)
        return case.op_records(dict(fields)) if by_op else [case.record(dict(fields))]

    def in_table(self, frame: pd.DataFrame, caption: str) -> pages.Html:
        """A frame of this chapter as a page shows tables."""
        return pages.Html(tables.as_html(frame, caption, caption))

    def measure(self) -> list[Record]:
        """The chapter's records. In the kernel of `overhead run` they are measured already, and read.

        In any other kernel (plain papermill, a notebook that is open) they are measured here and kept apart from what
        `overhead run` keeps, in `papermill/` of the host's folder; a line says where.
        """
        if kept := os.environ.get("OVERHEAD_KEPT"):
            return records.read(Path(kept) / f"{self.name}.jsonl")
        folder = results_folder() / self.host / "papermill"
        folder.mkdir(parents=True, exist_ok=True)  # fails before minutes are spent
        found = provenance.stamped(self.take(Session(self.settings, self.provenance(), print)))
        records.write(folder / f"{self.name}.jsonl", found)
        records.write_text(folder / "host.json", json.dumps(host_facts(found), indent=1) + "\n")
        print(f"records: {self.host}/papermill/{self.name}.jsonl in the results folder")
        return records.read(folder / f"{self.name}.jsonl")

    def provenance(self) -> dict[str, Any]:
        """The fields that every record of this run shares; its code is stamped when it is kept."""
        commit, dirty = provenance.revision()
        return {
            "host": self.host,
            "notebook": self.name,
            "started": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "commit": commit,
            "dirty": dirty,
            "preset": self.preset,
        }

    def check_host(self) -> None:
        """Refuse to mix this host's results with another's. Raises `ParameterError`."""
        if os.environ.get("OVERHEAD_KEPT"):
            return  # nothing is measured: the records may be of any host
        path = results_folder() / self.host / "host.json"
        if path.exists():
            try:
                kept = json.loads(path.read_text(encoding="utf-8"))
                why = hosts.other_host(kept, hosts.facts()) if isinstance(kept, dict) else "it holds no facts"
            except (ValueError, RecursionError):
                why = "its host.json is no JSON"
            except (TypeError, AttributeError):
                why = "its host.json holds values of another kind"
            if why:
                why = why[:200]  # it may repeat a value of the file
                raise ParameterError(f"host {self.host!r} was measured on another machine ({why}); choose another name")


def injected_values(cell: str) -> dict[str, Any]:
    """What a cell injected by papermill assigns, by name (None where it is no literal); empty for any other cell."""
    if not cell.startswith("# Parameters"):
        return {}
    found: dict[str, Any] = {}
    for node in ast.parse(cell).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:  # papermill writes float('nan')
                found[node.targets[0].id] = None
    return found


def in_words(error: ValidationError, of: str, known: Mapping[str, Any]) -> str:
    """A validation error as one line a fault: the parameter, the limit, the value."""
    lines = []
    for fault in error.errors():
        name = ".".join(str(part) for part in fault["loc"] if isinstance(part, str)) or of
        if fault["type"] == "extra_forbidden":
            lines.append(f"{of} has no parameter {name}; it has {', '.join(known)}")
            continue
        text = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "too_short":
            text = f"must have at least {fault.get('ctx', {}).get('min_length')} entries, got {fault['input']!r}"
        text = text if text.startswith("must ") else text[:1].lower() + text[1:]
        text = text.replace("input should be", "must be")
        lines.append(f"{name} {text}" if "got " in text else f"{name} {text}, got {fault['input']!r}")
    return "\n".join(dict.fromkeys(lines[:2]))


def results_folder() -> Path:
    """Where results go: `OVERHEAD_RESULTS`, else `./results`."""
    return Path(os.environ.get("OVERHEAD_RESULTS") or "results")


def host_facts(found: Sequence[Record]) -> dict[str, Any]:
    """What host.json holds: the host's facts, frameworks, and BLAS pools of the workers that were timed."""
    versions: dict[str, str] = {}
    pools: dict[str, Any] = {}
    for record in found:
        versions |= record.versions
        if "OPENBLAS_CORETYPE" in record.env and "OPENBLAS_CORETYPE" not in os.environ:
            continue  # its kernels were chosen by us
        for pool in record.pools:
            pools.setdefault(f"{record.loop}:{pool['library']}", pool)
    return {
        **hosts.facts(),
        "frameworks": hosts.frameworks(),
        "blas": blas(),
        "versions": dict(sorted(versions.items())),
        "pools": pools,
    }


def facts_of_run() -> dict[str, Any]:
    """What host.json says of the host and the day of the records that a page is made from; where they are measured
    here and now, what is true here and now."""
    if kept := os.environ.get("OVERHEAD_KEPT"):
        facts = json.loads((Path(kept) / "host.json").read_text(encoding="utf-8"))
        versions, pools = facts.get("versions", {}), facts.get("pools", {})
        return {
            "frameworks": {name: {"version": version} for name, version in versions.items()},
            "blas": list(pools.values()),
            **facts,
        }
    return {**hosts.facts(), "frameworks": hosts.frameworks(), "blas": blas()}
