"""Device code containers and small libraries that hold them, without a CUDA compiler."""

from __future__ import annotations

import functools
import re
import struct
import tempfile
from pathlib import Path
from typing import Any

from opencoti_build.build.cuda_note import note_text, write_note
from opencoti_build.verify.fatbin import FatbinError, promised, read_containers
from tests.lib.single_file import ABI, compile_c

MAGIC = 0xBA55ED50
FLAGS = {"": 0, "a": 1 << 20, "f": 1 << 21}


def entry(architecture: str, code: bytes = b"\x7fcode\0\0\0", **changes: int) -> bytes:
    """One entry: ``90``, ``90a``, ``120f``, or ``compute_80`` for PTX.

    ``changes`` replace the fields ``kind``, ``header``, ``size`` or ``number``.
    """
    match = re.fullmatch(r"(compute_)?(\d+)([af]?)", architecture)
    assert match, architecture
    kind = changes.get("kind", 1 if match[1] else 2)
    size = changes.get("size", len(code))
    head = struct.pack("<HHIQ", kind, 0x101, changes.get("header", 64), size)
    head += struct.pack("<IIII", len(code), 0, 0x10008, changes.get("number", int(match[2])))
    head += bytes(8) + struct.pack("<Q", FLAGS[match[3]] | 0x8011)
    return head.ljust(64, b"\0") + code


def container(*entries: bytes, magic: int = MAGIC, version: int = 1, more: int = 0) -> bytes:
    """A container; ``more`` is added to the size that its header states (bytes)."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", magic, version, 16, len(body) + more) + body


def code_for(*architectures: str) -> bytes:
    """A container with code for ``architectures``."""
    return container(*(entry(name) for name in architectures))


def note_for(section: bytes, **changes: Any) -> str:
    """The text of the note of a library with this device code; ``changes`` are arguments."""
    try:
        names = promised(read_containers(section)) or ("80",)
    except FatbinError:
        names = ("80",)
    facts = {"abi": ABI, "architectures": names, "driver": 13000, "version": "0.10.3"}
    return note_text(**{**facts, **changes})


@functools.cache
def cuda_library(section: bytes, *arguments: str, note: str | None = "") -> Path:
    """A shared library with ``section`` as its device code, built once a test process.

    ``note`` is the text of its note; by default what is true, None for no note at all.
    """
    folder = Path(tempfile.mkdtemp(prefix="opencoti-test-cuda-"))
    # In the source itself: zig's cache does not know the files that an assembler reads.
    data = ",".join(map(str, section))
    (folder / "cuda.c").write_text(
        f'asm(".section .nv_fatbin, \\"a\\"\\n.align 8\\n.byte {data}\\n.previous");\n'
        "int ggml_backend_score(void) { return 1; }\n"
    )
    sources = ["cuda.c"]
    if note is not None:
        sources.append(write_note(folder, note or note_for(section)).name)
    # Nothing refers to the section, and zig leaves out such sections unless asked.
    flags = ("-shared", "-fPIC", "-Wl,--no-gc-sections")
    compile_c(folder, *sources, *flags, "-o", "ggml-cuda.so", *arguments)
    return folder / "ggml-cuda.so"
