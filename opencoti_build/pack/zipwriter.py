"""Writes the zip part of a single file: aligned data, packed engines, the same bytes each time."""

from __future__ import annotations

import errno
import hashlib
import os
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from opencoti_build.errors import PackError
from opencoti_build.pack import deflate
from opencoti_build.pack.zipformat import (
    EXTRA,
    EXTRA_PADDING,
    LOCAL,
    MAX16,
    MAX32,
    MAX_DEFLATED,
    MODES,
    NameSet,
    ZipEntry,
    central_header,
    check_name,
    end_records,
    local_header,
)

CHUNK = 8 << 20


@dataclass(frozen=True)
class Written:
    """An entry as written, with the sha256 of its content (lower-case hex; empty if not taken).

    ``packed_sha256`` is that of the DEFLATE stream of a compressed entry.
    """

    entry: ZipEntry
    sha256: str
    packed_sha256: str | None = None


class ZipWriter:
    """Appends entries to an open file from its current position, then the directory.

    ``stream`` must be an unbuffered binary file opened for writing. ``entries`` are those that
    the file already holds before that position; what follows it must read as zeros.
    ``progress`` is told the bytes copied. Without ``digests``, no sha256 of files is taken.
    """

    def __init__(
        self,
        stream: BinaryIO,
        entries: tuple[ZipEntry, ...] = (),
        progress: Callable[[int], None] = lambda count: None,
        *,
        digests: bool = True,
    ) -> None:
        self._fd = stream.fileno()
        self._offset = stream.tell()
        self._entries = list(entries)
        self._names = NameSet()
        self._progress = progress
        self._digests = digests
        for entry in entries:
            self._names.add(entry.name)

    def add_bytes(self, name: str, data: bytes, *, mode: int = 0o644, align: int = 1) -> Written:
        """Append ``data`` as ``name``. Raises PackError as ``add_file`` does."""
        start, gap, padding = self._place(name, len(data), mode, align)
        digest = hashlib.sha256(data).hexdigest()
        write_at(self._fd, data, start)
        self._progress(len(data))
        entry = ZipEntry(name, mode, len(data), zlib.crc32(data), self._offset + gap, start)
        return self._close(entry, digest, gap, padding)

    def add_file(self, name: str, path: Path, *, mode: int = 0o644, align: int = 1) -> Written:
        """Append the file ``path`` as ``name``, its data at a multiple of ``align``.

        Raises PackError ``zip-unsafe-name``, ``zip-duplicate-name``, ``zip-bad-mode``, or
        ``zip-source-changed`` when the file's size changes while it is read.
        """
        with path.open("rb", buffering=0) as source:
            size = os.fstat(source.fileno()).st_size
            start, gap, padding = self._place(name, size, mode, align)
            crc, digest = self._copy(source.fileno(), size, start, path)
        entry = ZipEntry(name, mode, size, crc, self._offset + gap, start)
        return self._close(entry, digest, gap, padding)

    def add_packed(self, name: str, path: Path, *, mode: int = 0o644, align: int = 1) -> Written:
        """Append the file ``path`` as ``name``, compressed if that makes it smaller.

        Otherwise (or above 1 GiB) as ``add_file`` does, ``align`` and exceptions included.
        """
        with path.open("rb") as source:
            size = os.fstat(source.fileno()).st_size
            if size > MAX_DEFLATED:
                return self.add_file(name, path, mode=mode, align=align)
            data = source.read()
            if len(data) != size or os.fstat(source.fileno()).st_size != size:
                raise _changed(path)
        stream = deflate.compress(data)
        if len(stream) >= size:
            return self.add_file(name, path, mode=mode, align=align)
        start, gap, padding = self._place(name, len(stream), mode, 1)
        write_at(self._fd, stream, start)
        self._progress(size)
        digests = hashlib.sha256(data).hexdigest(), hashlib.sha256(stream).hexdigest()
        entry = ZipEntry(name, mode, size, zlib.crc32(data), self._offset + gap, start, len(stream))
        return self._close(entry, digests[0], gap, padding, digests[1])

    def finish(self) -> int:
        """Write the central directory and the end records; return the file's size."""
        directory = b"".join(central_header(entry) for entry in self._entries)
        tail = end_records(len(self._entries), len(directory), self._offset)
        write_at(self._fd, directory + tail, self._offset)
        size = self._offset + len(directory) + len(tail)
        os.ftruncate(self._fd, size)
        return size

    def _place(self, name: str, size: int, mode: int, align: int) -> tuple[int, int, bytes]:
        """Where the data of a new entry starts, the gap before its header, its padding field."""
        check_name(name)
        if mode not in MODES:
            raise PackError("zip-bad-mode", f"mode {mode:o} is not 644 or 755")
        self._names.add(name)
        return place(self._offset, name, size, align)

    def _copy(self, source: int, size: int, start: int, path: Path) -> tuple[int, str]:
        """Copy ``size`` bytes to ``start``; the crc-32 and sha256 of what was read.

        A worker takes the sums of a chunk while this thread copies it. Holes are not copied.
        """
        digest, crc, done = hashlib.sha256(), 0, 0
        buffer, zeros = bytearray(min(CHUNK, max(size, 1))), b""
        in_kernel = hasattr(os, "copy_file_range")

        def sums(part: memoryview, before: int) -> int:
            if self._digests:
                digest.update(part)
            return zlib.crc32(part, before)

        with ThreadPoolExecutor(1) as pool:
            while done < size:
                hole = min(_hole(source, done, size), CHUNK)
                if hole:
                    zeros = zeros or bytes(CHUNK)
                    view = memoryview(zeros)[:hole]
                else:
                    count = os.preadv(source, [buffer], done)
                    view = memoryview(buffer)[: min(count, size - done)]
                if not view:
                    break
                running = pool.submit(sums, view, crc)
                in_kernel = in_kernel and (
                    hole > 0 or _copy_in_kernel(source, self._fd, len(view), done, start + done)
                )
                if not in_kernel and not hole:
                    write_at(self._fd, view, start + done)
                crc = running.result()
                done += len(view)
                self._progress(len(view))
        if done != size or os.fstat(source).st_size != size:
            raise _changed(path)
        return crc, digest.hexdigest() if self._digests else ""

    def _close(
        self, entry: ZipEntry, digest: str, gap: int, padding: bytes, packed: str | None = None
    ) -> Written:
        write_at(self._fd, bytes(gap) + local_header(entry, padding), self._offset)
        self._offset = entry.end
        self._entries.append(entry)
        return Written(entry, digest, packed)


def _changed(path: Path) -> PackError:
    return PackError(
        "zip-source-changed", "a file changed while it was packed", context={"file": path}
    )


def pad(offset: int, align: int, limit: int) -> tuple[int, int]:
    """How to bring ``offset`` to a multiple of ``align``: (gap before header, extra field bytes).

    An extra field has 4 bytes of its own and at most ``limit`` in all; the smallest gap that
    makes the rest fit is used.
    """
    for gap in range(align if align > 1 else 1):
        need = -(offset + gap) % align
        if need == 0 or 4 <= need <= limit:
            return gap, need
    raise AssertionError("unreachable: a gap of up to align - 1 always fits")


def place(offset: int, name: str, size: int, align: int) -> tuple[int, int, bytes]:
    """Where the data of an entry after ``offset`` starts, the gap before it, its padding field."""
    wide = 20 if size >= MAX32 else 0
    fixed = LOCAL.size + len(name.encode("utf-8")) + wide
    gap, length = pad(offset + fixed, align, MAX16 - wide)
    padding = EXTRA.pack(EXTRA_PADDING, length - 4) + bytes(length - 4) if length else b""
    return offset + gap + fixed + length, gap, padding


def planned_size(
    entries: Sequence[ZipEntry], offset: int, additions: Sequence[tuple[str, int, int]]
) -> int:
    """The size of a file with ``entries`` before ``offset`` after ``additions`` were written.

    Each addition is (name, size, alignment); sizes in bytes.
    """
    planned = list(entries)
    for name, size, align in additions:
        start, gap, _ = place(offset, name, size, align)
        planned.append(ZipEntry(name, 0o644, size, 0, offset + gap, start))
        offset = start + size
    directory = sum(len(central_header(entry)) for entry in planned)
    return offset + directory + len(end_records(len(planned), directory, offset))


def _hole(source: int, at: int, size: int) -> int:
    """The bytes from ``at`` on that the file system does not store; 0 where it cannot tell."""
    if not hasattr(os, "SEEK_DATA"):
        return 0
    try:
        return min(os.lseek(source, at, os.SEEK_DATA), size) - at
    except OSError as error:
        return size - at if error.errno == errno.ENXIO else 0


def _copy_in_kernel(source: int, target: int, count: int, at: int, to: int) -> bool:
    """Copy inside the kernel (shares blocks where the file system can); False if it cannot."""
    done = 0
    while done < count:
        try:
            step = os.copy_file_range(source, target, count - done, at + done, to + done)
        except OSError:
            return False
        if step == 0:
            return False
        done += step
    return True


def write_at(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of ``data`` at ``offset``."""
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count
