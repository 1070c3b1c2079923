"""Results of gates, their table, and the file ``gates.json``. Standard library only."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opencoti_build.errors import UsageError
from opencoti_build.gates.gate import Verdict

FORMAT = 1
GATES_FILE = "gates.json"


@dataclass(frozen=True)
class Result:
    """One measured case. ``device`` is empty for a run on the CPU of the building machine."""

    gate: str
    model: str
    case: str
    value: float | None
    limit: str
    verdict: Verdict
    detail: str
    command: str
    device: str = ""

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return {**asdict(self), "verdict": self.verdict.value}

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What makes two results measurements of the same thing."""
        return (self.gate, self.model, self.case, self.device)


def result_from_json(data: Mapping[str, Any]) -> Result:
    """The reverse of ``to_json``."""
    return Result(**{**data, "verdict": Verdict(data["verdict"])})


@dataclass(frozen=True)
class Subjects:
    """What was measured: trees, toolchain, CPU code and the digest of the gates' own code."""

    base_tree: str
    workspace_tree: str
    version: str
    tag: str
    cpu_variant: str
    toolchain: Mapping[str, Any]
    gates_digest: str


def render(subjects: Subjects, results: Iterable[Result]) -> bytes:
    """The bytes of gates.json."""
    data = {
        "format": FORMAT,
        "subjects": asdict(subjects),
        "ok": all(result.verdict is not Verdict.FAIL for result in results),
        "results": [result.to_json() for result in results],
    }
    return (json.dumps(data, indent=2, sort_keys=True) + "\n").encode("ascii")


def read(path: Path) -> tuple[Subjects, list[Result]]:
    """Read a gates.json. Raises UsageError ``gates-file-invalid``."""
    try:
        data = json.loads(path.read_bytes())
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']!r} is not {FORMAT}")
        results = [result_from_json(item) for item in data["results"]]
        return Subjects(**data["subjects"]), results
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            "gates-file-invalid", f"{path} is not a file of gate results: {error}"
        ) from error


def merge(old: Sequence[Result], new: Sequence[Result]) -> list[Result]:
    """``old`` with the results of ``new`` in the place of those for the same case."""
    replaced = {result.identity: result for result in new}
    kept = [replaced.pop(result.identity, result) for result in old]
    return [*kept, *replaced.values()]


def table(results: Sequence[Result]) -> str:
    """The results as text: gate, model, case, value, limit, verdict, and words on what failed."""
    head = ("gate", "model", "case", "value", "limit", "verdict")
    rows = [
        (r.gate, r.model or "-", r.case, _number(r.value), r.limit, r.verdict.value.upper())
        for r in results
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (head, *rows)]
    notes = [
        f"{r.gate} {r.model} {r.case}: {r.detail}"
        for r in results
        if r.verdict is not Verdict.PASS and r.detail
    ]
    return "\n".join([*lines, *notes])


def command_line(gate: str, case: str, tag: str, extra: Sequence[str] = ()) -> str:
    """The command that measures one case again."""
    words = ["opencoti-build", "gate", "run", gate, "--tag", tag, "--case", case, "--again"]
    return shlex.join([*words, *extra])


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(int(value)) if float(value).is_integer() else f"{value:.6g}"


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` so that no reader ever sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
