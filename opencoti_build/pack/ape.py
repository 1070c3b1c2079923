"""A host that another build made: an Actually Portable Executable with a zip part of its own.

The program is kept byte for byte. Its zip entries are written again in the one form that our
reader takes (stored, no times), so that appending, variants and ``verify`` are the same code for
both kinds of host. Their places change, which the program does not notice: it finds them through
the central directory.
"""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from opencoti_build.digest import sha256_file
from opencoti_build.errors import PackError
from opencoti_build.pack.host import PackedFile, check_written, packed_entries, start_facts
from opencoti_build.pack.manifest import MANIFEST_NAME, inner_manifest
from opencoti_build.pack.zipformat import ALIGNMENT
from opencoti_build.pack.zipwriter import ZipWriter, write_at
from opencoti_build.paths import atomic_path
from opencoti_build.ui import Ui, Unit

KIND = "ape"
"""What the manifests call such a host."""
MAGICS = (b"MZqFpD='", b"jartsr='")
"""The second kind does not start on Windows."""
_MAPPED = (".so", ".dll", ".dylib", ".gguf")
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def pack_ape(
    *,
    program: Path,
    version: str,
    tag: str,
    meta: Sequence[tuple[str, bytes]],
    manifest: Mapping[str, object],
    out: Path,
    ui: Ui,
) -> PackedFile:
    """Write the single file ``out`` (mode 0755), whole or not at all: ``program`` with META.

    ``META/manifest.json`` is written last and lists all entries, upstream's own too, and the
    bytes before the first one. Raises PackError ``pack-not-ape``, ``pack-bad-ape`` or a ``zip-…``
    reason.
    """
    with ui.task(f"pack {out.name}", program.stat().st_size, Unit.BYTES) as task:
        image, entries = _read(program)
        with atomic_path(out, 0o755) as made:
            with made.open("r+b", buffering=0) as stream:
                write_at(stream.fileno(), image, 0)
                task.advance(len(image))
                stream.seek(len(image))
                writer = ZipWriter(stream, progress=task.advance)
                written = [
                    writer.add_bytes(name, data, mode=mode, align=_alignment(name))
                    for name, mode, data in entries
                ]
                written += [writer.add_bytes(name, data) for name, data in meta]
                facts = {**manifest, "start": start_facts(image, KIND)}
                text = inner_manifest(facts, version, tag, packed_entries(written))
                written.append(writer.add_bytes(MANIFEST_NAME, text))
                size = writer.finish()
            check_written(made)
            digest = sha256_file(made)
    return PackedFile(out, digest, size, packed_entries(written))


def _read(program: Path) -> tuple[bytes, list[tuple[str, int, bytes]]]:
    """The bytes before the zip part, and the entries as (name, mode, data), in file order."""
    with program.open("rb") as stream:
        if stream.read(len(MAGICS[0])) not in MAGICS:
            raise PackError("pack-not-ape", f"{program.name} is no portable executable (APE)")
        try:
            with zipfile.ZipFile(stream) as archive:
                infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
                entries = list(_entries(archive, infos))
                end = infos[0].header_offset if infos else archive.start_dir
        except _DAMAGED as error:
            raise _bad(program.name, str(error)) from error
        stream.seek(0)
        return stream.read(end), entries


def _entries(
    archive: zipfile.ZipFile, infos: Sequence[zipfile.ZipInfo]
) -> Iterator[tuple[str, int, bytes]]:
    for info in infos:
        bits = info.external_attr >> 16
        if info.is_dir():
            continue  # a name with a folder in it says the same
        if stat.S_IFMT(bits) not in (0, stat.S_IFREG):
            raise _bad(str(archive.filename), f"{info.filename!r} is neither file nor folder")
        yield info.filename, 0o755 if bits & 0o111 else 0o644, archive.read(info)


def _alignment(name: str) -> int:
    return ALIGNMENT if name.lower().endswith(_MAPPED) else 1


def _bad(name: str, why: str) -> PackError:
    return PackError("pack-bad-ape", f"the zip part of {name} cannot be read: {why}")
