"""Reads a single file's zip part and refuses everything that two readers could see differently.

The rules are those of PKWARE APPNOTE 6.3.10 narrowed to what ``zipwriter`` writes: every byte
outside the entries' data has exactly one allowed value, so any change of it is found.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from opencoti_build.pack import inflate
from opencoti_build.pack import zipformat as z
from opencoti_build.pack.zipend import Source, read_end, refuse


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
    method: int
    packed: int
    size: int
    crc32: int
    offset: int


def read_zip(data: Source) -> ZipLayout:
    """Read the directory and all local headers of ``data``.

    Raises PackError with a reason of its own for each rule (``zip-trailing-bytes``,
    ``zip-overlap``, ``zip-local-mismatch``, …). The entries' data is not read.
    """
    count, size, offset = read_end(data)
    if count == 0:
        refuse("zip-empty", "the zip part holds nothing")
    headers = list(_directory(data[offset : offset + size], count, offset))
    names = z.NameSet()
    entries = []
    for header in headers:
        z.check_name(header.name)
        names.add(header.name)
        entries.append(_local(data, header, offset))
    entries.sort(key=lambda entry: entry.header_offset)
    if [entry.name for entry in entries] != [header.name for header in headers]:
        refuse("zip-directory-mismatch", "the directory does not list the entries in file order")
    _gaps(data, entries, offset)
    return ZipLayout(tuple(entries), entries[0].header_offset, offset, len(data))


def read_entry(data: Source, entry: z.ZipEntry) -> bytes:
    """The content of ``entry``. Raises PackError ``zip-bad-stream`` if it cannot be unpacked."""
    held = data[entry.data_offset : entry.end]
    if entry.method == z.STORED:
        return held
    content = inflate.decompress(held, entry.size)
    if content is None:
        refuse("zip-bad-stream", "a compressed entry is damaged", name=entry.name)
    return content


def _directory(block: bytes, count: int, offset: int) -> Iterator[_Header]:
    at = 0
    for _ in range(count):
        if at + z.CENTRAL.size > len(block) or block[at : at + 4] != z.CENTRAL_MAGIC:
            refuse(
                "zip-count-mismatch",
                "the directory holds fewer entries than counted",
                offset=offset + at,
            )
        header, at = _central(block, at)
        yield header
    if at != len(block):
        refuse(
            "zip-count-mismatch",
            "the directory holds more bytes than its entries need",
            offset=offset + at,
        )


def _central(block: bytes, at: int) -> tuple[_Header, int]:
    values = z.CENTRAL.unpack(block[at : at + z.CENTRAL.size])
    _, made_by, version, flags, method, time, date, crc, packed, size = values[:10]
    name_length, extra_length, comment, disk, internal, external, offset = values[10:]
    at += z.CENTRAL.size
    end = at + name_length + extra_length + comment
    if end > len(block):
        refuse("zip-out-of-file", "a directory entry runs past the directory")
    raw, extra = block[at : at + name_length], block[at + name_length : end - comment]
    name = _decode(raw)
    _common(name, raw, version, flags, method, (time, date))
    if comment:
        refuse("zip-comment", "an entry has a comment", name=name)
    if disk:
        refuse("zip-multi-disk", "an entry is said to be on another disk", name=name)
    mode = external >> 16 & 0o777
    if internal or mode not in z.MODES or external != z.external_attributes(mode):
        refuse("zip-bad-field", "an entry's attributes are not those of a plain file", name=name)
    wanted = [packed == z.MAX32, size == z.MAX32, offset == z.MAX32]
    if method != z.STORED and (wanted[0] or wanted[1]):
        refuse("zip-zip64-inconsistent", "a compressed entry has a zip64 size", name=name)
    wide = _zip64(extra, wanted, name, padding_allowed=False)
    packed, size, offset = (
        wide.pop(0) if want else value
        for want, value in zip(wanted, (packed, size, offset), strict=True)
    )
    expected = z.version_needed(method, any(wanted))
    if version != expected or made_by != z.MADE_BY_UNIX | expected:
        refuse("zip-bad-field", "an entry needs an unexpected version", name=name)
    if method != z.STORED and size > z.MAX_DEFLATED:
        refuse("zip-too-large", "a compressed entry would be too large", name=name, size=size)
    if method == z.STORED and packed != size:
        refuse("zip-size-mismatch", "a stored entry has two sizes", name=name)
    return _Header(name, raw, flags, mode, method, packed, size, crc, offset), end


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        refuse("zip-unsafe-name", "an entry's name is not UTF-8", name=repr(raw))


def _common(
    name: str, raw: bytes, version: int, flags: int, method: int, when: tuple[int, int]
) -> None:
    if flags & z.FLAG_ENCRYPTED:
        refuse("zip-encrypted", "an entry is encrypted", name=name)
    if flags & z.FLAG_DESCRIPTOR:
        refuse("zip-data-descriptor", "an entry's sizes follow its data", name=name)
    if method != z.STORED and not (method == z.DEFLATED and z.may_deflate(name)):
        refuse("zip-method", "an entry is not stored", name=name, method=method)
    if flags != z.name_flags(raw):
        refuse("zip-bad-field", "an entry has unexpected flags", name=name, flags=hex(flags))
    if when != (z.DOS_TIME, z.DOS_DATE):
        refuse("zip-bad-field", "an entry has a time other than 1980-01-01", name=name)
    if version not in (z.version_needed(method, False), z.VERSION_ZIP64):
        refuse("zip-bad-field", "an entry needs an unexpected version", name=name, version=version)


def _zip64(extra: bytes, wanted: list[bool], name: str, padding_allowed: bool) -> list[int]:
    """The 64-bit values of an extra block; exactly those that ``wanted`` says, in its order."""
    wide: list[int] = []
    at = 0
    seen: set[int] = set()
    while at < len(extra):
        if at + z.EXTRA.size > len(extra):
            refuse("zip-unknown-extra", "an extra field is cut off", name=name)
        kind, length = z.EXTRA.unpack(extra[at : at + z.EXTRA.size])
        body = extra[at + z.EXTRA.size : at + z.EXTRA.size + length]
        at += z.EXTRA.size + length
        if len(body) != length or kind in seen:
            refuse("zip-unknown-extra", "an extra field is cut off or doubled", name=name)
        if kind == z.EXTRA_ZIP64 and length == 8 * sum(wanted) and not seen:
            wide = list(struct.unpack(f"<{sum(wanted)}Q", body))
        elif kind == z.EXTRA_ZIP64:
            refuse("zip-zip64-inconsistent", "a zip64 field has the wrong values", name=name)
        elif kind == z.EXTRA_PADDING and padding_allowed:
            if body.strip(b"\0"):
                refuse("zip-nonzero-padding", "an entry's padding is not zero", name=name)
        else:
            refuse(
                "zip-unknown-extra", "an entry has an unknown extra field", name=name, id=hex(kind)
            )
        seen.add(kind)
    if len(wide) != sum(wanted) or any(value < z.MAX32 for value in wide):
        refuse(
            "zip-zip64-inconsistent",
            "a 32-bit field points to a zip64 value that is absent or not needed",
            name=name,
        )
    return wide


def _local(data: Source, header: _Header, directory: int) -> z.ZipEntry:
    at = header.offset
    if at + z.LOCAL.size > directory:
        refuse("zip-out-of-file", "an entry starts past the directory", name=header.name, offset=at)
    fixed = data[at : at + z.LOCAL.size]
    magic, version, flags, method, time, date, crc, packed, size, names, extras = z.LOCAL.unpack(
        fixed
    )
    if magic != z.LOCAL_MAGIC:
        refuse("zip-local-mismatch", "no local header where the directory says", name=header.name)
    start = at + z.LOCAL.size + names + extras
    if start > directory or header.packed > directory - start:
        refuse("zip-out-of-file", "an entry runs into the directory", name=header.name)
    raw = data[at + z.LOCAL.size : at + z.LOCAL.size + names]
    if (raw, flags, method, crc) != (header.raw, header.flags, header.method, header.crc32):
        refuse(
            "zip-local-mismatch", "a local header is not what the directory says", name=header.name
        )
    _common(header.name, raw, version, flags, method, (time, date))
    large = header.size >= z.MAX32
    extra = data[start - extras : start]
    wide = _zip64(extra, [packed == z.MAX32, size == z.MAX32], header.name, padding_allowed=True)
    found = (wide[0], wide[1]) if len(wide) == 2 else (packed, size)
    expected = z.version_needed(method, large)
    if found != (header.packed, header.size) or version != expected:
        refuse("zip-local-mismatch", "a local header has another size or version", name=header.name)
    packed_size = header.packed if method == z.DEFLATED else None
    return z.ZipEntry(header.name, header.mode, header.size, crc, at, start, packed_size)


def _gaps(data: Source, entries: list[z.ZipEntry], directory: int) -> None:
    ends = [entry.end for entry in entries]
    starts = [entry.header_offset for entry in entries[1:]] + [directory]
    for entry, end, start in zip(entries, ends, starts, strict=True):
        if end > start:
            refuse("zip-overlap", "two entries overlap", name=entry.name)
        if start - end > (z.MAX_GAP if start != directory else 0):
            refuse("zip-gap", "bytes that belong to no entry", after=entry.name, size=start - end)
        if data[end:start].strip(b"\0"):
            refuse("zip-nonzero-gap", "the gap after an entry is not zero", name=entry.name)
