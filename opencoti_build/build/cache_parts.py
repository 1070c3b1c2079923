"""What is in the cache folder, how large it is, and making it smaller."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.build.environment import CUDA_OBJECTS, ENGINE_OBJECTS
from opencoti_build.errors import BuildError, UsageError
from opencoti_build.paths import Cache, locked
from opencoti_build.toolchains.tools import tool

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SPANS = {"h": 3600, "d": 86400, "w": 7 * 86400}

COMPILER_PARTS = ("ccache", "ccache-cuda")
FOLDER_PARTS = ("builds", "steps")
PRUNED = (*COMPILER_PARTS, *FOLDER_PARTS)
"""The parts that can be made smaller piece by piece."""


@dataclass(frozen=True)
class Part:
    """A folder of the cache: ``files`` in it, and their ``size`` in bytes."""

    name: str
    about: str
    files: int
    size: int


def parts(cache: Cache) -> list[Part]:
    """Every part of the cache, whether it is there or not."""
    known = {
        "downloads": "archives and models as they were fetched",
        "objects.git": "sources and patched trees",
        "workspaces": "checkouts",
        "builds": "build folders, kept so that the next build is small",
        "steps": "finished engines, libraries and hosts",
        "toolchains": "compilers' own libraries and links",
        "ccache": "compiled objects of the engines",
        "ccache-cuda": "compiled objects of the CUDA library",
    }
    return [Part(name, about, *measure(cache.root / name)) for name, about in known.items()]


def measure(folder: Path) -> tuple[int, int]:
    """Files below ``folder`` and their bytes; files that vanish meanwhile do not count."""
    files = size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                size += (Path(path) / name).lstat().st_size
                files += 1
            except OSError:
                continue
    return files, size


def parse_size(text: str) -> int:
    """Bytes of ``5G`` or ``500M``. Raises UsageError ``bad-size``."""
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", text.strip().upper())
    if match is None:
        raise UsageError("bad-size", f"{text!r} is no size", hint="write it like 500M or 5G")
    return int(match[1]) * _UNITS[match[2]]


def parse_age(text: str) -> int:
    """Seconds of ``12h``, ``30d`` or ``2w``. Raises UsageError ``bad-age``."""
    match = re.fullmatch(r"(\d+)([hdw])", text.strip().lower())
    if match is None:
        raise UsageError("bad-age", f"{text!r} is no age", hint="write it like 12h, 30d or 2w")
    return int(match[1]) * _SPANS[match[2]]


def prune(
    cache: Cache,
    names: Iterable[str],
    *,
    max_size: int | None = None,
    older_than: int | None = None,
) -> dict[str, int]:
    """Drop what was not used for ``older_than`` seconds, and the oldest until ``max_size`` bytes.

    Both hold for each of the parts ``names``. Returns the bytes that each lost. Raises BuildError
    ``ccache-failed``.
    """
    lost = {}
    for name in names:
        before = measure(cache.root / name)[1]
        if name in COMPILER_PARTS:
            if (cache.root / name).is_dir():
                _prune_objects(cache, name, max_size, older_than)
        else:
            _prune_folders(cache, name, max_size, older_than)
        lost[name] = max(before - measure(cache.root / name)[1], 0)
    return lost


def recount(cache: Cache, name: str) -> None:
    """Let ccache count its folder ``name`` again, after files were put into it.

    Raises BuildError ``ccache-failed``.
    """
    limit = {"ccache": ENGINE_OBJECTS, "ccache-cuda": CUDA_OBJECTS}[name]
    _ccache(cache, name, limit, "--cleanup")


def _prune_objects(cache: Cache, name: str, max_size: int | None, older_than: int | None) -> None:
    with locked(cache, f"objects-{name}"):
        if older_than is not None:
            _ccache(cache, name, "0", "--evict-older-than", f"{older_than}s")
        if max_size is not None:
            # For ccache 0 is no limit.
            _ccache(cache, name, f"{max(max_size // 1000, 1)}kB", "--cleanup")


def _ccache(cache: Cache, name: str, limit: str, *arguments: str) -> None:
    env = {
        **os.environ,
        "CCACHE_DIR": str(cache.root / name),
        "CCACHE_CONFIGPATH": os.devnull,
        "CCACHE_MAXSIZE": limit,
    }
    done = subprocess.run(
        [str(tool("ccache").path), *arguments], env=env, capture_output=True, text=True
    )
    if done.returncode:
        raise BuildError("ccache-failed", f"ccache failed: {done.stderr.strip()[:200]}")


def _prune_folders(cache: Cache, name: str, max_size: int | None, older_than: int | None) -> None:
    """Whole folders, the oldest first; one that is being made is locked, and waited for."""
    rows = []
    for path in (cache.root / name).glob("[!.]*"):
        if path.is_dir() and path.name != "last":
            mark = next(
                (path / m for m in ("step.json", ".ninja_log") if (path / m).exists()), path
            )
            rows.append((mark.stat().st_mtime, measure(path)[1], path))
    rows.sort()
    left = sum(size for _, size, _ in rows)
    for when, size, path in rows:
        too_old = older_than is not None and time.time() - when > older_than
        if too_old or (max_size is not None and left > max_size):
            lock = f"step-{path.name[:16]}" if name == "steps" else f"build-{path.name}"
            with locked(cache, lock):
                # Its name goes first: what is half deleted must not be taken for a whole one.
                gone = path.with_name(f".gone-{path.name}")
                path.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
            left -= size
