"""Reads a file once and hashes everything: the whole file and each entry, in parallel.

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

from opencoti_build.pack.zipformat import ZipEntry
from opencoti_build.ui import Task

CHUNK = 4 << 20
SMALL = 1 << 20
"""Up to this size (bytes), threads cost more than they save."""


@dataclass(frozen=True)
class Scan:
    """Digests of the bytes as read: sha256 in hex; ``entries`` maps names to (sha256, crc-32).

    ``prefixes`` maps sizes in bytes to the sha256 of so many bytes from the file's start.
    """

    sha256: str
    size: int
    entries: dict[str, tuple[str, int]]
    prefixes: dict[int, str] = field(default_factory=dict)


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

    def add_crc(at: int, part: memoryview) -> None:
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
    pairs = zip(entries, digests, sums, strict=True)
    sums_of = {e.name: (d.hexdigest(), s) for e, d, s in pairs}
    return Scan(whole.digest.hexdigest(), size, sums_of, whole.prefixes)


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
