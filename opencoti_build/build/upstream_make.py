"""Runs upstream's makefile with the toolchain's own make, and says what failed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.build.diagnostics import build_failure
from opencoti_build.build.ninja import run_logged
from opencoti_build.toolchains.cosmocc import Cosmocc
from opencoti_build.ui import Ui

SETUP = "setup"
_PASSED = ("HOME", "PATH", "TMPDIR", "LANG", "TERM")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")
_NOWHERE = "http://offline.invalid"


def no_owner(file: str, line: int) -> str | None:
    """Before the series is applied, no line is ours."""
    return None


@dataclass(frozen=True)
class UpstreamMake:
    """The makefile of the checkout ``root``; logs go to ``logs``, outside of it."""

    toolchain: Cosmocc
    root: Path
    logs: Path
    ui: Ui
    offline: bool

    def setup(self) -> None:
        """Upstream's own preparation: submodules and patches.

        Raises BuildError ``make-target-missing`` or ``setup-failed``.
        """
        self._run(SETUP, [SETUP], no_owner, self._network())

    def build(
        self, jobs: int | None, revision: str, owner: Callable[[str, int], str | None]
    ) -> None:
        """The default goal. Raises BuildError ``make-target-missing`` or ``build-failed``."""
        arguments = [
            f"-j{jobs or os.cpu_count() or 1}",
            # The makefile would take the time and the commit of a git checkout.
            "LLAMA_BUILD_NUMBER=0",
            f"LLAMA_BUILD_COMMIT={revision}",
        ]
        env = {**self._network(), "GIT_DIR": os.devnull}
        self._run("build", arguments, owner, env)

    def _run(
        self,
        goal: str,
        arguments: list[str],
        owner: Callable[[str, int], str | None],
        more: dict[str, str],
    ) -> None:
        log = self.logs / f"{goal}.log"
        env = {
            **_kept(_PASSED),
            "LC_ALL": "C",
            "TZ": "UTC",
            "SOURCE_DATE_EPOCH": "0",
            "GIT_CEILING_DIRECTORIES": str(self.root.parent),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            **more,
        }
        command = self.toolchain.make("-C", str(self.root), *arguments)
        with self.ui.task(f"make {goal}"):
            status = run_logged(command, env, log)
        if status == 0:
            return
        reason, message = f"{goal}-failed", f"upstream's {goal} failed"
        if _target_missing(log.read_text(errors="replace"), goal):
            reason, message = "make-target-missing", f"upstream's makefile has no {goal}"
        raise build_failure(reason, message, log, self.root, owner)

    def _network(self) -> dict[str, str]:
        """The user's proxies; offline one that leads nowhere, for git and curl alike."""
        if self.offline:
            return {**dict.fromkeys(_PROXIES[:2], _NOWHERE), "GIT_ALLOW_PROTOCOL": "file"}
        return _kept(_PROXIES)


def _kept(names: Iterable[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _target_missing(log: str, goal: str) -> bool:
    pattern = rf"\*\*\* No rule to make target [`']{re.escape(goal)}'\.|\*\*\* No targets\b"
    return re.search(pattern, log) is not None
