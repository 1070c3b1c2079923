"""A tiny program in the form of an Actually Portable Executable: script, ELF twice, PE."""

from __future__ import annotations

import struct

_X86_64, _AARCH64 = 62, 183
_PE_AT, _BODY_AT, _BODY_SIZE = 0xE00, 0x1000, 0x400


def tiny_ape(
    *,
    magic: bytes = b"MZqFpD='",
    machines: tuple[int, ...] = (_X86_64, _AARCH64),
    load_size: int = _BODY_SIZE,
    pe_machine: int = 0x8664,
    image_size: int = 0x2000,
) -> bytes:
    """The program's bytes. As a shell script it prints its arguments; ``--elf N`` one header."""
    head = (magic + b"\n").ljust(0x3C, b" ") + struct.pack("<I", _PE_AT) + b"'\n"
    script = b""
    for number, machine in enumerate(machines):
        octal = "".join(f"\\{byte:03o}" for byte in _elf(machine, 56 * number))
        script += f"[ \"$1 $2\" = '--elf {number}' ] && printf '{octal}'\n".encode()
    script += b'[ "$1" = --elf ] && exit\necho "stand-in $*"\nexit 0\n'
    start = head + script
    assert len(start) <= _PE_AT
    loads = _load(load_size) * len(machines)
    body = loads.ljust(_BODY_SIZE - 1, b"\xc3") + b"\n"
    return (start.ljust(_PE_AT, b"\0") + _pe(pe_machine, image_size)).ljust(_BODY_AT, b"\0") + body


def _elf(machine: int, at: int) -> bytes:
    ident = b"\x7fELF\x02\x01\x01\x00".ljust(16, b"\0")
    entry = 0x401000
    return ident + struct.pack(
        "<2HI3QI6H", 2, machine, 1, entry, _BODY_AT + at, 0, 0, 64, 56, 1, 64, 0, 0
    )


def _load(size: int) -> bytes:
    """A program header: all of the body, to be read and executed."""
    place = _BODY_AT, 0x401000, 0x401000
    return struct.pack("<2I6Q", 1, 5, *place, size, size, 0x1000)


def _pe(machine: int, image_size: int) -> bytes:
    coff = struct.pack("<2H3I2H", machine, 1, 0, 0, 0, 240, 0x0022)
    optional = struct.pack("<H2B5I", 0x20B, 14, 0, _BODY_SIZE, 0, 0, _BODY_AT, _BODY_AT)
    optional += struct.pack("<Q2I6HI", 0x140000000, 0x1000, 0x200, 6, 0, 0, 0, 6, 0, 0)
    optional += struct.pack("<3I2H", image_size, _BODY_AT, 0, 3, 0x160)
    optional += struct.pack("<4Q2I", 1 << 20, 1 << 12, 1 << 20, 1 << 12, 0, 16) + bytes(128)
    section = struct.pack(
        "<8s6I2HI", b".text", _BODY_SIZE, _BODY_AT, _BODY_SIZE, _BODY_AT, 0, 0, 0, 0, 0x60000020
    )
    assert len(optional) == 240
    return b"PE\0\0" + coff + optional + section
