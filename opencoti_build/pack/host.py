"""Puts a host together: start script, Windows image, launchers, engines, META."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from opencoti_build.digest import sha256_bytes, sha256_file
from opencoti_build.errors import PackError
from opencoti_build.pack.header import PROLOGUE_SIZE, LauncherPlace, render_prologue
from opencoti_build.pack.index import IndexFile, render_index
from opencoti_build.pack.manifest import MANIFEST_NAME, inner_manifest
from opencoti_build.pack.pe import PeImage, relocate
from opencoti_build.pack.zipformat import ALIGNMENT
from opencoti_build.pack.zipreader import ZipLayout, read_zip
from opencoti_build.pack.zipwriter import Written, ZipWriter, write_at
from opencoti_build.paths import atomic_path
from opencoti_build.targets import Target
from opencoti_build.ui import Ui, Unit

MODEL_SUFFIX = ".gguf"
ARGS_NAME = ".args"


@dataclass(frozen=True)
class EngineFile:
    """One file of an engine: its name without folder, where it is, its permission bits."""

    name: str
    path: Path
    mode: int = 0o644


@dataclass(frozen=True)
class PackedEntry:
    """An entry of a packed file: sha256 in hex, size and data offset in bytes.

    A compressed entry has the size and sha256 of its stream as ``packed_…``.
    """

    name: str
    sha256: str
    size: int
    offset: int
    mode: int
    packed_size: int | None = None
    packed_sha256: str | None = None


@dataclass(frozen=True)
class PackedFile:
    """A finished single file; ``entries`` are those that this call wrote, in file order."""

    path: Path
    sha256: str
    size: int
    entries: tuple[PackedEntry, ...]


def pack_host(
    *,
    version: str,
    tag: str,
    launchers: Mapping[Target, Path],
    engines: Mapping[Target, Sequence[EngineFile]],
    meta: Sequence[tuple[str, bytes]],
    manifest: Mapping[str, object] | None = None,
    out: Path,
    ui: Ui,
) -> PackedFile:
    """Write the single file ``out`` (mode 0755), whole or not at all.

    The first file of each engine is the engine itself. The Windows launcher is no entry: its PE
    image follows the start script. With ``manifest`` (facts of the caller),
    ``META/manifest.json`` is written last and lists all entries and the bytes before the first
    one; without it, ``meta`` brings its own. Raises PackError.
    """
    launchers = dict(launchers)
    windows = launchers.pop(Target.X86_64_WINDOWS, None)
    image = relocate(windows.read_bytes(), PROLOGUE_SIZE) if windows else PeImage(b"", b"")
    paths = [*launchers.values()]
    paths += [file.path for files in engines.values() for file in files]
    total = sum(path.stat().st_size for path in paths)
    with ui.task(f"pack {out.name}", total, Unit.BYTES) as task, atomic_path(out, 0o755) as made:
        with made.open("r+b", buffering=0) as stream:
            stream.seek(PROLOGUE_SIZE + len(image.body))
            writer = ZipWriter(stream, progress=task.advance)
            written, places = _write_launchers(writer, launchers)
            start = render_prologue(version, places, image.headers) + image.body
            write_at(stream.fileno(), start, 0)
            for target in (target for target in Target if target in engines):
                written += _write_engine(writer, version, tag, target, engines[target])
            written += [writer.add_bytes(name, data) for name, data in meta]
            if manifest is not None:
                facts = {**manifest, "start": start_facts(start)}
                data = inner_manifest(facts, version, tag, packed_entries(written))
                written.append(writer.add_bytes(MANIFEST_NAME, data))
            size = writer.finish()
        check_written(made)
        digest = sha256_file(made)
    return PackedFile(out, digest, size, packed_entries(written))


def start_facts(start: bytes, kind: str | None = None) -> dict[str, object]:
    """What a manifest says about the bytes before the first entry; ``kind`` if not ours."""
    facts: dict[str, object] = {"size": len(start), "sha256": sha256_bytes(start)}
    return {**facts, "kind": kind} if kind else facts


@contextlib.contextmanager
def mapped(stream: BinaryIO) -> Iterator[mmap.mmap]:
    """The bytes of an open file, mapped. Raises PackError ``zip-no-end-record`` if it is empty."""
    if os.fstat(stream.fileno()).st_size == 0:
        raise PackError("zip-no-end-record", "the file is empty")
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def _write_launchers(
    writer: ZipWriter, launchers: Mapping[Target, Path]
) -> tuple[list[Written], dict[Target, LauncherPlace]]:
    written, places = [], {}
    for target in (target for target in Target if target in launchers):
        one = writer.add_file(f"bin/launch-{target.value}", launchers[target], mode=0o755)
        places[target] = LauncherPlace(one.entry.data_offset, one.entry.size, one.sha256)
        written.append(one)
    return written, places


def _write_engine(
    writer: ZipWriter, version: str, tag: str, target: Target, files: Sequence[EngineFile]
) -> list[Written]:
    prefix = f"engine/{target.value}/"
    written = [
        writer.add_packed(prefix + file.name, file.path, mode=file.mode, align=ALIGNMENT)
        for file in files
    ]
    rows = [
        IndexFile(file.name, one.sha256, one.entry.size, file.mode)
        for file, one in zip(files, written, strict=True)
    ]
    return [*written, writer.add_bytes(prefix + "INDEX", render_index(version, tag, rows))]


def packed_entries(written: Sequence[Written]) -> tuple[PackedEntry, ...]:
    """The entries of ``written``, in the same order."""
    return tuple(
        PackedEntry(
            w.entry.name,
            w.sha256,
            w.entry.size,
            w.entry.data_offset,
            w.entry.mode,
            w.entry.packed_size,
            w.packed_sha256,
        )
        for w in written
    )


def check_written(path: Path) -> ZipLayout:
    """Read back what was written: the reader must accept all that the writer makes."""
    with path.open("rb") as stream, mapped(stream) as data:
        return read_zip(data)
