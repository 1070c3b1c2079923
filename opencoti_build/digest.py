"""Digests: of files, of bytes, and of plain data (content keys)."""

from __future__ import annotations

import hashlib
import json
from io import RawIOBase
from pathlib import Path

CHUNK = 1 << 20


def sha256_bytes(data: bytes) -> str:
    """The sha256 of ``data`` as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_stream(stream: RawIOBase) -> str:
    """The sha256 of what is left in ``stream``."""
    digest = hashlib.sha256()
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    while count := stream.readinto(buffer):
        digest.update(view[:count])
    return digest.hexdigest()


def sha256_file(path: Path) -> str:
    """The sha256 of a file's content."""
    with path.open("rb", buffering=0) as stream:
        return sha256_stream(stream)


def content_key(data: object) -> str:
    """The key of plain data (DESIGN section 8): sha256 over its canonical JSON."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256_bytes(text.encode("ascii"))
