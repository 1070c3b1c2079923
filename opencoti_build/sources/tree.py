"""Files of a source tree and the git tree objects that name them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum

from opencoti_build.errors import SourceError


class FileMode(Enum):
    """The only modes that a source tree may hold, as git writes them."""

    FILE = "100644"
    EXECUTABLE = "100755"
    LINK = "120000"


@dataclass(frozen=True)
class ImportFile:
    """One file: its path with ``/`` below the tree's root, mode, and content (a link's target)."""

    path: str
    mode: FileMode
    data: bytes


# The files of one tree, read one at a time. Close it when not used up: it may hold a lock.
Files = Generator[ImportFile, None, None]


def object_id(kind: str, data: bytes) -> bytes:
    """The 20-byte git id of an object of ``kind`` ("blob", "tree") with content ``data``."""
    header = f"{kind} {len(data)}\0".encode("ascii")
    return hashlib.sha1(header + data, usedforsecurity=False).digest()


def unsafe_archive(member: str, why: str) -> SourceError:
    """The error for an entry that must not be unpacked."""
    return SourceError(
        "unsafe-archive",
        f"refused to unpack {member!r}: {why}",
        hint="the archive is damaged or hostile; take it from another place",
        context={"member": member, "why": why},
    )


@dataclass
class _Folder:
    entries: dict[str, tuple[FileMode, bytes] | _Folder] = field(default_factory=dict)


class TreeBuilder:
    """Collects (path, mode, blob id) and writes the tree objects, deepest first."""

    def __init__(self) -> None:
        self._root = _Folder()

    def add(self, path: str, mode: FileMode, blob: bytes) -> None:
        """Add one file; raises SourceError ``unsafe-archive`` when its place is taken."""
        *parents, name = path.split("/")
        folder = self._root
        for parent in parents:
            below = folder.entries.setdefault(parent, _Folder())
            if not isinstance(below, _Folder):
                raise unsafe_archive(path, f"{parent!r} is both a file and a folder")
            folder = below
        if name in folder.entries:
            raise unsafe_archive(path, "the name occurs twice")
        folder.entries[name] = (mode, blob)

    def write(self, put: Callable[[str, bytes], bytes]) -> bytes:
        """Give every tree object to ``put(kind, data) -> id`` and return the root's id."""
        return self._write(self._root, put)

    def _write(self, folder: _Folder, put: Callable[[str, bytes], bytes]) -> bytes:
        rows: list[tuple[bytes, bytes]] = []
        for name, entry in folder.entries.items():
            raw = name.encode("utf-8", "surrogateescape")
            if isinstance(entry, _Folder):
                # git orders folders as if their names ended with a slash.
                rows.append((raw + b"/", b"40000 " + raw + b"\0" + self._write(entry, put)))
            else:
                mode, blob = entry
                rows.append((raw, mode.value.encode("ascii") + b" " + raw + b"\0" + blob))
        return put("tree", b"".join(row for _, row in sorted(rows)))
