"""Device code containers and small libraries that hold them, without a CUDA compiler."""

from __future__ import annotations

import functools
import re
import struct
import tempfile
from pathlib import Path

from tests.lib.single_file import compile_c

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


@functools.cache
def cuda_library(section: bytes, *arguments: str) -> Path:
    """A shared library with ``section`` as its device code, built once a test process."""
    folder = Path(tempfile.mkdtemp(prefix="opencoti-test-cuda-"))
    # In the source itself: zig's cache does not know the files that an assembler reads.
    data = ",".join(map(str, section))
    (folder / "cuda.c").write_text(
        f'asm(".section .nv_fatbin, \\"a\\"\\n.align 8\\n.byte {data}\\n.previous");\n'
        "int ggml_backend_score(void) { return 1; }\n"
    )
    # Nothing refers to the section, and zig leaves out such sections unless asked.
    flags = ("-shared", "-fPIC", "-Wl,--no-gc-sections")
    compile_c(folder, "cuda.c", *flags, "-o", "ggml-cuda.so", *arguments)
    return folder / "ggml-cuda.so"
