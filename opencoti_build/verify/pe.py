"""Checks of Windows programs and libraries that never run them (lief reads the files).

Sources: Microsoft PE Format; the layout rules are those that Cosmopolitan's linker keeps.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opencoti_build.verify.buildpath import build_path

SYSTEM_LIBRARIES = frozenset(
    {
        "kernel32.dll", "ntdll.dll", "msvcrt.dll", "ucrtbase.dll", "advapi32.dll", "ws2_32.dll",
        "bcrypt.dll", "shell32.dll", "user32.dll",
    }
)  # fmt: skip
SYSTEM_PREFIX = "api-ms-win-crt-"

MACHINE_X86_64 = 0x8664
EXECUTABLE, LARGE_ADDRESS, DLL = 0x0002, 0x0020, 0x2000
CONSOLE = 3
HIGH_ENTROPY, DYNAMIC_BASE, NX = 0x0020, 0x0040, 0x0100
_PE32_PLUS = 0x20B
_LIMIT = 1 << 32


@dataclass(frozen=True)
class PeFacts:
    """What Windows would learn from a file. Sizes, addresses and offsets are in bytes."""

    machine: int
    magic: int
    flags: int
    dll_flags: int
    subsystem: int
    libraries: tuple[str, ...]
    relocatable: bool
    debug_names: tuple[str, ...]
    layout_problem: str


def read_pe(data: bytes) -> PeFacts | None:
    """The facts of a PE file; None when ``data`` is none or is damaged."""
    import lief

    lief.logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of values that no enum of lief has
            binary = lief.PE.parse(data)
            return None if binary is None else _facts(binary, len(data))
    except (AttributeError, ValueError, TypeError, UnicodeDecodeError, OverflowError, RuntimeError):
        return None


def _facts(binary: Any, size: int) -> PeFacts:
    optional = binary.optional_header
    names = [item.name for item in binary.imports]
    names += [item.name for item in binary.delay_imports]
    debug = [item.filename for item in binary.debug if hasattr(item, "filename")]
    return PeFacts(
        machine=_number(binary.header.machine),
        magic=_number(optional.magic),
        flags=_number(binary.header.characteristics),
        dll_flags=_number(optional.dll_characteristics),
        subsystem=_number(optional.subsystem),
        libraries=tuple(map(str, names)),
        relocatable=bool(binary.has_relocations),
        debug_names=tuple(str(name) for name in debug if name),
        layout_problem=next(_layout(binary, size), ""),
    )


def _number(value: Any) -> int:
    """An integer, or the one that an enum of lief stands for."""
    return int(getattr(value, "value", value))


def _layout(binary: Any, size: int) -> Iterator[str]:
    """What of the layout a strict loader could refuse."""
    o = binary.optional_header
    align, pages = o.file_alignment, o.section_alignment
    if align & (align - 1) or not 512 <= align <= 65536 or pages < align or pages & (pages - 1):
        yield f"alignments {align} and {pages}"
        return
    if o.imagebase % 65536 or (
        o.imagebase > 1 << 31 and not _number(binary.header.characteristics) & LARGE_ADDRESS
    ):
        yield f"image base {o.imagebase:#x}"
    if o.sizeof_image % pages or o.sizeof_headers % align:
        yield f"sizes of image {o.sizeof_image} and headers {o.sizeof_headers}"
    if not o.sizeof_headers <= o.addressof_entrypoint < o.sizeof_image:
        yield f"entry point {o.addressof_entrypoint:#x}"
    if max(o.sizeof_stack_reserve, o.sizeof_heap_reserve) >= _LIMIT:
        yield "stack or heap of 4 GiB"
    expected = -(-o.sizeof_headers // pages) * pages
    for section in binary.sections:
        raw, pointer = section.size, section.pointerto_raw_data
        if section.virtual_address != expected:
            yield f"section at {section.virtual_address:#x}, not {expected:#x}"
        if raw % align or (raw and (pointer % align or pointer < o.sizeof_headers)):
            yield f"section data at {pointer:#x}"
        if raw and pointer + raw > size:
            yield f"section data to {pointer + raw:#x} is cut off"
        expected += -(-max(section.virtual_size, 1) // pages) * pages
    if expected != o.sizeof_image:
        yield f"image of {o.sizeof_image} bytes, sections to {expected}"


def pe_problems(
    facts: PeFacts, data: bytes, beside: frozenset[str], program: bool
) -> Iterator[tuple[str, str, object]]:
    """What is wrong with one file, as (reason, message, value).

    ``beside`` are the names in the file's own folder; ``program`` says that it is no library.
    """
    if facts.machine != MACHINE_X86_64 or facts.magic != _PE32_PLUS:
        yield "pe-wrong-machine", "built for another CPU", f"{facts.machine:#x}"
    kind = facts.flags & (EXECUTABLE | DLL)
    if kind != (EXECUTABLE if program else EXECUTABLE | DLL):
        yield "pe-wrong-kind", "is not a program" if program else "is not a library", hex(kind)
    if program and facts.subsystem != CONSOLE:
        yield "pe-wrong-subsystem", "is not a console program", facts.subsystem
    own = {name.lower() for name in beside}
    foreign = [
        name
        for name in facts.libraries
        if (low := name.lower()) not in SYSTEM_LIBRARIES | own and not low.startswith(SYSTEM_PREFIX)
    ]
    if foreign:
        yield "pe-foreign-library", "needs a library that is not allowed", ", ".join(foreign)
    wanted = HIGH_ENTROPY | DYNAMIC_BASE
    if facts.dll_flags & wanted != wanted or not facts.relocatable:
        yield "pe-no-aslr", "cannot be loaded at a random address", hex(facts.dll_flags)
    if not facts.dll_flags & NX:
        yield "pe-no-nx", "allows code on its stack and heap", hex(facts.dll_flags)
    if facts.layout_problem:
        yield "pe-bad-layout", "has a layout that Windows may refuse", facts.layout_problem
    path = build_path(data) or next((n for n in facts.debug_names if "/" in n or "\\" in n), None)
    if path:
        yield "pe-build-path", "holds a path of the build machine", path
