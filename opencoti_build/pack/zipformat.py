"""The zip records that the single file uses, and the one form in which each is written.

Source: PKWARE APPNOTE 6.3.10, sections 4.3 (records), 4.5.3 (zip64 extra field). All integers
are little-endian, all offsets count from byte 0 of the file, all sizes are in bytes.
"""

from __future__ import annotations

import struct
import unicodedata
from dataclasses import dataclass

from opencoti_build.errors import PackError

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR = struct.Struct("<4sIQI")
EXTRA = struct.Struct("<2H")

LOCAL_MAGIC = b"PK\x03\x04"
CENTRAL_MAGIC = b"PK\x01\x02"
END_MAGIC = b"PK\x05\x06"
END64_MAGIC = b"PK\x06\x06"
LOCATOR_MAGIC = b"PK\x06\x07"

MAX16 = 0xFFFF
MAX32 = 0xFFFFFFFF

FLAG_ENCRYPTED = 0x0001
FLAG_DESCRIPTOR = 0x0008
FLAG_UTF8 = 0x0800

EXTRA_ZIP64 = 0x0001
EXTRA_PADDING = 0x6F63
"""Private id of the local extra field whose zero bytes bring the data to its alignment."""

STORED, DEFLATED = 0, 8
"""Methods."""
VERSION_PLAIN = 10
VERSION_DEFLATED = 20
VERSION_ZIP64 = 45
MADE_BY_UNIX = 3 << 8
DOS_TIME = 0
DOS_DATE = 1 << 5 | 1
"""1980-01-01, the first day that the format can say."""

REGULAR_FILE = 0o100000
MODES = (0o644, 0o755)

MAX_DEFLATED = 1 << 30
"""Bytes that a compressed entry may unpack to: readers need so much memory for it."""

ALIGNMENT = 65536
MAX_GAP = 32
"""Zero bytes that may stand before a local header: where 1 to 3 bytes of padding are needed,
or more than a 16-bit extra length can say, an extra field cannot hold them."""


@dataclass(frozen=True)
class ZipEntry:
    """One file: its name, unix permission bits, size, crc-32 and place in the zip.

    ``packed_size`` is the size of the DEFLATE stream that holds it; None: it is stored.
    """

    name: str
    mode: int
    size: int
    crc32: int
    header_offset: int
    data_offset: int
    packed_size: int | None = None

    @property
    def method(self) -> int:
        """How the data is held: ``STORED`` or ``DEFLATED``."""
        return STORED if self.packed_size is None else DEFLATED

    @property
    def held_size(self) -> int:
        """The bytes that the data takes in the zip."""
        return self.size if self.packed_size is None else self.packed_size

    @property
    def end(self) -> int:
        """The offset just past the data."""
        return self.data_offset + self.held_size


def may_deflate(name: str) -> bool:
    """Whether the entry ``name`` may be compressed: the launcher copies it into its cache.

    All else is mapped, executed or copied where it is, or is read before the launcher runs.
    """
    parts = name.split("/")
    return len(parts) == 3 and parts[0] == "engine" and parts[2] != "INDEX"


def version_needed(method: int, wide: bool) -> int:
    """The version that a reader needs; ``wide``: the header has a zip64 field."""
    if wide:
        return VERSION_ZIP64
    return VERSION_PLAIN if method == STORED else VERSION_DEFLATED


def check_name(name: str) -> None:
    """Refuse a name that could be written outside a folder or that means two things.

    Raises PackError ``zip-unsafe-name``.
    """
    parts = name.split("/")
    bad = (
        any(part in ("", ".", "..") for part in parts)
        or any(char in name for char in '\\:*?"<>|')
        or any(ord(char) < 32 or ord(char) == 127 for char in name)
        or len(name.encode("utf-8", "surrogatepass")) > 1024
    )
    if bad:
        raise PackError(
            "zip-unsafe-name",
            "an entry's name is absolute, climbs out of its folder or has forbidden characters",
            context={"name": repr(name)},
        )


class NameSet:
    """The names seen so far; refuses one that a case-insensitive file system would merge."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Note ``name``. Raises PackError ``zip-duplicate-name``, also for a file/folder clash."""
        key = unicodedata.normalize("NFC", name).casefold()
        parts = key.split("/")
        folders = ["/".join(parts[:count]) for count in range(1, len(parts))]
        other = self._files.get(key) or self._folders.get(key)
        for folder in folders:
            other = other or self._files.get(folder)
        if other is not None:
            raise PackError(
                "zip-duplicate-name",
                "two entries have the same name, or differ only in case, or one is the "
                "other's folder",
                context={"name": name, "other": other},
            )
        self._files[key] = name
        for folder in folders:
            self._folders.setdefault(folder, name)


def name_flags(raw: bytes) -> int:
    """The general purpose flags for a name: bit 11 when it is not plain ASCII."""
    return 0 if raw.isascii() else FLAG_UTF8


def external_attributes(mode: int) -> int:
    """The external attributes of a regular file with permission bits ``mode``."""
    return (REGULAR_FILE | mode) << 16


def local_header(entry: ZipEntry, padding: bytes) -> bytes:
    """The local header of ``entry`` with its name, zip64 field and ``padding`` field."""
    raw = entry.name.encode("utf-8")
    large = entry.size >= MAX32  # such an entry is stored
    extra = (
        EXTRA.pack(EXTRA_ZIP64, 16) + struct.pack("<2Q", entry.size, entry.size) if large else b""
    )
    extra += padding
    packed, size = (MAX32, MAX32) if large else (entry.held_size, entry.size)
    fixed = LOCAL.pack(
        LOCAL_MAGIC, version_needed(entry.method, large), name_flags(raw), entry.method, DOS_TIME,
        DOS_DATE, entry.crc32, packed, size, len(raw), len(extra),
    )  # fmt: skip
    return fixed + raw + extra


def central_header(entry: ZipEntry) -> bytes:
    """The central directory header of ``entry``; zip64 values only where 32 bits cannot hold."""
    raw = entry.name.encode("utf-8")
    large, far = entry.size >= MAX32, entry.header_offset >= MAX32
    values = ([entry.size] * 2 if large else []) + ([entry.header_offset] if far else [])
    extra = b""
    if values:
        extra = EXTRA.pack(EXTRA_ZIP64, 8 * len(values)) + struct.pack(f"<{len(values)}Q", *values)
    packed, size = (MAX32, MAX32) if large else (entry.held_size, entry.size)
    version = version_needed(entry.method, bool(values))
    fixed = CENTRAL.pack(
        CENTRAL_MAGIC, MADE_BY_UNIX | version, version, name_flags(raw), entry.method, DOS_TIME,
        DOS_DATE, entry.crc32, packed, size, len(raw), len(extra), 0, 0, 0,
        external_attributes(entry.mode), MAX32 if far else entry.header_offset,
    )  # fmt: skip
    return fixed + raw + extra


def end_records(count: int, size: int, offset: int) -> bytes:
    """The end records of a directory of ``count`` headers, ``size`` bytes at ``offset``."""
    tail = b""
    if count >= MAX16 or size >= MAX32 or offset >= MAX32:
        tail += END64.pack(
            END64_MAGIC, END64.size - 12, MADE_BY_UNIX | VERSION_ZIP64, VERSION_ZIP64,
            0, 0, count, count, size, offset,
        )  # fmt: skip
        tail += LOCATOR.pack(LOCATOR_MAGIC, 0, offset + size, 1)
    short = min(count, MAX16)
    return tail + END.pack(
        END_MAGIC, 0, 0, short, short, min(size, MAX32), min(offset, MAX32), 0
    )  # fmt: skip
