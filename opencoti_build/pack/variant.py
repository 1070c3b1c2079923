"""Variants: the host with a GPU library behind its entries, or the host as it is.

Every variant begins with the bytes of the host up to the host's central directory; these bytes
are what "byte-identical host" means (``HostIdentity``). A variant's own entries follow:
the library, then ``META/variant.json``, which names the host and lists the library.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opencoti_build.digest import CHUNK, sha256_bytes, sha256_file
from opencoti_build.errors import PackError
from opencoti_build.pack.append import Addition, append_entries, layout_of
from opencoti_build.pack.host import PackedEntry, packed_entries
from opencoti_build.pack.limits import check_size
from opencoti_build.paths import atomic_path

VARIANT_NAME = "META/variant.json"
FORMAT = 1


@dataclass(frozen=True)
class HostIdentity:
    """The first ``size`` bytes of every variant and their sha256 (hex)."""

    size: int
    sha256: str


@dataclass(frozen=True)
class GpuLibrary:
    """A library to embed: its name in the file, what it has code for, and its ABI digest.

    ``licenses``: the texts that travel with it, as entries' names and bytes. ``toolchains``: rows
    of the manifest.
    """

    name: str
    path: Path
    architectures: tuple[str, ...]
    abi_digest: str
    licenses: tuple[tuple[str, bytes], ...] = ()
    toolchains: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True)
class Variant:
    """A finished variant; ``entries`` are its own, beside those of the host."""

    path: Path
    sha256: str
    size: int
    entries: tuple[PackedEntry, ...]


def host_identity(host: Path) -> HostIdentity:
    """The identity of the host: all bytes before its central directory. Raises PackError."""
    left = size = layout_of(host).directory_offset
    digest = hashlib.sha256()
    with host.open("rb", buffering=0) as stream:
        while left and (data := stream.read(min(CHUNK, left))):
            digest.update(data)
            left -= len(data)
    return HostIdentity(size, digest.hexdigest())


def make_variant(
    host: Path, out: Path, identity: HostIdentity, library: GpuLibrary | None
) -> Variant:
    """Write the variant ``out`` (mode 0755): the host, with ``library`` if given.

    Raises PackError ``pack-too-large-for-windows``, ``pack-has-variant``, or those of
    ``append_entries``.
    """
    if library is None:
        return _place(host, out)
    name, path = library.name, library.path
    if layout_of(host).find(VARIANT_NAME):
        raise PackError("pack-has-variant", f"{host.name} has a library of its own already")
    row = {
        "name": name,
        "sha256": sha256_file(path),
        "size": path.stat().st_size,
        "mode": "644",
        "architectures": list(library.architectures),
    }
    rows = [row, *(_license_row(*item) for item in library.licenses)]
    facts = {"format": FORMAT, "host": asdict(identity), "files": rows}
    text = (json.dumps(facts, indent=1, sort_keys=True) + "\n").encode("ascii")
    texts = [*library.licenses, (VARIANT_NAME, text)]
    additions = [Addition(name, path), *(Addition(*item) for item in texts)]
    size, written = append_entries(host, out, additions)
    if written[0].sha256 != row["sha256"]:
        raise PackError("zip-source-changed", f"{name} changed while it was packed")
    return Variant(out, sha256_file(out), size, packed_entries(written))


def _license_row(name: str, text: bytes) -> dict[str, object]:
    return {"name": name, "sha256": sha256_bytes(text), "size": len(text), "mode": "644"}


def variant_rows(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The entries that ``META/variant.json`` lists."""
    return list(manifest.get("files") or ())


def _place(host: Path, out: Path) -> Variant:
    """Copy the host to its published name unless the very same bytes are there."""
    size, digest = host.stat().st_size, sha256_file(host)
    check_size(out.name, size)
    if not (out.is_file() and out.stat().st_size == size and sha256_file(out) == digest):
        with atomic_path(out, 0o755) as temporary:
            shutil.copyfile(host, temporary)
    return Variant(out, digest, size, ())
