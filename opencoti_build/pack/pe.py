"""The Windows launcher inside the prologue: its PE headers moved, its sections behind them.

Source: Microsoft PE Format (COFF file header, optional header PE32+, section table). A loader
finds the headers through ``e_lfanew`` and needs them within the first ``SizeOfHeaders`` bytes;
where in these they lie is free. So the start script keeps the front of the prologue, the headers
go to its end, and each section's raw data follows at a shifted file offset.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from opencoti_build.errors import PackError

DOS_MAGIC = b"MZ"
PE_MAGIC = b"PE\0\0"
LFANEW_OFFSET = 0x3C
MACHINE_X86_64 = 0x8664
MAGIC_PE32_PLUS = 0x20B

EXECUTABLE_IMAGE = 0x0002
DLL_IMAGE = 0x2000

_COFF = struct.Struct("<2H3I2H")
_SECTION = struct.Struct("<8s6I2HI")
_OPTIONAL_SIZE = 240
_DIRECTORIES = 112
"""Offset of the data directories in the optional header."""
_SECURITY, _DEBUG = 4, 6
_LIMIT = 64


@dataclass(frozen=True)
class PeImage:
    """A program ready for the prologue: ``headers`` for its end, ``body`` to follow it."""

    headers: bytes
    body: bytes


def relocate(program: bytes, prologue_size: int) -> PeImage:
    """The PE program with its raw data moved to start at ``prologue_size`` (bytes).

    What would differ between two builds or point to a wrong place afterwards is cleared: the time
    stamp, the checksum, symbols and the debug directory. Raises PackError ``pack-bad-pe``.
    """
    try:
        return _relocate(program, prologue_size)
    except struct.error:
        raise _bad("it is cut off") from None


def _relocate(program: bytes, prologue_size: int) -> PeImage:
    if program[:2] != DOS_MAGIC:
        raise _bad("it does not start with MZ")
    (at,) = struct.unpack_from("<I", program, LFANEW_OFFSET)
    if program[at : at + 4] != PE_MAGIC:
        raise _bad("it has no PE signature")
    machine, count, _, _, _, optional_size, flags = _COFF.unpack_from(program, at + 4)
    optional = bytearray(program[at + 4 + _COFF.size : at + 4 + _COFF.size + optional_size])
    if machine != MACHINE_X86_64 or optional_size != _OPTIONAL_SIZE or len(optional) != 240:
        raise _bad("it is not for x86-64")
    if optional[:2] != MAGIC_PE32_PLUS.to_bytes(2, "little"):
        raise _bad("it is not PE32+")
    if not flags & EXECUTABLE_IMAGE or flags & DLL_IMAGE:
        raise _bad("it is not a program")
    if not 0 < count <= _LIMIT:
        raise _bad(f"it has {count} sections")
    alignment, old_size = _check_layout(optional, prologue_size)
    if any(_directory(optional, _SECURITY)):
        raise _bad("it is signed: a signature does not survive the move")
    struct.pack_into("<2I", optional, _DIRECTORIES + 8 * _DEBUG, 0, 0)
    struct.pack_into("<2I", optional, 60, prologue_size, 0)  # SizeOfHeaders, CheckSum
    table = at + 4 + _COFF.size + optional_size
    sections, end = _sections(program, table, count, alignment, (old_size, prologue_size))
    coff = _COFF.pack(machine, count, 0, 0, 0, optional_size, flags)
    headers = PE_MAGIC + coff + bytes(optional) + sections
    return PeImage(headers, program[old_size:end])


def _check_layout(optional: bytearray, prologue_size: int) -> tuple[int, int]:
    """FileAlignment and SizeOfHeaders, when the headers can grow to ``prologue_size``."""
    section_alignment, alignment = struct.unpack_from("<2I", optional, 32)
    (size,) = struct.unpack_from("<I", optional, 60)
    if alignment & (alignment - 1) or not 512 <= alignment <= 65536:
        raise _bad(f"its file alignment is {alignment}")
    if prologue_size % alignment or section_alignment < max(alignment, prologue_size):
        raise _bad("its sections cannot be moved behind the prologue")
    if not 0 < size <= prologue_size:
        raise _bad("its headers are larger than the prologue")
    return alignment, size


def _directory(optional: bytearray, index: int) -> tuple[int, int]:
    start, size = struct.unpack_from("<2I", optional, _DIRECTORIES + 8 * index)
    return start, size


def _sections(
    program: bytes, table: int, count: int, alignment: int, sizes: tuple[int, int]
) -> tuple[bytes, int]:
    """The section table with shifted raw pointers, and where the last section's data ends."""
    old_size, new_size = sizes
    out, end = b"", old_size
    for index in range(count):
        name, virtual, address, raw, pointer, relocations, lines, *rest = _SECTION.unpack_from(
            program, table + _SECTION.size * index
        )
        if relocations or lines or rest[0] or rest[1]:
            raise _bad("a section has COFF relocations or line numbers")
        if raw:
            if pointer < old_size or pointer % alignment or raw % alignment:
                raise _bad("a section's data is not where it may be")
            end = max(end, pointer + raw)
            pointer += new_size - old_size
        out += _SECTION.pack(name, virtual, address, raw, pointer, 0, 0, *rest)
    if end > len(program):
        raise _bad("it is cut off")
    return out, end


def _bad(why: str) -> PackError:
    return PackError("pack-bad-pe", f"the Windows launcher cannot be embedded: {why}")
