"""A built engine that gates can run. Standard library only: it also runs on other machines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BASE = "base"
PATCHED = "patched"
PROBE = "opencoti-probe"


@dataclass(frozen=True)
class Subject:
    """One built tree.

    ``folder`` holds its programs and modules, ``key`` identifies the build, ``tree`` the sources.
    ``tests`` holds upstream's test programs and ``source`` the checkout that they read files from;
    both are None where there are none.
    """

    name: str
    folder: Path
    server: tuple[str, ...]
    key: str
    tree: str
    source: Path | None = None
    tests: Path | None = None

    def program(self, name: str) -> Path:
        """The path of one of its programs."""
        return self.folder / name

    def server_command(self) -> list[str]:
        """How its HTTP server is started, without arguments of the server."""
        return [str(self.folder / self.server[0]), *self.server[1:]]
