"""Where things live: the project folder, the cache, and atomic files in them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.errors import UsageError

CACHE_ENV = "OPENCOTI_BUILD_CACHE"
PROJECT_ENV = "OPENCOTI_BUILD_PROJECT"


@dataclass(frozen=True)
class Project:
    """A checkout of this project: its recipes, pins and patches."""

    root: Path

    @property
    def patches(self) -> Path:
        return self.root / "patches"

    @property
    def vendor(self) -> Path:
        return self.root / "vendor"

    @property
    def recipes(self) -> Path:
        return self.root / "recipes"


@dataclass(frozen=True)
class Cache:
    """The cache folder. Everything in it can be made again; deleting it loses only time."""

    root: Path

    @property
    def downloads(self) -> Path:
        return self.root / "downloads"

    @property
    def objects(self) -> Path:
        return self.root / "objects.git"

    @property
    def workspaces(self) -> Path:
        return self.root / "workspaces"

    @property
    def builds(self) -> Path:
        return self.root / "builds"

    @property
    def steps(self) -> Path:
        return self.root / "steps"

    @property
    def toolchains(self) -> Path:
        return self.root / "toolchains"

    @property
    def ccache(self) -> Path:
        return self.root / "ccache"

    @property
    def ccache_cuda(self) -> Path:
        """ccache's folder for the CUDA library: it is exported, imported and limited alone."""
        return self.root / "ccache-cuda"

    @property
    def locks(self) -> Path:
        return self.root / "locks"


def find_project(start: Path | None = None) -> Project:
    """The project that holds ``start`` (default: the current folder), else this package's own.

    Raises UsageError ``no-project``.
    """
    if env := os.environ.get(PROJECT_ENV):
        candidates = [Path(env)]
    else:
        here = (start or Path.cwd()).resolve()
        candidates = [here, *here.parents, Path(__file__).resolve().parent.parent]
    for folder in candidates:
        if (folder / "recipes").is_dir() and (folder / "patches").is_dir():
            return Project(folder.resolve())
    raise UsageError(
        "no-project",
        "no folder with recipes/ and patches/ found here or above",
        hint=f"run inside a checkout of opencoti-build, or set {PROJECT_ENV}",
    )


def find_cache() -> Cache:
    """The cache folder: ``$OPENCOTI_BUILD_CACHE`` or the user's cache folder."""
    if env := os.environ.get(CACHE_ENV):
        return Cache(Path(env).expanduser().absolute())
    import platformdirs

    return Cache(platformdirs.user_cache_path("opencoti-build", appauthor=False))


@contextlib.contextmanager
def atomic_path(target: Path, mode: int = 0o644) -> Iterator[Path]:
    """A temporary path beside ``target`` that replaces it when the block ends well.

    The file is synced and renamed over ``target``; on any exception it is removed and
    ``target`` stays as it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def write_atomic(target: Path, data: bytes, mode: int = 0o644) -> None:
    """Write ``data`` to ``target`` so that no reader ever sees a part of it."""
    with atomic_path(target, mode) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def locked(cache: Cache, name: str) -> Iterator[None]:
    """Hold the cache-wide lock ``name`` (one file under ``locks/``) across processes."""
    from filelock import FileLock

    cache.locks.mkdir(parents=True, exist_ok=True)
    with FileLock(cache.locks / f"{name}.lock"):
        yield
