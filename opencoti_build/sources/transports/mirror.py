"""Local folders and archives given with ``--mirror``. They are only read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from opencoti_build.digest import sha256_file
from opencoti_build.errors import SourceError
from opencoti_build.sources.archives import is_archive, read_tree
from opencoti_build.sources.download import check_file
from opencoti_build.sources.pins import Archive, Pin
from opencoti_build.sources.safety import check_link
from opencoti_build.sources.tree import FileMode, Files, ImportFile, unsafe_archive

_MOST_FILES = 100_000
_MOST_BYTES = 2 << 30


def find_archive(mirror: Path, archive: Archive) -> Path | None:
    """The archive's file in the mirror, checked; None when there is none of that name.

    A folder may hold it directly or, as our own cache does, in a folder named by its sha256.
    Raises SourceError ``hash-mismatch`` or ``size-mismatch`` when the only such file is wrong.
    """
    if mirror.is_file():
        same = mirror.stat().st_size == archive.size and sha256_file(mirror) == archive.sha256
        return mirror if same else None
    wrong: SourceError | None = None
    for path in (mirror / archive.sha256 / archive.filename, mirror / archive.filename):
        if path.is_file():
            try:
                check_file(path, str(path), archive.sha256, archive.size)
                return path
            except SourceError as error:
                wrong = error
    if wrong:
        raise wrong
    return None


def read_any(mirror: Path, pin: Pin) -> Files:
    """The files of a mirror that is itself the tree: a folder, or an archive of it.

    Only for pins with a tree id, which is all that vouches for the files. Raises SourceError
    ``mirror-unusable``.
    """
    if pin.tree is None:
        raise unusable(mirror, pin, "the pin has no tree id to compare the files with")
    if mirror.is_dir():
        return _walk(mirror, pin)
    if not is_archive(mirror):
        raise unusable(mirror, pin, "it is neither a folder nor an archive")
    return _strip_single_folder(list(read_tree(mirror, None)))


def unusable(mirror: Path, pin: Pin, why: str) -> SourceError:
    """The error for a mirror that cannot give a pin."""
    return SourceError(
        "mirror-unusable",
        f"{mirror} does not hold {pin.name}: {why}",
        context={"mirror": mirror, "pin": pin.name, "why": why},
    )


def _strip_single_folder(files: list[ImportFile]) -> Files:
    tops = {file.path.partition("/")[0] for file in files}
    nested = all("/" in file.path for file in files)
    for file in files:
        path = file.path.partition("/")[2] if len(tops) == 1 and nested else file.path
        yield ImportFile(path, file.mode, file.data)


def _walk(root: Path, pin: Pin) -> Files:
    """The files below ``root``; counted first, so that a wrong folder is not read for hours."""
    paths, total = [], 0
    for folder, folders, names in os.walk(root):
        if ".git" in folders:
            folders.remove(".git")
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in [*names, *links]:
            path = Path(folder) / name
            paths.append(path)
            total += path.lstat().st_size
        if len(paths) > _MOST_FILES or total > _MOST_BYTES:
            raise unusable(root, pin, "the folder is too large to be the tree")
    for path in sorted(paths):
        name = path.relative_to(root).as_posix()
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(path)  # noqa: PTH115
            check_link(name, target)
            yield ImportFile(name, FileMode.LINK, os.fsencode(target))
        elif stat.S_ISREG(status.st_mode):
            mode = FileMode.EXECUTABLE if status.st_mode & 0o100 else FileMode.FILE
            yield ImportFile(name, mode, path.read_bytes())
        else:
            raise unsafe_archive(name, "it is a device, a pipe or a socket")
