"""Compiler errors: the file, the line, the patch that owns it, and the end of the log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.errors import BuildError

LOG_TAIL_LINES = 20

_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$"
)
_CMAKE = re.compile(r"^CMake Error at (?P<file>[^:]+):(?P<line>\d+)")


@dataclass(frozen=True)
class Diagnostic:
    """One compiler error; ``file`` is relative to the workspace when it lies in it."""

    file: str
    line: int
    text: str


def find_errors(log: str, workspace: Path) -> list[Diagnostic]:
    """The errors in a build log, in order, without repeats."""
    found: dict[Diagnostic, None] = {}
    for row in log.splitlines():
        match = _ERROR.match(row) or _CMAKE.match(row)
        if match:
            text = match.groupdict().get("text") or "CMake error"
            file = _in_workspace(match["file"], workspace)
            found[Diagnostic(file, int(match["line"]), text)] = None
    return list(found)


def _in_workspace(name: str, workspace: Path) -> str:
    """``name`` relative to the workspace: compilers print absolute or build-relative paths."""
    marker = f"/{workspace.name}/"
    if name.startswith(str(workspace) + "/"):
        return name[len(str(workspace)) + 1 :]
    if name.startswith("..") and marker in name:
        return name.split(marker, 1)[1]
    return name.removeprefix("./")


def build_failure(
    reason: str,
    message: str,
    log: Path,
    workspace: Path,
    owner: Callable[[str, int], str | None],
) -> BuildError:
    """A BuildError with the first compiler errors, their patches and the log's last lines.

    ``owner(file, line)`` names the patch that wrote a line of the workspace, or None.
    """
    text = log.read_text(errors="replace")
    context: dict[str, object] = {}
    for number, item in enumerate(find_errors(text, workspace)[:5], 1):
        patch = owner(item.file, item.line)
        where = f"{item.file}:{item.line}: {item.text}"
        context[f"error {number}"] = where + (f" (patch {patch})" if patch else " (upstream line)")
    context["log"] = log
    tail = [line for line in text.splitlines() if line.strip()][-LOG_TAIL_LINES:]
    context["last lines"] = "\n    " + "\n    ".join(line[:400] for line in tail)
    return BuildError(
        reason, message, context=context, hint="the whole log is in the file named above"
    )
