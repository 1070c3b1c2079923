"""GPU architectures of a CUDA library, read from its ELF file without any NVIDIA tool.

``nvcc`` puts the device code of each source file into one container in the section
``.nv_fatbin``: a header (magic, version, its own size, size of what follows), then one entry an
architecture. An entry's header has the kind of code, its own size, the size of the code, the
architecture's number and flags. NVIDIA documents none of this; the offsets below were read off
files of CUDA 12.9 and 13.0, and a file that does not fit them is malformed, never guessed at.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass

SECTION = ".nv_fatbin"

_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
_MAGIC = 0xBA55ED50
_VERSION = 1
_ENTRY = struct.Struct("<HHIQ")  # kind, version, size of this header, size of the code
_NUMBER = struct.Struct("<I")  # architecture, at _NUMBER_AT of the entry's header
_FLAGS = struct.Struct("<Q")
_NUMBER_AT, _FLAGS_AT, _MIN_ENTRY = 28, 40, 64
_KIND_PTX, _KIND_ELF = 1, 2
_SPECIFIC, _FAMILY = 1 << 20, 1 << 21
_MAX_CONTAINERS, _MAX_ENTRIES = 100_000, 256


class FatbinError(ValueError):
    """The section is not what a CUDA compiler writes."""


@dataclass(frozen=True, order=True)
class Architecture:
    """One target of device code: ``90``, ``90a`` (that one only), ``120f`` (its family).

    ``ptx`` is code that the driver compiles when it loads the library.
    """

    number: int
    suffix: str = ""
    ptx: bool = False

    def __str__(self) -> str:
        return f"{'compute_' if self.ptx else ''}{self.number}{self.suffix}"


def read_section(data: bytes) -> bytes | None:
    """The section ``.nv_fatbin`` of an ELF file; None without one, or in a damaged file."""
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError
    from elftools.elf.elffile import ELFFile

    try:
        section = ELFFile(io.BytesIO(data)).get_section_by_name(SECTION)
        if section is None:
            return None
        offset, size = int(section["sh_offset"]), int(section["sh_size"])
    except (ELFError, ConstructError, ValueError, KeyError, TypeError, AttributeError, OSError,
            IndexError, AssertionError, UnicodeDecodeError, OverflowError):  # fmt: skip
        return None
    return data[offset : offset + size] if offset + size <= len(data) else None


def read_containers(section: bytes) -> list[frozenset[Architecture]]:
    """What each container of the section has code for, in order. Raises FatbinError."""
    return [frozenset(found for found, _ in entries) for entries in _containers(section)]


def read_sizes(section: bytes) -> dict[str, int]:
    """The bytes of device code (packed, as they are in the file) of each architecture.

    Sorted by number; code for one chip alone (``90a``) has a row of its own. Raises FatbinError.
    """
    sizes: dict[Architecture, int] = {}
    for entries in _containers(section):
        for found, size in entries:
            sizes[found] = sizes.get(found, 0) + size
    return {str(found): sizes[found] for found in sorted(sizes)}


def _containers(section: bytes) -> Iterator[list[tuple[Architecture, int]]]:
    at = number = 0
    while (at := _skip_padding(section, at)) < len(section):
        if number == _MAX_CONTAINERS:
            raise FatbinError("too many containers")
        at, found = _container(section, at)
        number += 1
        yield found


def _skip_padding(section: bytes, at: int) -> int:
    """The next place that is not zero, from ``at`` on; containers begin at multiples of 8."""
    at = -(-at // 8) * 8
    while at < len(section) and not any(section[at : at + 8]):
        at += 8
    return at


def _container(section: bytes, at: int) -> tuple[int, list[tuple[Architecture, int]]]:
    if len(section) - at < _CONTAINER.size:
        raise FatbinError("a container is cut off")
    magic, version, header, size = _CONTAINER.unpack_from(section, at)
    if magic != _MAGIC or version != _VERSION or header < _CONTAINER.size:
        raise FatbinError(f"no container at offset {at}")
    if size > len(section) - at - header:
        raise FatbinError("a container is longer than the section")
    end = at + header + size
    return end, list(_entries(section, at + header, end))


def _entries(section: bytes, at: int, end: int) -> Iterator[tuple[Architecture, int]]:
    for _ in range(_MAX_ENTRIES):
        if at == end:
            return
        if end - at < _MIN_ENTRY:
            raise FatbinError("an entry is cut off")
        kind, _, header, size = _ENTRY.unpack_from(section, at)
        if header < _MIN_ENTRY or header > end - at or size > end - at - header:
            raise FatbinError("an entry is longer than its container")
        (number,) = _NUMBER.unpack_from(section, at + _NUMBER_AT)
        (flags,) = _FLAGS.unpack_from(section, at + _FLAGS_AT)
        if kind not in (_KIND_PTX, _KIND_ELF) or not 10 <= number < 1000:
            raise FatbinError(f"an entry of kind {kind} for architecture {number}")
        suffix = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
        yield Architecture(number, suffix, kind == _KIND_PTX), header + size
        at += header + size
    raise FatbinError("too many entries")


def promised(containers: list[frozenset[Architecture]]) -> tuple[str, ...]:
    """The architectures that the whole library has code for, sorted by number.

    A source file may have code for one chip alone (``90a``) beside the others: where such a file
    stands alone it promises nothing, and such code is left out where the plain one is there too.
    """
    general = [item for item in containers if _general(item)]
    common = frozenset.intersection(*general) if general else frozenset()
    plain = {item.number for item in common if item.suffix != "a"}
    kept = (item for item in common if item.suffix != "a" or item.number not in plain)
    return tuple(str(item) for item in sorted(kept))


def incomplete(containers: list[frozenset[Architecture]]) -> tuple[str, ...]:
    """Architectures that only some of the source files have code for."""
    general = [item for item in containers if _general(item)]
    every = frozenset().union(*general)
    partly = (item for item in every if any(item not in found for found in general))
    return tuple(str(item) for item in sorted(partly))


def _general(container: frozenset[Architecture]) -> bool:
    """Whether a container is not one of those with code for single chips alone."""
    return len(container) > 1 or any(item.suffix != "a" for item in container)
