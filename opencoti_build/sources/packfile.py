"""Writes one git pack with its index (format: git's pack-format, pack 2 and index 2).

A pack makes an import atomic: until the index has its final name, no reader sees an object.
Objects are stored whole, without deltas.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
import time
import zlib
from pathlib import Path
from types import TracebackType

from opencoti_build.sources.tree import object_id

_TYPES = {"blob": 3, "tree": 2}
_LEVEL = 1
_LARGE = 1 << 31
_STALE = 3600.0  # seconds


class PackWriter:
    """Use as a context manager; without ``publish`` nothing is left in ``folder``."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the ``objects/pack`` folder of a repository."""
        self._folder = folder
        self._rows: dict[bytes, tuple[int, int]] = {}  # id -> (offset, crc32)
        self._offset = 12

    def __enter__(self) -> PackWriter:
        for stale in self._folder.glob("tmp_*"):
            # Left by a killed process: a living one writes every few seconds.
            with contextlib.suppress(FileNotFoundError):
                if time.time() - stale.stat().st_mtime > _STALE:
                    stale.unlink()
        handle, name = tempfile.mkstemp(prefix="tmp_pack_", dir=self._folder)
        self._path = Path(name)
        self._file = os.fdopen(handle, "w+b", buffering=1 << 20)
        self._file.write(b"\0" * self._offset)
        return self

    def put(self, kind: str, data: bytes) -> bytes:
        """Add an object (once) and return its 20-byte id."""
        oid = object_id(kind, data)
        if oid not in self._rows:
            raw = _header(_TYPES[kind], len(data)) + zlib.compress(data, _LEVEL)
            self._rows[oid] = (self._offset, zlib.crc32(raw))
            self._file.write(raw)
            self._offset += len(raw)
        return oid

    def publish(self) -> None:
        """Finish the pack and its index, sync both and give them their names."""
        self._file.seek(0)
        self._file.write(struct.pack(">4sII", b"PACK", 2, len(self._rows)))
        self._file.flush()
        self._file.seek(0)
        digest = hashlib.sha1(usedforsecurity=False)
        while chunk := self._file.read(1 << 20):
            digest.update(chunk)
        self._file.write(digest.digest())
        self._file.flush()
        os.fsync(self._file.fileno())
        names = hashlib.sha1(b"".join(sorted(self._rows)), usedforsecurity=False).hexdigest()
        index = self._path.with_name(self._path.name.replace("tmp_pack_", "tmp_idx_"))
        try:
            with index.open("wb") as stream:
                stream.write(self._index(digest.digest()))
                stream.flush()
                os.fsync(stream.fileno())
            self._path.chmod(0o444)
            index.chmod(0o444)
            # The index goes last: readers look for it, then for the pack.
            self._path.replace(self._folder / f"pack-{names}.pack")
            index.replace(self._folder / f"pack-{names}.idx")
        finally:
            index.unlink(missing_ok=True)

    def _index(self, pack_digest: bytes) -> bytes:
        ids = sorted(self._rows)
        counts = [0] * 256
        for oid in ids:
            counts[oid[0]] += 1
        fanout, total = [], 0
        for count in counts:
            total += count
            fanout.append(total)
        offsets: list[int] = []
        large: list[int] = []
        for oid in ids:
            offset = self._rows[oid][0]
            if offset >= _LARGE:
                offsets.append(_LARGE | len(large))
                large.append(offset)
            else:
                offsets.append(offset)
        body = b"".join(
            (
                b"\xfftOc" + struct.pack(">I256I", 2, *fanout),
                b"".join(ids),
                struct.pack(f">{len(ids)}I", *(self._rows[oid][1] for oid in ids)),
                struct.pack(f">{len(ids)}I", *offsets),
                struct.pack(f">{len(large)}Q", *large),
                pack_digest,
            )
        )
        return body + hashlib.sha1(body, usedforsecurity=False).digest()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            # Closing flushes; on a full disk that fails a second time.
            self._file.close()
        self._path.unlink(missing_ok=True)


def _header(number: int, size: int) -> bytes:
    """The variable-length type and size before each packed object."""
    byte = (number << 4) | (size & 15)
    size >>= 4
    out = bytearray()
    while size:
        out.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    out.append(byte)
    return bytes(out)
