"""Running ninja: progress, the number of compiled files, and a log."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.ui import Ui

_STATUS = re.compile(r"^\[(\d+)/(\d+)\] (.*)$")


@dataclass(frozen=True)
class NinjaResult:
    """The exit status of ninja, files compiled, and how many of them ccache had."""

    status: int
    compiled: int
    from_ccache: int


def run_logged(command: Sequence[str], env: Mapping[str, str], log: Path) -> int:
    """Run ``command`` with its output in ``log``; return its exit status."""
    with log.open("wb") as stream:
        return subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
        ).returncode


def run_ninja(
    command: Sequence[str], env: Mapping[str, str], log: Path, target: str, ui: Ui
) -> NinjaResult:
    """Run ninja in its own process group, showing progress from its status lines.

    On an interrupt the whole group is stopped; ninja's own record lets the next run go on.
    """
    stats = log.with_suffix(".ccache")
    stats.unlink(missing_ok=True)
    env = {**env, "NINJA_STATUS": "[%f/%t] ", "CCACHE_STATSLOG": str(stats)}
    compiled = 0
    with log.open("w", buffering=1) as stream, ui.task("compile", row=target) as task:
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                stream.write(line)
                if match := _STATUS.match(line):
                    task.update(done=int(match[1]), total=int(match[2]))
                    compiled += match[3].startswith("Building ")
            status = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
    return NinjaResult(status, compiled, _ccache_hits(stats))


def _ccache_hits(stats: Path) -> int:
    try:
        lines = stats.read_text(errors="replace").splitlines()
    except OSError:
        return 0
    return sum(line in ("direct_cache_hit", "preprocessed_cache_hit") for line in lines)
