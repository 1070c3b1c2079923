"""Objects of the compiler cache as one archive: made on a large machine, used on a small one.

The archive is a tar inside zstandard: ``cache.json`` (format, what it is, which compiler made it),
one member for each object in order of their ids, named ``<id>/<sha256>``, and ``end.json``
with their number, without which the archive is cut off. Objects have no paths and no names of
machines in them; ccache finds them by the content of the sources.

Import puts each object into the cache whole, once its digest is right, so that it can be stopped
and repeated at any time, and beside running builds.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from opencoti_build.build.cache_parts import recount
from opencoti_build.digest import sha256_bytes
from opencoti_build.errors import UsageError
from opencoti_build.paths import Cache, atomic_path, locked, write_atomic
from opencoti_build.ui import Ui

FORMAT = 1
HEAD, END = "cache.json", "end.json"
_KIND = "opencoti-build compiler cache"
_LEVEL = 3
# Larger ones do not exist: the whole library has less than 2 GiB.
_MOST_BYTES = 2 << 30
_MOST_TEXT = 1 << 20
_ID = re.compile(r"[0-9a-f]{40}")
_MEMBER = re.compile(r"([0-9a-f]{40})/([0-9a-f]{64})")


@dataclass(frozen=True)
class Moved:
    """What was exported or imported: objects, their bytes, and those that were there already."""

    objects: int
    size: int
    present: int = 0


def folder_of(cache: Cache, what: str) -> Path:
    """ccache's folder for ``what`` (``cuda``)."""
    return {"cuda": cache.ccache_cuda}[what]


def objects_lock(what: str) -> str:
    """The lock of those who move objects of ``what``; compilers need none."""
    return f"objects-{folder_of(Cache(Path()), what).name}"


def find_objects(folder: Path) -> list[tuple[str, Path]]:
    """The objects of ccache's folder with their ids, sorted. It spreads them over sub-folders."""
    found = []
    for path in folder.glob("[0-9a-f]/**/*") if folder.is_dir() else ():
        name = path.relative_to(folder).as_posix().replace("/", "")
        if _ID.fullmatch(name) and path.is_file():
            found.append((name, path))
    return sorted(found)


def export_objects(
    cache: Cache, what: str, compiler: Mapping[str, object] | None, out: Path, ui: Ui
) -> Moved:
    """Write the archive ``out`` whole, or not at all. ``compiler`` identifies who made them.

    Raises UsageError ``cache-empty``.
    """
    import zstandard

    objects = find_objects(folder_of(cache, what))
    if not objects:
        raise UsageError(
            "cache-empty", f"the cache has no objects of {what}", hint=f"build {what} first"
        )
    count = size = 0
    with locked(cache, objects_lock(what)), atomic_path(out) as temporary:
        compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        with (
            temporary.open("wb") as raw,
            compressor.stream_writer(raw) as stream,
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.USTAR_FORMAT) as tar,
            ui.task(f"export {what}", len(objects)) as task,
        ):
            head = {"format": FORMAT, "kind": _KIND, "what": what, "compiler": compiler}
            _add(tar, HEAD, json.dumps(head, sort_keys=True).encode())
            for name, path in objects:
                # A build may be running, and ccache may have dropped it.
                with contextlib.suppress(FileNotFoundError):
                    data = path.read_bytes()
                    _add(tar, f"{name}/{sha256_bytes(data)}", data)
                    count, size = count + 1, size + len(data)
                task.advance()
            _add(tar, END, json.dumps({"objects": count}).encode())
    return Moved(count, size)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def read_head(archive: Path) -> Mapping[str, object]:
    """What the archive says of itself. Raises UsageError as ``import_objects``."""
    with _members(archive) as members:
        return _head(archive, members)


def import_objects(cache: Cache, archive: Path, ui: Ui) -> Moved:
    """Put the archive's objects into the cache.

    Raises UsageError ``cache-archive-missing``, ``cache-archive-damaged``,
    ``cache-archive-truncated``, ``cache-archive-format`` or ``cache-archive-unsafe``. The objects
    before the damage stay.
    """
    moved = Moved(0, 0)
    with _members(archive) as members, ui.task("import") as task:
        head = _head(archive, members)
        folder = folder_of(cache, str(head["what"]))
        with locked(cache, objects_lock(str(head["what"]))):
            for info, stream in members:
                if info.name == END:
                    if _number(stream) != moved.objects:
                        raise _error(archive, "damaged", "it lacks some of its objects")
                    break
                moved = _place(archive, folder, info, stream, moved)
                task.advance()
            else:
                raise _error(archive, "truncated", "its end is missing")
    recount(cache, folder.name)
    return moved


def _place(
    archive: Path, folder: Path, info: tarfile.TarInfo, stream: IO[bytes], moved: Moved
) -> Moved:
    match = _MEMBER.fullmatch(info.name)
    if match is None or info.size > _MOST_BYTES:
        raise _error(archive, "unsafe", f"it holds {info.name[:100]!r}, which is no object")
    data = stream.read()
    if len(data) < info.size:
        raise _error(archive, "truncated", "it ends inside an object")
    if sha256_bytes(data) != match[2]:
        raise _error(archive, "damaged", "an object has other bytes than its name says")
    # ccache spreads objects deeper as they become more, and looks at every depth.
    path = folder / match[1][0] / match[1][1] / match[1][2:]
    present = path.is_file() and path.read_bytes() == data
    if not present:
        write_atomic(path, data)
    return Moved(moved.objects + 1, moved.size + info.size, moved.present + present)


def _head(
    archive: Path, members: Iterator[tuple[tarfile.TarInfo, IO[bytes]]]
) -> Mapping[str, object]:
    info, stream = next(members, (None, io.BytesIO()))
    try:
        if info is None or info.name != HEAD or info.size > _MOST_TEXT:
            raise ValueError
        head = json.loads(stream.read())
        if head["kind"] != _KIND:
            raise ValueError
        number, what = head["format"], head["what"]
    except (ValueError, KeyError, TypeError):
        raise _error(archive, "damaged", "it is no archive of a compiler cache") from None
    if number != FORMAT or what not in ("cuda",):
        raise _error(archive, "format", f"it has format {number} of {what}, not {FORMAT} of cuda")
    return dict(head)


def _number(stream: IO[bytes]) -> int | None:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return int(json.loads(stream.read(_MOST_TEXT))["objects"])
    return None


@contextlib.contextmanager
def _members(archive: Path) -> Iterator[Iterator[tuple[tarfile.TarInfo, IO[bytes]]]]:
    """The regular files of the archive; its errors become ours."""
    import zstandard

    if not archive.is_file():
        raise UsageError("cache-archive-missing", f"there is no file {archive}")
    try:
        with (
            archive.open("rb") as raw,
            zstandard.ZstdDecompressor().stream_reader(raw) as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            yield _files(archive, tar)
    except zstandard.ZstdError as error:
        raise _error(archive, "damaged", str(error)) from error
    except tarfile.ReadError as error:
        raise _error(archive, "truncated", str(error)) from error
    except tarfile.TarError as error:
        raise _error(archive, "damaged", str(error)) from error


def _files(archive: Path, tar: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    for info in tar:
        stream = tar.extractfile(info) if info.isreg() else None
        if stream is None:
            raise _error(archive, "unsafe", f"it holds {info.name[:100]!r}, which is no file")
        yield info, stream


def _error(archive: Path, reason: str, why: str) -> UsageError:
    hints = {
        "damaged": "copy or export it again",
        "truncated": "copy or export it again; what was imported stays",
        "format": "use the version of opencoti-build that wrote it",
        "unsafe": "it was not written by opencoti-build; do not use it",
    }
    return UsageError(
        f"cache-archive-{reason}",
        f"{os.fspath(archive)}: {why}",
        hint=hints[reason],
        context={"file": archive},
    )
