"""Ad-hoc code signatures of Mach-O files: whether each page has the hash that is signed.

Source: xnu ``osfmk/kern/cs_blobs.h`` (SuperBlob, CodeDirectory); all integers are big-endian.
A Mac with Apple silicon ends a program whose pages do not have their hashes.
"""

from __future__ import annotations

import hashlib
import struct

_SUPER = struct.Struct(">3I")
_INDEX = struct.Struct(">2I")
_DIRECTORY = struct.Struct(">9I4B")
_SUPER_MAGIC, _DIRECTORY_MAGIC = 0xFADE0CC0, 0xFADE0C02
_ADHOC = 0x2
_SHA256 = 2
_MAX_BLOBS = 16
_WIDE_VERSION, _WIDE_OFFSET = 0x20300, 56
"""Since this version a 64-bit code limit stands at this offset (0: the 32-bit one counts)."""


def signature_problem(data: bytes, offset: int, size: int) -> str:
    """What is wrong with the signature at ``offset`` (bytes) of a thin Mach-O file, else ``""``."""
    blob = data[offset : offset + size]
    try:
        directory = _directory(blob)
        return _check(data, offset, directory) if directory else "it has no code directory"
    except struct.error:
        return "it is cut off"


def _directory(blob: bytes) -> bytes:
    magic, length, count = _SUPER.unpack_from(blob)
    if magic != _SUPER_MAGIC or length > len(blob) or count > _MAX_BLOBS:
        return b""
    for index in range(count):
        _, at = _INDEX.unpack_from(blob, _SUPER.size + _INDEX.size * index)
        magic, length = _INDEX.unpack_from(blob, at)
        if magic == _DIRECTORY_MAGIC:
            return blob[at : at + length]
    return b""


def _check(data: bytes, offset: int, directory: bytes) -> str:
    fields = _DIRECTORY.unpack_from(directory)
    _, length, version, flags, hashes, _, _, slots, limit = fields[:9]
    hash_size, hash_type, _, page_bits = fields[9:]
    if version >= _WIDE_VERSION:
        (wide,) = struct.unpack_from(">Q", directory, _WIDE_OFFSET)
        limit = wide or limit
    if length != len(directory):
        return "its code directory is cut off"
    if not flags & _ADHOC:
        return "it is not ad hoc"
    if (hash_type, hash_size) != (_SHA256, 32) or not 12 <= page_bits <= 16:
        return "it has no SHA-256 page hashes"
    if limit != offset:
        return "it does not cover all bytes before it"
    page = 1 << page_bits
    if slots != -(-limit // page) or hashes + 32 * slots > length:
        return "it has another number of page hashes"
    for slot in range(slots):
        piece = data[slot * page : min((slot + 1) * page, limit)]
        at = hashes + 32 * slot
        if hashlib.sha256(piece).digest() != directory[at : at + 32]:
            return f"page {slot} does not have its hash"
    return ""
