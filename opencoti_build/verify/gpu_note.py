"""Reads what a GPU library says about itself (``build.cuda_note``), without loading it."""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from opencoti_build.build.cuda_note import FORMAT, OWNER, TYPE

_HEAD = struct.Struct("<III")  # sizes of owner (with its NUL) and text, type
_MAX_SEGMENTS, _MAX_NOTES = 256, 64 << 10
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ARCHITECTURE = re.compile(r"[1-9][0-9]{1,2}[af]?")


class NoteError(ValueError):
    """The notes of a library are damaged, or ours is not understood."""


@dataclass(frozen=True)
class GpuNote:
    """``abi`` is an ABI digest, ``driver`` the oldest CUDA that the driver has to support."""

    abi: str
    architectures: tuple[str, ...]
    driver: int
    version: str


def read_note(data: bytes) -> GpuNote | None:
    """The note of a library; None when it has none. Raises NoteError."""
    texts = [text for owner, kind, text in _notes(data) if (owner, kind) == (OWNER, TYPE)]
    if not texts:
        return None
    try:
        facts = json.loads(texts[0])
        note = GpuNote(
            facts["abi"], tuple(facts["architectures"]), facts["driver"], facts["version"]
        )
        good = facts["format"] == FORMAT and _DIGEST.fullmatch(note.abi) is not None
        good = good and type(note.driver) is int and 1000 <= note.driver <= 1_000_000
        good = good and isinstance(note.version, str) and len(note.architectures) > 0
        good = good and all(_ARCHITECTURE.fullmatch(name) for name in note.architectures)
    except (ValueError, KeyError, TypeError, RecursionError):
        good = False
    if not good:
        raise NoteError("the note is not understood")
    return note


def _notes(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Owner, type and text of each note of an ELF file."""
    for segment, align in _segments(data):
        pad, at = (8 if align == 8 else 4), 0
        while len(segment) - at >= _HEAD.size:
            owner, text, kind = _HEAD.unpack_from(segment, at)
            start = at + _padded(_HEAD.size + owner, pad)
            if start + text > len(segment):
                raise NoteError("a note is longer than its segment")
            name = segment[at + _HEAD.size : at + _HEAD.size + owner]
            yield name.rstrip(b"\0").decode("ascii", "replace"), kind, segment[start : start + text]
            at = start + _padded(text, pad)


def _padded(size: int, pad: int) -> int:
    return -(-size // pad) * pad


def _segments(data: bytes) -> Iterator[tuple[bytes, int]]:
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(io.BytesIO(data))
        if elf.num_segments() > _MAX_SEGMENTS:
            raise NoteError("too many segments")
        for index in range(elf.num_segments()):
            header = elf.get_segment(index).header
            if header["p_type"] != "PT_NOTE":
                continue
            offset, size = int(header["p_offset"]), int(header["p_filesz"])
            if size > _MAX_NOTES or offset + size > len(data):
                raise NoteError("the notes lie outside the file")
            yield data[offset : offset + size], int(header["p_align"])
    except (ELFError, ConstructError, KeyError, TypeError, AttributeError, OSError, IndexError,
            AssertionError, UnicodeDecodeError, OverflowError) as error:  # fmt: skip
        raise NoteError("no ELF file, or a damaged one") from error
