"""Reads the end of a zip part: one end record, at the very end, that the file agrees with.

Source: PKWARE APPNOTE 6.3.10, sections 4.3.14 to 4.3.16.
"""

from __future__ import annotations

from typing import NoReturn, Protocol

from opencoti_build.errors import PackError
from opencoti_build.pack import zipformat as z


class Source(Protocol):
    """Bytes that can be sliced: ``bytes`` or ``mmap``."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: slice, /) -> bytes: ...


def refuse(reason: str, message: str, **context: object) -> NoReturn:
    """Raise PackError ``reason``."""
    raise PackError(reason, message, context=context)


def read_end(data: Source) -> tuple[int, int, int]:
    """Entry count, directory size and directory offset. Raises PackError for a bad tail."""
    size = len(data)
    tail_start = max(0, size - z.END.size - z.MAX16)
    tail = data[tail_start:size]
    at = size - z.END.size
    if size < z.END.size or data[at : at + 4] != z.END_MAGIC:
        _no_end(tail, size, tail_start)
    _, disk, first, here, count, length, offset, comment = z.END.unpack(data[at:size])
    if comment:
        refuse("zip-trailing-bytes", "the end record announces a comment past the end of the file")
    if disk or first or here != count:
        _multi(disk, first, here, count)
    end = at
    locator = data[max(0, at - z.LOCATOR.size) : at]
    has_locator = locator[:4] == z.LOCATOR_MAGIC
    wants = count == z.MAX16 or length == z.MAX32 or offset == z.MAX32
    if wants != has_locator:
        refuse("zip-zip64-inconsistent", "the end record and the zip64 locator do not agree")
    if wants:
        count, length, offset, end = _end64(data, locator, at, (count, length, offset))
    if offset > end or length > end or offset + length > end:
        refuse(
            "zip-directory-out-of-file",
            "the directory does not fit in the file",
            offset=offset,
            size=length,
        )
    if offset + length != end:
        refuse(
            "zip-directory-mismatch",
            "the directory does not end where the end records begin",
            offset=offset,
            size=length,
            expected_end=end,
        )
    _one_end(tail, tail_start, at, size, offset)
    return count, length, offset


def _no_end(tail: bytes, size: int, tail_start: int) -> NoReturn:
    at = tail.rfind(z.END_MAGIC)
    if at < 0 or at + z.END.size > len(tail):
        refuse("zip-no-end-record", "no zip end record at the end of the file", size=size)
    length = z.END.unpack(tail[at : at + z.END.size])[-1]
    if length and at + z.END.size + length == len(tail):
        refuse("zip-comment", "the zip part has a comment", length=length)
    refuse(
        "zip-trailing-bytes",
        "bytes follow the zip end record",
        count=len(tail) - at - z.END.size,
        offset=tail_start + at,
    )


def _multi(disk: int, first: int, here: int, count: int) -> NoReturn:
    if disk or first:
        refuse("zip-multi-disk", "the zip part says that it has several disks")
    refuse(
        "zip-count-mismatch", "the end record counts two numbers of entries", here=here, total=count
    )


def _end64(
    data: Source, locator: bytes, at: int, short: tuple[int, int, int]
) -> tuple[int, int, int, int]:
    _, disk, offset64, disks = z.LOCATOR.unpack(locator)
    if disk != 0 or disks != 1:
        refuse("zip-multi-disk", "the zip64 locator says that there are several disks")
    expected = at - z.LOCATOR.size - z.END64.size
    if expected < 0 or offset64 != expected:
        refuse(
            "zip-zip64-inconsistent",
            "the zip64 end record is not before its locator",
            offset=offset64,
        )
    record = z.END64.unpack(data[expected : expected + z.END64.size])
    magic, length, made_by, version, disk, first, here, count, size, offset = record
    fixed = (magic, length, made_by, version)
    if fixed != (
        z.END64_MAGIC,
        z.END64.size - 12,
        z.MADE_BY_UNIX | z.VERSION_ZIP64,
        z.VERSION_ZIP64,
    ):
        refuse("zip-zip64-inconsistent", "the zip64 end record has unexpected fields")
    if disk or first or here != count:
        _multi(disk, first, here, count)
    if short != (min(count, z.MAX16), min(size, z.MAX32), min(offset, z.MAX32)):
        refuse("zip-zip64-inconsistent", "the two end records do not agree")
    return count, size, offset, expected


def _one_end(tail: bytes, tail_start: int, at: int, size: int, directory: int) -> None:
    """Refuse a second place that a reader could take for the end record."""
    found = tail.find(z.END_MAGIC)
    while found >= 0:
        place = tail_start + found
        record = tail[found : found + z.END.size]
        if place != at and (
            place >= directory
            or (len(record) == z.END.size and place + z.END.size + z.END.unpack(record)[-1] == size)
        ):
            refuse("zip-many-end-records", "a second place looks like the end record", offset=place)
        found = tail.find(z.END_MAGIC, found + 1)
