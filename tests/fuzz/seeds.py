"""Writes the seeds of the fuzz target: ``python -m tests.fuzz.seeds``. The same bytes each time."""

from __future__ import annotations

import zlib
from pathlib import Path

from opencoti_build.pack import zipformat as z
from opencoti_build.pack.index import IndexFile, render_index
from opencoti_build.pack.zipreader import read_zip
from opencoti_build.pack.zipwriter import ZipWriter

FOLDER = Path(__file__).parent / "corpus"
STREAMS = Path(__file__).parent / "streams"
INDEX = "engine/x86_64-linux/INDEX"


def seeds() -> dict[str, bytes]:
    """Name and bytes of each seed."""
    files = [
        IndexFile("opencoti-engine", "a" * 64, 5, 0o755),
        IndexFile("b.so", "b" * 64, 7, 0o644),
    ]
    index = render_index("0.10.3", "c3", files)
    plain = _zip({INDEX: index, ".args": b"-m\n/zip/m.gguf\n...\n"})
    return {
        "plain": plain,
        "one": _zip({".args": b"..."}),
        "aligned": _zip({"a": b"1", INDEX: index}, align=64),
        "zip64-end": _wide_end(plain),
        "zip64-entry": _wide_entry(),
        "packed": _packed(),
        "empty": z.end_records(0, 0, 0),
    }


def streams() -> dict[str, bytes]:
    """Name and bytes of each seed of the inflate target: an offset, then a DEFLATE stream."""
    far = bytes(range(256)) * 3
    mixed = far + b"to be or not to be, " * 20 + bytes(400) + far[::-1]
    made = {
        "own-codes": _stream(mixed, 9),
        "fixed-codes": _stream(mixed, 9, zlib.Z_FIXED),
        "no-matches": _stream(mixed, 9, zlib.Z_HUFFMAN_ONLY),
        "runs": _stream(bytes(5000), 9),
        "stored": _stream(far, 0),
        "nothing": _stream(b"", 9),
    }
    return {name: b"\0" + data for name, data in made.items()} | {"short": b"\1" + made["runs"]}


def _stream(data: bytes, level: int, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, 9, strategy)
    return packer.compress(data) + packer.flush()


def _packed() -> bytes:
    """A file with a compressed entry."""
    stream = _stream(b"opencoti " * 50, 9, zlib.Z_FIXED)
    name = "engine/x86_64-linux/opencoti-engine"
    start = z.LOCAL.size + len(name)
    entry = z.ZipEntry(name, 0o755, 450, zlib.crc32(b"opencoti " * 50), 0, start, len(stream))
    directory, local = z.central_header(entry), z.local_header(entry, b"") + stream
    return local + directory + z.end_records(1, len(directory), len(local))


def _zip(items: dict[str, bytes], align: int = 1) -> bytes:
    import tempfile

    with tempfile.TemporaryFile(buffering=0) as stream:
        writer = ZipWriter(stream)  # type: ignore[arg-type]
        for name, data in items.items():
            writer.add_bytes(name, data, align=align)
        size = writer.finish()
        stream.seek(0)
        return stream.read(size)


def _wide_end(data: bytes) -> bytes:
    """The same file with zip64 end records that it does not need."""
    layout = read_zip(data)
    at, count = layout.directory_offset, len(layout.entries)
    size = len(data) - z.END.size - at
    tail = z.END64.pack(z.END64_MAGIC, 44, 813, 45, 0, 0, count, count, size, at)
    tail += z.LOCATOR.pack(z.LOCATOR_MAGIC, 0, at + size, 1)
    return (
        data[: -z.END.size]
        + tail
        + z.END.pack(z.END_MAGIC, 0, 0, z.MAX16, z.MAX16, z.MAX32, z.MAX32, 0)
    )


def _wide_entry() -> bytes:
    """An entry whose headers announce 5 GiB in a zip64 field."""
    entry = z.ZipEntry("m.gguf", 0o644, 5 << 30, 0, 0, 56)
    directory, local = z.central_header(entry), z.local_header(entry, b"")
    return local + directory + z.end_records(1, len(directory), len(local))


def main() -> None:
    """Write all seeds."""
    for folder, made in ((FOLDER, seeds()), (STREAMS, streams())):
        folder.mkdir(exist_ok=True)
        for name, data in made.items():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
