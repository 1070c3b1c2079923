"""Reads tar and zip archives without unpacking them, and refuses hostile ones."""

from __future__ import annotations

import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from opencoti_build.digest import CHUNK
from opencoti_build.errors import SourceError
from opencoti_build.sources.safety import NameGuard, check_link, check_name
from opencoti_build.sources.tree import FileMode, Files, ImportFile, unsafe_archive

_ZSTD = b"\x28\xb5\x2f\xfd"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)


@dataclass(frozen=True)
class _Entry:
    """One entry of either format. ``open`` gives the content of a regular file."""

    name: str
    mode: FileMode | None  # None: a folder
    open: Callable[[], IO[bytes]]
    hard_link: str | None = None


def read_tree(archive: Path, member: str | None) -> Files:
    """The files below the folder ``member`` (None: all), named from there, in archive order.

    Every entry of the archive is checked, not only those below ``member``. Raises SourceError
    ``unsafe-archive``, ``bad-archive`` (damaged, or no archive) or ``member-missing``.
    """
    root = (member or "").strip("/")
    prefix = f"{root}/" if root else ""
    found = False
    with _entries(archive) as entries:
        guard = NameGuard()
        for entry in entries:
            parts = check_name(entry.name)
            if not parts:
                continue
            guard.add(parts, folder=entry.mode is None)
            path = "/".join(parts)
            inside = path.startswith(prefix)
            if entry.hard_link is not None:
                _check_hard_link(path, entry.hard_link, prefix if inside else "")
            if entry.mode is None:
                continue
            below = path[len(prefix) :] if inside else path
            if not inside and entry.mode is not FileMode.LINK:
                continue
            with entry.open() as stream:
                data = stream.read()
            if entry.mode is FileMode.LINK:
                check_link(below, data.decode("utf-8", "surrogateescape"))
            if inside:
                found = True
                yield ImportFile(below, entry.mode, data)
    if not found:
        raise _member_missing(archive, root)


def copy_member(archive: Path, member: str, sink: BinaryIO, limit: int) -> None:
    """Append the regular file ``member`` to ``sink``, at most ``limit`` bytes.

    Raises SourceError ``member-missing``, ``bad-archive``, or ``size-mismatch`` over the limit.
    """
    with _entries(archive) as entries:
        for entry in entries:
            if entry.name != member or entry.mode in (None, FileMode.LINK):
                continue
            left = limit
            with entry.open() as stream:
                while chunk := stream.read(CHUNK):
                    left -= len(chunk)
                    if left < 0:
                        raise SourceError(
                            "size-mismatch",
                            f"{member} in {archive.name} is larger than the pin says",
                            context={"expected": f"at most {limit} bytes more"},
                        )
                    sink.write(chunk)
            return
    raise _member_missing(archive, member)


def is_archive(path: Path) -> bool:
    """Does the file look like a tar (plain or compressed) or zip archive?"""
    return _magic(path) in (_ZSTD, *_ZIP) or tarfile.is_tarfile(path)


def _magic(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(4)


def _member_missing(archive: Path, member: str) -> SourceError:
    return SourceError(
        "member-missing",
        f"{archive.name} holds no {member or 'files'}",
        context={"archive": archive, "member": member},
    )


def _check_hard_link(path: str, target: str, prefix: str) -> None:
    goal = "/".join(check_name(target))
    if not goal.startswith(prefix):
        raise unsafe_archive(path, f"the hard link leaves the tree: its target is {target!r}")


@contextmanager
def _entries(archive: Path) -> Iterator[Iterator[_Entry]]:
    with ExitStack() as stack:
        try:
            if _magic(archive) in _ZIP:
                yield _zip_entries(stack.enter_context(zipfile.ZipFile(archive)))
            else:
                yield _tar_entries(stack.enter_context(_open_tar(archive, stack)))
        except _DAMAGED as error:
            raise _bad(archive, error) from error
        except OSError as error:
            # gzip reports damage as an OSError without a number.
            if error.errno is not None:
                raise
            raise _bad(archive, error) from error


def _bad(archive: Path, error: Exception) -> SourceError:
    return SourceError(
        "bad-archive", f"{archive.name} is damaged or no archive", context={"why": error}
    )


def _open_tar(archive: Path, stack: ExitStack) -> tarfile.TarFile:
    if _magic(archive) != _ZSTD:
        return tarfile.open(archive, "r:*")
    import tempfile

    import zstandard

    plain = stack.enter_context(tempfile.TemporaryFile(dir=archive.parent))  # noqa: SIM115
    with archive.open("rb") as stream:
        try:
            zstandard.ZstdDecompressor().copy_stream(stream, plain)
        except zstandard.ZstdError as error:
            raise _bad(archive, error) from error
    plain.seek(0)
    return tarfile.open(fileobj=plain, mode="r:")


def _tar_entries(tar: tarfile.TarFile) -> Iterator[_Entry]:
    import io

    earlier: dict[str, tarfile.TarInfo] = {}
    for info in tar:

        def content(info: tarfile.TarInfo = info) -> IO[bytes]:
            stream = tar.extractfile(info)
            if stream is None:
                raise unsafe_archive(info.name, "the entry has no content")
            return stream

        def link(info: tarfile.TarInfo = info) -> IO[bytes]:
            return io.BytesIO(info.linkname.encode("utf-8", "surrogateescape"))

        def hard(info: tarfile.TarInfo = info) -> IO[bytes]:
            # Only earlier regular files count: what tar itself would link to.
            if info.linkname in earlier:
                return content(earlier[info.linkname])
            why = f"the hard link's target {info.linkname!r} is no earlier file"
            raise unsafe_archive(info.name, why)

        mode = FileMode.EXECUTABLE if info.mode & 0o100 else FileMode.FILE
        if info.isdir():
            yield _Entry(info.name, None, content)
        elif info.issym():
            yield _Entry(info.name, FileMode.LINK, link)
        elif info.islnk():
            yield _Entry(info.name, mode, hard, hard_link=info.linkname)
        elif info.isreg():
            yield _Entry(info.name, mode, content)
            earlier[info.name] = info
        else:
            raise unsafe_archive(info.name, "it is a device, a pipe or of an unknown type")


def _zip_entries(archive: zipfile.ZipFile) -> Iterator[_Entry]:
    for info in archive.infolist():
        name = info.orig_filename
        if info.flag_bits & 1:
            raise unsafe_archive(name, "it is encrypted")

        def content(info: zipfile.ZipInfo = info) -> IO[bytes]:
            return archive.open(info)

        # The upper half holds Unix modes, or zero from makers that know none.
        bits = info.external_attr >> 16
        kind = stat.S_IFMT(bits)
        if info.is_dir() or kind == stat.S_IFDIR:
            yield _Entry(name, None, content)
        elif kind == stat.S_IFLNK:
            yield _Entry(name, FileMode.LINK, content)
        elif kind in (0, stat.S_IFREG):
            yield _Entry(name, FileMode.EXECUTABLE if bits & 0o100 else FileMode.FILE, content)
        else:
            raise unsafe_archive(name, "it is a device, a pipe or of an unknown type")
