"""Puts a single file together: prologue, launchers, engines, extras, META; and adds models."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from opencoti_build.digest import sha256_file
from opencoti_build.errors import PackError
from opencoti_build.pack.header import PROLOGUE_SIZE, LauncherPlace, render_prologue
from opencoti_build.pack.index import IndexFile, render_index
from opencoti_build.pack.manifest import MANIFEST_NAME, inner_manifest
from opencoti_build.pack.zipformat import ALIGNMENT
from opencoti_build.pack.zipreader import ZipLayout, read_zip
from opencoti_build.pack.zipwriter import CHUNK, Written, ZipWriter
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
    """An entry of a packed file: sha256 in hex, size and data offset in bytes."""

    name: str
    sha256: str
    size: int
    offset: int
    mode: int


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
    extra: Sequence[tuple[str, Path]] = (),
    manifest: Mapping[str, object] | None = None,
    out: Path,
    ui: Ui,
) -> PackedFile:
    """Write the single file ``out`` (mode 0755), whole or not at all.

    The first file of each engine is the engine itself. ``extra`` are entries at the top, such as
    ``ggml-cuda.so``. With ``manifest`` (facts of the caller), ``META/manifest.json`` is written
    last and lists all entries; without it, ``meta`` brings its own. Raises PackError.
    """
    paths = [*launchers.values(), *(path for _, path in extra)]
    paths += [file.path for files in engines.values() for file in files]
    total = sum(path.stat().st_size for path in paths)
    with ui.task(f"pack {out.name}", total, Unit.BYTES) as task, atomic_path(out, 0o755) as made:
        with made.open("r+b", buffering=0) as stream:
            stream.seek(PROLOGUE_SIZE)
            writer = ZipWriter(stream, progress=task.advance)
            written, places = _write_launchers(writer, launchers)
            for target in (target for target in Target if target in engines):
                written += _write_engine(writer, version, tag, target, engines[target])
            written += [writer.add_file(name, path, align=ALIGNMENT) for name, path in extra]
            written += [writer.add_bytes(name, data) for name, data in meta]
            if manifest is not None:
                data = inner_manifest(manifest, version, tag, _packed(written))
                written.append(writer.add_bytes(MANIFEST_NAME, data))
            size = writer.finish()
            os.pwrite(stream.fileno(), render_prologue(version, places), 0)
        _check(made)
        digest = sha256_file(made)
    return PackedFile(out, digest, size, _packed(written))


def add_model(host: Path, model: Path, out: Path, args: str | None = None) -> PackedFile:
    """Copy the single file ``host`` to ``out`` with ``model`` and default arguments inside.

    ``args`` is the text of ``.args``: one argument a line, ``...`` for the user's own.
    Raises PackError ``pack-bad-model``, ``pack-has-model``, or a ``zip-…`` reason of the host.
    """
    if not model.name.lower().endswith(MODEL_SUFFIX):
        raise PackError("pack-bad-model", f"{model.name} is not a {MODEL_SUFFIX} file")
    with host.open("rb") as source, mapped(source) as data:
        layout = read_zip(data)
        held = [e.name for e in layout.entries if e.name.lower().endswith(MODEL_SUFFIX)]
        held += [ARGS_NAME] if layout.find(ARGS_NAME) else []
        if held:
            raise PackError("pack-has-model", f"{host.name} already holds {', '.join(held)}")
        with atomic_path(out, 0o755) as made:
            with made.open("r+b", buffering=0) as stream:
                _copy_start(source, stream, layout.directory_offset)
                stream.seek(layout.directory_offset)
                writer = ZipWriter(stream, layout.entries)
                written = [writer.add_file(model.name, model, align=ALIGNMENT)]
                if args is not None:
                    written.append(writer.add_bytes(ARGS_NAME, args.encode("utf-8")))
                size = writer.finish()
            _check(made)
            digest = sha256_file(made)
    return PackedFile(out, digest, size, _packed(written))


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
        writer.add_file(prefix + file.name, file.path, mode=file.mode, align=ALIGNMENT)
        for file in files
    ]
    rows = [
        IndexFile(file.name, one.sha256, one.entry.size, file.mode)
        for file, one in zip(files, written, strict=True)
    ]
    return [*written, writer.add_bytes(prefix + "INDEX", render_index(version, tag, rows))]


def _packed(written: Sequence[Written]) -> tuple[PackedEntry, ...]:
    return tuple(
        PackedEntry(w.entry.name, w.sha256, w.entry.size, w.entry.data_offset, w.entry.mode)
        for w in written
    )


def _check(path: Path) -> ZipLayout:
    """Read back what was written: the reader must accept all that the writer makes."""
    with path.open("rb") as stream, mapped(stream) as data:
        return read_zip(data)


def _copy_start(source: BinaryIO, target: BinaryIO, size: int) -> None:
    """Copy the first ``size`` bytes, inside the kernel where it can."""
    done = 0
    while done < size:
        step = min(CHUNK, size - done)
        try:
            count = os.copy_file_range(source.fileno(), target.fileno(), step, done, done)
        except OSError:
            count = os.pwrite(target.fileno(), os.pread(source.fileno(), step, done), done)
        if count == 0:
            raise PackError("zip-source-changed", "the file became shorter while it was copied")
        done += count
