"""Builders of pins and fetch contexts."""

from __future__ import annotations

import hashlib
from pathlib import Path

from opencoti_build.paths import Cache
from opencoti_build.sources.context import Retry
from opencoti_build.sources.fetch import FetchContext
from opencoti_build.sources.pins import Archive, ArchiveTransport, Pin, PinKind, PypiTransport
from opencoti_build.ui import Ui

FAST = Retry(attempts=3, first_wait=0.01, longest_wait=0.02, timeout=5)
# What git says for tests.lib.source_archives.TREE (run.sh executable).
TREE_ID = "2ed1cce3ab7fc2dfc5f5bad0b819f0e894d13aa1"


def archive(filename: str, data: bytes) -> Archive:
    return Archive(filename, hashlib.sha256(data).hexdigest(), len(data))


def context(
    root: Path, *, offline: bool = False, mirrors: tuple[Path, ...] = (), quiet: bool = True
) -> FetchContext:
    return FetchContext(Cache(root), Ui(quiet=quiet, bars=False), offline, mirrors, FAST)


def pypi(package: str, filename: str, data: bytes, member: str | None) -> PypiTransport:
    return PypiTransport(package, "1.0", archive(filename, data), member)


def url(address: str, data: bytes, member: str | None = "pkg-1.0") -> ArchiveTransport:
    return ArchiveTransport(address, archive(address.rpartition("/")[2], data), member)


def source(*transports: object, tree: str | None = TREE_ID) -> Pin:
    return Pin("src", PinKind.SOURCE, "1.0", "MIT", tuple(transports), tree=tree)  # type: ignore[arg-type]


def model(data: bytes, *transports: object, file: str = "m.gguf") -> Pin:
    return Pin(
        "mod",
        PinKind.MODEL,
        "1",
        "MIT",
        tuple(transports),  # type: ignore[arg-type]
        file=file,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
    )
