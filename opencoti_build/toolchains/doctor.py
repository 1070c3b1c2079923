"""What a build needs of the machine, examined one by one."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from opencoti_build.errors import BuildError, UsageError
from opencoti_build.paths import find_cache, find_project
from opencoti_build.targets import CUDA_TARGETS, Target
from opencoti_build.toolchains.nvcc import find_nvcc
from opencoti_build.toolchains.tools import PACKAGES, tool

# A cold engine build needs about this much: sources, objects, build folder, ccache.
_DISK_BYTES = 4 << 30


@dataclass(frozen=True)
class Finding:
    """One examined thing. ``text`` is a version or a reason; ``cure`` a command or advice."""

    name: str
    found: bool
    text: str
    cure: str = ""
    needed: bool = True

    @property
    def mark(self) -> str:
        """ok, missing, or - for what is missing but not needed."""
        return "ok     " if self.found else "missing" if self.needed else "-      "

    def to_json(self) -> dict[str, object]:
        """The finding as plain data."""
        return asdict(self)


def examine() -> list[Finding]:
    """All findings, in the order in which they matter."""
    findings = [_python(), _git(), *(_package(name) for name in PACKAGES), _zig_runs()]
    findings += [_nvcc(target) for target in CUDA_TARGETS]
    return [*findings, _place("project", lambda: find_project().root), _disk()]


def _python() -> Finding:
    version = platform.python_version()
    return Finding("python", sys.version_info >= (3, 10), version, "install Python 3.10 or newer")


def _git() -> Finding:
    path = shutil.which("git")
    if path is None:
        return Finding("git", False, "not on PATH", "install git with the system's package manager")
    done = subprocess.run([path, "--version"], capture_output=True, text=True)
    return Finding("git", done.returncode == 0, done.stdout.strip().removeprefix("git version "))


def _package(name: str) -> Finding:
    try:
        found = tool(name)
    except BuildError as error:
        return Finding(name, False, error.message, error.hint or "")
    return Finding(name, True, found.version)


def _zig_runs() -> Finding:
    """zig starts: its package may be for another CPU or C library than this machine's."""
    try:
        path = tool("zig").path
        done = subprocess.run([str(path), "version"], capture_output=True, text=True, timeout=60)
    except BuildError:
        return Finding("zig starts", False, "zig is missing", "pip install ziglang")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("zig starts", False, str(error), "pip install --force-reinstall ziglang")
    text = done.stdout.strip() or done.stderr.strip()[:100]
    cure = "pip install --force-reinstall ziglang"
    return Finding("zig starts", done.returncode == 0, text, cure)


def _nvcc(target: Target) -> Finding:
    """Only needed for the CUDA library of ``target``."""
    name = "nvcc" if target is Target.X86_64_LINUX else f"nvcc {target}"
    try:
        found = find_nvcc(target)
    except BuildError as error:
        return Finding(name, False, error.message, error.hint or "", needed=False)
    return Finding(name, True, f"{found.version}, g++ {found.host.version}", needed=False)


def _place(name: str, find: Callable[[], Path]) -> Finding:
    try:
        return Finding(name, True, str(find()))
    except UsageError as error:
        return Finding(name, False, error.message, error.hint or "")


def _disk() -> Finding:
    folder = find_cache().root
    existing = next(path for path in (folder, *folder.parents) if path.is_dir())
    free = shutil.disk_usage(existing).free
    text = f"{folder} ({free / 1e9:.0f} GB free)"
    return Finding("cache", free >= _DISK_BYTES, text, "free 4 GB or set OPENCOTI_BUILD_CACHE")
