"""Reads a file once and hashes everything: the whole file and each entry, in parallel.

A compressed entry is unpacked in memory, piece by piece: both its stream and its content count.

hashlib and zlib release the interpreter lock, so while one thread reads the next chunk, others
take the sha256 of the whole file, the sha256 of the entries, and the entries' crc-32.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import BinaryIO

from opencoti_build.pack.inflate import Inflater
from opencoti_build.pack.zipformat import STORED, ZipEntry
from opencoti_build.ui import Task

CHUNK = 4 << 20
SMALL = 1 << 20
"""Up to this size (bytes), threads cost more than they save."""


@dataclass(frozen=True)
class Scan:
    """Digests of the bytes as read: sha256 in hex; ``entries`` maps names to (sha256, crc-32).

    They are those of the content. ``packed`` maps the names of compressed entries to the sha256
    of the stream, and ``faults`` to what is wrong with the stream, if something is.
    ``prefixes`` maps sizes in bytes to the sha256 of so many bytes from the file's start.
    """

    sha256: str
    size: int
    entries: dict[str, tuple[str, int]]
    prefixes: dict[int, str] = field(default_factory=dict)
    packed: dict[str, str] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)


class _Parts:
    """Feeds the slices of consecutive chunks that belong to each entry to ``update``."""

    def __init__(self, entries: Sequence[ZipEntry], update: Callable[[int, memoryview], None]):
        self._entries = entries
        self._update = update
        self._first = 0

    def feed(self, chunk: memoryview, offset: int) -> None:
        """Take the next chunk, which starts at ``offset`` in the file."""
        end = offset + len(chunk)
        at = self._first
        while at < len(self._entries) and self._entries[at].data_offset < end:
            entry = self._entries[at]
            start, stop = max(entry.data_offset, offset), min(entry.end, end)
            if start < stop:
                self._update(at, chunk[start - offset : stop - offset])
            at += 1
            if entry.end <= end:
                self._first = at


class _Whole:
    """The sha256 of the whole file, and of its first bytes up to each of ``marks``."""

    def __init__(self, marks: Iterable[int]) -> None:
        self.digest = hashlib.sha256()
        self.prefixes: dict[int, str] = {}
        self._marks = sorted(set(marks), reverse=True)

    def feed(self, chunk: memoryview, offset: int) -> None:
        """Take the next chunk, which starts at ``offset`` in the file."""
        start = 0
        while self._marks and self._marks[-1] <= offset + len(chunk):
            mark = self._marks.pop()
            self.digest.update(chunk[start : mark - offset])
            start = mark - offset
            self.prefixes[mark] = self.digest.hexdigest()
        self.digest.update(chunk[start:])


class _Content:
    """The sums of a compressed entry's content, from its stream."""

    def __init__(self, size: int) -> None:
        self.stream = Inflater(size)
        self.digest = hashlib.sha256()
        self.crc32 = 0

    def feed(self, part: memoryview) -> None:
        """Take the next part of the stream."""
        for piece in self.stream.feed(part):
            self.digest.update(piece)
            self.crc32 = zlib.crc32(piece, self.crc32)


def scan(
    stream: BinaryIO,
    entries: Sequence[ZipEntry],
    task: Task | None = None,
    marks: Iterable[int] = (),
) -> Scan:
    """Hash all of ``stream`` (an unbuffered file) and ``entries`` (sorted, not overlapping).

    ``marks`` are the sizes of the prefixes to hash too.
    """
    whole = _Whole(marks)
    digests = [hashlib.sha256() for _ in entries]
    sums = [0] * len(entries)
    inside = {at: _Content(e.size) for at, e in enumerate(entries) if e.method != STORED}

    def add_crc(at: int, part: memoryview) -> None:
        if at in inside:
            inside[at].feed(part)
        else:
            sums[at] = zlib.crc32(part, sums[at])

    shas = _Parts(entries, lambda at, part: digests[at].update(part))
    crcs = _Parts(entries, add_crc)
    work: tuple[Callable[[memoryview, int], None], ...] = (
        whole.feed,
        shas.feed,
        crcs.feed,
    )
    fd = stream.fileno()
    total = os.fstat(fd).st_size
    size = _small(fd, work) if total <= SMALL else _large(fd, work, task)
    result = Scan(whole.digest.hexdigest(), size, {}, whole.prefixes)
    for at, (entry, held, crc) in enumerate(zip(entries, digests, sums, strict=True)):
        result.entries[entry.name] = (held.hexdigest(), crc)
        if at in inside:
            result.entries[entry.name] = (inside[at].digest.hexdigest(), inside[at].crc32)
            result.packed[entry.name] = held.hexdigest()
            if fault := inside[at].stream.finish():
                result.faults[entry.name] = fault
    return result


def _small(fd: int, work: Sequence[Callable[[memoryview, int], None]]) -> int:
    offset = 0
    while data := os.pread(fd, CHUNK, offset):
        for step in work:
            step(memoryview(data), offset)
        offset += len(data)
    return offset


def _large(fd: int, work: Sequence[Callable[[memoryview, int], None]], task: Task | None) -> int:
    buffers = [bytearray(CHUNK), bytearray(CHUNK)]
    offset = turn = 0
    with ThreadPoolExecutor(max_workers=len(work)) as pool:
        count = os.preadv(fd, [buffers[0]], 0)
        while count:
            chunk = memoryview(buffers[turn])[:count]
            running: list[Future[None]] = [pool.submit(step, chunk, offset) for step in work]
            offset, turn, done = offset + count, 1 - turn, count
            count = os.preadv(fd, [buffers[turn]], offset)
            for future in running:
                future.result()
            if task is not None:
                task.advance(done)
    return offset
