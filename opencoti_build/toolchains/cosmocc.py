"""The reference toolchain: Cosmopolitan's compilers and its make, unpacked from a pinned zip."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.errors import BuildError
from opencoti_build.paths import Cache, locked
from opencoti_build.sources.archives import read_tree
from opencoti_build.sources.fetch import FetchContext, ensure_file
from opencoti_build.sources.pins import Pin
from opencoti_build.sources.tree import FileMode, ImportFile

PIN = "cosmocc"
_MAKE = "bin/make"


@dataclass(frozen=True)
class Cosmocc:
    """An unpacked toolchain."""

    pin: Pin
    folder: Path

    def make(self, *arguments: str) -> list[str]:
        """The command that runs the toolchain's make.

        Through a shell: the program is an APE, and where the kernel knows none of these, a shell
        is what starts it.
        """
        return ["/bin/sh", "-c", 'exec "$0" "$@"', str(self.folder / _MAKE), *arguments]

    def place(self, tree: Path) -> None:
        """Put the toolchain where llamafile's makefile would download it to."""
        link = tree / ".cosmocc" / self.pin.version
        link.parent.mkdir()
        link.symlink_to(self.folder, target_is_directory=True)


def cosmocc_key(pin: Pin) -> dict[str, str]:
    """What of the toolchain can change a build's output, without having it."""
    return {"name": pin.name, "version": pin.version, "identity": str(pin.sha256)[:32]}


def ensure_cosmocc(pin: Pin, context: FetchContext) -> Cosmocc:
    """Fetch and unpack the toolchain, once.

    Raises SourceError, and BuildError ``toolchain-incomplete``.
    """
    archive = ensure_file(pin, context)
    cache: Cache = context.cache
    folder = cache.toolchains / f"{pin.name}-{pin.version}-{str(pin.sha256)[:12]}"
    with locked(cache, folder.name):
        if not folder.is_dir():
            with context.ui.task(f"unpack {archive.name}"):
                _unpack(archive, folder)
    return Cosmocc(pin, folder)


def _unpack(archive: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for file in read_tree(archive, None):
            _write(file, temporary / file.path)
        if not (temporary / _MAKE).is_file():
            raise BuildError(
                "toolchain-incomplete", f"{archive.name} has no {_MAKE}", context={"file": archive}
            )
        temporary.chmod(0o755)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(file: ImportFile, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if file.mode is FileMode.LINK:
        path.symlink_to(file.data.decode("utf-8", "surrogateescape"))
        return
    path.write_bytes(file.data)
    path.chmod(0o755 if file.mode is FileMode.EXECUTABLE else 0o644)
