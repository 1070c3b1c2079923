"""Reads a single file's zip part and refuses everything that two readers could see differently.

The rules are those of PKWARE APPNOTE 6.3.10 narrowed to what ``zipwriter`` writes: every byte
outside the entries' data has exactly one allowed value, so any change of it is found.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, Protocol

from opencoti_build.errors import PackError
from opencoti_build.pack import zipformat as z


class Source(Protocol):
    """Bytes that can be sliced: ``bytes`` or ``mmap``."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: slice, /) -> bytes: ...


@dataclass(frozen=True)
class ZipLayout:
    """What a file holds: its entries by offset, and where the zip part begins and ends."""

    entries: tuple[z.ZipEntry, ...]
    prologue_size: int
    directory_offset: int
    size: int

    def find(self, name: str) -> z.ZipEntry | None:
        """The entry called ``name``, if there is one."""
        return next((entry for entry in self.entries if entry.name == name), None)


@dataclass(frozen=True)
class _Header:
    """A central header as found."""

    name: str
    raw: bytes
    flags: int
    mode: int
    size: int
    crc32: int
    offset: int


def read_zip(data: Source) -> ZipLayout:
    """Read the directory and all local headers of ``data``.

    Raises PackError with a reason of its own for each rule (``zip-trailing-bytes``,
    ``zip-overlap``, ``zip-local-mismatch``, …). The entries' data is not read.
    """
    count, size, offset = _end(data)
    if count == 0:
        _fail("zip-empty", "the zip part holds nothing")
    headers = list(_directory(data[offset : offset + size], count, offset))
    names = z.NameSet()
    entries = []
    for header in headers:
        z.check_name(header.name)
        names.add(header.name)
        entries.append(_local(data, header, offset))
    entries.sort(key=lambda entry: entry.header_offset)
    if [entry.name for entry in entries] != [header.name for header in headers]:
        _fail("zip-directory-mismatch", "the directory does not list the entries in file order")
    _gaps(data, entries, offset)
    return ZipLayout(tuple(entries), entries[0].header_offset, offset, len(data))


def _fail(reason: str, message: str, **context: object) -> NoReturn:
    raise PackError(reason, message, context=context)


def _end(data: Source) -> tuple[int, int, int]:
    """Entry count, directory size and directory offset."""
    size = len(data)
    tail_start = max(0, size - z.END.size - z.MAX16)
    tail = data[tail_start:size]
    at = size - z.END.size
    if size < z.END.size or data[at : at + 4] != z.END_MAGIC:
        _no_end(tail, size, tail_start)
    _, disk, first, here, count, length, offset, comment = z.END.unpack(data[at:size])
    if comment:
        _fail("zip-trailing-bytes", "the end record announces a comment past the end of the file")
    if disk or first or here != count:
        _multi(disk, first, here, count)
    end = at
    locator = data[max(0, at - z.LOCATOR.size) : at]
    has_locator = locator[:4] == z.LOCATOR_MAGIC
    wants = count == z.MAX16 or length == z.MAX32 or offset == z.MAX32
    if wants != has_locator:
        _fail("zip-zip64-inconsistent", "the end record and the zip64 locator do not agree")
    if wants:
        count, length, offset, end = _end64(data, locator, at, (count, length, offset))
    if offset > end or length > end or offset + length > end:
        _fail("zip-directory-out-of-file", "the directory does not fit in the file",
              offset=offset, size=length)  # fmt: skip
    if offset + length != end:
        _fail("zip-directory-mismatch", "the directory does not end where the end records begin",
              offset=offset, size=length, expected_end=end)  # fmt: skip
    _one_end(tail, tail_start, at, size, offset)
    return count, length, offset


def _no_end(tail: bytes, size: int, tail_start: int) -> NoReturn:
    at = tail.rfind(z.END_MAGIC)
    if at < 0 or at + z.END.size > len(tail):
        _fail("zip-no-end-record", "no zip end record at the end of the file", size=size)
    length = z.END.unpack(tail[at : at + z.END.size])[-1]
    if length and at + z.END.size + length == len(tail):
        _fail("zip-comment", "the zip part has a comment", length=length)
    _fail("zip-trailing-bytes", "bytes follow the zip end record",
          count=len(tail) - at - z.END.size, offset=tail_start + at)  # fmt: skip


def _multi(disk: int, first: int, here: int, count: int) -> NoReturn:
    if disk or first:
        _fail("zip-multi-disk", "the zip part says that it has several disks")
    _fail("zip-count-mismatch", "the end record counts two numbers of entries",
          here=here, total=count)  # fmt: skip


def _end64(
    data: Source, locator: bytes, at: int, short: tuple[int, int, int]
) -> tuple[int, int, int, int]:
    _, disk, offset64, disks = z.LOCATOR.unpack(locator)
    if disk != 0 or disks != 1:
        _fail("zip-multi-disk", "the zip64 locator says that there are several disks")
    expected = at - z.LOCATOR.size - z.END64.size
    if expected < 0 or offset64 != expected:
        _fail("zip-zip64-inconsistent", "the zip64 end record is not before its locator",
              offset=offset64)  # fmt: skip
    record = z.END64.unpack(data[expected : expected + z.END64.size])
    magic, length, made_by, version, disk, first, here, count, size, offset = record
    fixed = (magic, length, made_by, version)
    if fixed != (
        z.END64_MAGIC,
        z.END64.size - 12,
        z.MADE_BY_UNIX | z.VERSION_ZIP64,
        z.VERSION_ZIP64,
    ):
        _fail("zip-zip64-inconsistent", "the zip64 end record has unexpected fields")
    if disk or first or here != count:
        _multi(disk, first, here, count)
    if short != (min(count, z.MAX16), min(size, z.MAX32), min(offset, z.MAX32)):
        _fail("zip-zip64-inconsistent", "the two end records do not agree")
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
            _fail("zip-many-end-records", "a second place looks like the end record", offset=place)
        found = tail.find(z.END_MAGIC, found + 1)


def _directory(block: bytes, count: int, offset: int) -> Iterator[_Header]:
    at = 0
    for _ in range(count):
        if at + z.CENTRAL.size > len(block) or block[at : at + 4] != z.CENTRAL_MAGIC:
            _fail("zip-count-mismatch", "the directory holds fewer entries than counted",
                  offset=offset + at)  # fmt: skip
        header, at = _central(block, at)
        yield header
    if at != len(block):
        _fail("zip-count-mismatch", "the directory holds more bytes than its entries need",
              offset=offset + at)  # fmt: skip


def _central(block: bytes, at: int) -> tuple[_Header, int]:
    values = z.CENTRAL.unpack(block[at : at + z.CENTRAL.size])
    _, made_by, version, flags, method, time, date, crc, packed, size = values[:10]
    name_length, extra_length, comment, disk, internal, external, offset = values[10:]
    at += z.CENTRAL.size
    end = at + name_length + extra_length + comment
    if end > len(block):
        _fail("zip-out-of-file", "a directory entry runs past the directory")
    raw, extra = block[at : at + name_length], block[at + name_length : end - comment]
    name = _decode(raw)
    _common(name, raw, version, flags, method, (time, date))
    if comment:
        _fail("zip-comment", "an entry has a comment", name=name)
    if disk:
        _fail("zip-multi-disk", "an entry is said to be on another disk", name=name)
    mode = external >> 16 & 0o777
    if internal or mode not in z.MODES or external != z.external_attributes(mode):
        _fail("zip-bad-field", "an entry's attributes are not those of a plain file", name=name)
    wanted = [packed == z.MAX32, size == z.MAX32, offset == z.MAX32]
    wide = _zip64(extra, wanted, name, padding_allowed=False)
    packed, size, offset = (
        wide.pop(0) if want else value
        for want, value in zip(wanted, (packed, size, offset), strict=True)
    )
    expected = z.VERSION_ZIP64 if any(wanted) else z.VERSION_PLAIN
    if version != expected or made_by != z.MADE_BY_UNIX | expected:
        _fail("zip-bad-field", "an entry needs an unexpected version", name=name)
    if packed != size:
        _fail("zip-size-mismatch", "a stored entry has two sizes", name=name)
    return _Header(name, raw, flags, mode, size, crc, offset), end


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        _fail("zip-unsafe-name", "an entry's name is not UTF-8", name=repr(raw))


def _common(
    name: str, raw: bytes, version: int, flags: int, method: int, when: tuple[int, int]
) -> None:
    if flags & z.FLAG_ENCRYPTED:
        _fail("zip-encrypted", "an entry is encrypted", name=name)
    if flags & z.FLAG_DESCRIPTOR:
        _fail("zip-data-descriptor", "an entry's sizes follow its data", name=name)
    if method != 0:
        _fail("zip-method", "an entry is not stored", name=name, method=method)
    if flags != z.name_flags(raw):
        _fail("zip-bad-field", "an entry has unexpected flags", name=name, flags=hex(flags))
    if when != (z.DOS_TIME, z.DOS_DATE):
        _fail("zip-bad-field", "an entry has a time other than 1980-01-01", name=name)
    if version not in (z.VERSION_PLAIN, z.VERSION_ZIP64):
        _fail("zip-bad-field", "an entry needs an unexpected version", name=name, version=version)


def _zip64(extra: bytes, wanted: list[bool], name: str, padding_allowed: bool) -> list[int]:
    """The 64-bit values of an extra block; exactly those that ``wanted`` says, in its order."""
    wide: list[int] = []
    at = 0
    seen: set[int] = set()
    while at < len(extra):
        if at + z.EXTRA.size > len(extra):
            _fail("zip-unknown-extra", "an extra field is cut off", name=name)
        kind, length = z.EXTRA.unpack(extra[at : at + z.EXTRA.size])
        body = extra[at + z.EXTRA.size : at + z.EXTRA.size + length]
        at += z.EXTRA.size + length
        if len(body) != length or kind in seen:
            _fail("zip-unknown-extra", "an extra field is cut off or doubled", name=name)
        if kind == z.EXTRA_ZIP64 and length == 8 * sum(wanted) and not seen:
            wide = list(struct.unpack(f"<{sum(wanted)}Q", body))
        elif kind == z.EXTRA_ZIP64:
            _fail("zip-zip64-inconsistent", "a zip64 field has the wrong values", name=name)
        elif kind == z.EXTRA_PADDING and padding_allowed:
            if body.strip(b"\0"):
                _fail("zip-nonzero-padding", "an entry's padding is not zero", name=name)
        else:
            _fail(
                "zip-unknown-extra", "an entry has an unknown extra field", name=name, id=hex(kind)
            )
        seen.add(kind)
    if len(wide) != sum(wanted) or any(value < z.MAX32 for value in wide):
        _fail("zip-zip64-inconsistent", "a 32-bit field points to a zip64 value that is absent "
              "or not needed", name=name)  # fmt: skip
    return wide


def _local(data: Source, header: _Header, directory: int) -> z.ZipEntry:
    at = header.offset
    if at + z.LOCAL.size > directory:
        _fail("zip-out-of-file", "an entry starts past the directory", name=header.name, offset=at)
    fixed = data[at : at + z.LOCAL.size]
    magic, version, flags, method, time, date, crc, packed, size, names, extras = z.LOCAL.unpack(
        fixed
    )
    if magic != z.LOCAL_MAGIC:
        _fail("zip-local-mismatch", "no local header where the directory says", name=header.name)
    start = at + z.LOCAL.size + names + extras
    if start > directory or header.size > directory - start:
        _fail("zip-out-of-file", "an entry runs into the directory", name=header.name)
    raw = data[at + z.LOCAL.size : at + z.LOCAL.size + names]
    if raw != header.raw or flags != header.flags or method != 0 or crc != header.crc32:
        _fail("zip-local-mismatch", "a local header is not what the directory says",
              name=header.name)  # fmt: skip
    _common(header.name, raw, version, flags, method, (time, date))
    large = header.size >= z.MAX32
    extra = data[start - extras : start]
    wide = _zip64(extra, [packed == z.MAX32, size == z.MAX32], header.name, padding_allowed=True)
    found = (wide[0], wide[1]) if len(wide) == 2 else (packed, size)
    if found != (header.size, header.size) or version != (
        z.VERSION_ZIP64 if large else z.VERSION_PLAIN
    ):
        _fail("zip-local-mismatch", "a local header has another size or version", name=header.name)
    return z.ZipEntry(header.name, header.mode, header.size, crc, at, start)


def _gaps(data: Source, entries: list[z.ZipEntry], directory: int) -> None:
    ends = [entry.end for entry in entries]
    starts = [entry.header_offset for entry in entries[1:]] + [directory]
    for entry, end, start in zip(entries, ends, starts, strict=True):
        if end > start:
            _fail("zip-overlap", "two entries overlap", name=entry.name)
        if start - end > (z.MAX_GAP if start != directory else 0):
            _fail("zip-gap", "bytes that belong to no entry", after=entry.name, size=start - end)
        if data[end:start].strip(b"\0"):
            _fail("zip-nonzero-gap", "the gap after an entry is not zero", name=entry.name)
