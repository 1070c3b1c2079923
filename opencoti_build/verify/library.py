"""Verifies a GPU library that is published beside the single files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opencoti_build.pack.zipend import Source
from opencoti_build.targets import Target
from opencoti_build.verify.gpu import check_library
from opencoti_build.verify.report import Finding

_MAGIC = b"\x7fELF"


def is_library(data: Source) -> bool:
    """Whether a file without a zip end record may be a Linux library."""
    return bytes(data[: len(_MAGIC)]) == _MAGIC


def release_folder(file: Path) -> Path:
    """Where the release of ``file`` has its manifest: a library lies in dso/<version>/ below it."""
    folder = file.absolute().parent
    return folder.parents[1] if folder.parent.name == "dso" else folder


def find_library(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """What ``manifest`` says about the published library called ``name`` (without its folder)."""
    for artifact in manifest.get("artifacts") or ():
        row: Mapping[str, Any] | None = artifact.get("gpu_library")
        if row and Path(str(row.get("file"))).name == name:
            return row
    return None


def check_published(
    body: bytes, manifest: Mapping[str, Any] | None, name: str
) -> Iterator[Finding]:
    """The form of a library, and its code and ABI digest against the release's."""
    row = find_library(manifest, name) if manifest else None
    targets = (manifest or {}).get("targets") or {}
    engines = {
        target: targets[target.value].get("abi_digest")
        for target in Target
        if row is not None and target.value in targets
    }
    yield from check_library(body, [row] if row else [], engines)
