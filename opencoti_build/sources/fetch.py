"""Makes a pin present: tries mirrors, then the pin's transports in order, and checks the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from opencoti_build.digest import content_key
from opencoti_build.errors import BugError, SourceError
from opencoti_build.sources import join
from opencoti_build.sources.archives import read_tree
from opencoti_build.sources.context import FetchContext, disk_errors
from opencoti_build.sources.download import offline_missing
from opencoti_build.sources.pins import (
    ArchiveTransport,
    GitTransport,
    Pin,
    PypiTransport,
    Transport,
)
from opencoti_build.sources.store import ObjectStore
from opencoti_build.sources.transports import git, mirror, pypi, url
from opencoti_build.sources.tree import Files, ImportFile
from opencoti_build.ui import Task

__all__ = ["FetchContext", "ensure_file", "ensure_tree", "find_present"]

Result = TypeVar("Result")
_FINAL = ("disk-full", "cache-not-writable")  # another transport cannot help
_QUIET = ("offline-missing", "mirror-unusable")  # expected on the way to the next one


def find_present(pin: Pin, context: FetchContext) -> str | Path | None:
    """The pin's tree id or file when the cache holds it (no hashing), else None."""
    if pin.is_file:
        path = context.blob(str(pin.sha256), str(pin.file))
        return path if path.is_file() and path.stat().st_size == pin.size else None
    store = ObjectStore(context.cache.objects)
    if pin.tree:
        return pin.tree if store.has_tree(pin.tree) else None
    return store.remembered(_lock_key(pin)) if pin.locked else None


def ensure_tree(pin: Pin, context: FetchContext) -> str:
    """Bring a source pin's tree into the object store and return its id.

    Raises SourceError: the reason of the only transport, or ``no-transport-worked``,
    ``offline-missing``, ``pin-not-locked``, ``disk-full``, ``cache-not-writable``.
    """
    if pin.is_file:
        raise BugError(f"{pin.name} is not a source")
    _require_lock(pin)
    if isinstance(tree := find_present(pin, context), str):
        return tree
    with disk_errors(context.cache.root):
        with context.locked(f"tree-{_lock_key(pin)}", pin.name):
            if isinstance(tree := find_present(pin, context), str):
                return tree  # another process brought it
            attempts: list[tuple[str, Callable[[], str]]] = []
            for folder in context.mirrors:
                open_local = partial(_from_mirror, pin, folder)
                attempts.append((f"mirror {folder}", partial(_import, pin, open_local, context)))
            for way in pin.transports:
                open_way = partial(_from_transport, way, context)
                attempts.append((way.label, partial(_import, pin, open_way, context)))
            tree = _try_each(pin, attempts, context)
            if pin.tree is None:
                ObjectStore(context.cache.objects).remember(_lock_key(pin), tree)
                context.ui.warn(f'{pin.name}: unverified tree; add tree = "{tree}" to its pin')
            return tree


def ensure_file(pin: Pin, context: FetchContext) -> Path:
    """Bring the file of a model or toolchain into the cache; its path. Raises as ``ensure_tree``.

    The file is verified once, when it is stored.
    """
    if not pin.is_file:
        raise BugError(f"{pin.name} is not a file")
    if isinstance(path := find_present(pin, context), Path):
        return path
    with disk_errors(context.cache.root):
        context.cache.downloads.mkdir(parents=True, exist_ok=True)
        with context.locked(f"model-{pin.sha256}", pin.name):
            if isinstance(path := find_present(pin, context), Path):
                return path
            attempts: list[tuple[str, Callable[[], Path]]] = []
            for folder in context.mirrors:
                local = partial(join.from_mirror, pin, folder, context)
                attempts.append((f"mirror {folder}", local))
            for way in pin.transports:
                attempts.append((way.label, partial(join.from_transport, pin, way, context)))
            return _try_each(pin, attempts, context)


def _try_each(
    pin: Pin, attempts: list[tuple[str, Callable[[], Result]]], context: FetchContext
) -> Result:
    errors: list[tuple[str, SourceError]] = []
    for label, attempt in attempts:
        try:
            with disk_errors(context.cache.root):
                return attempt()
        except SourceError as error:
            if error.reason in _FINAL:
                raise
            errors.append((label, error))
            if len(errors) < len(attempts) and error.reason not in _QUIET:
                context.ui.warn(f"{label}: {error.message}; trying the next way")
    if len(errors) == 1:
        raise errors[0][1]
    listed = {label: f"{error.message} [{error.reason}]" for label, error in errors}
    if context.offline and any(error.reason == "offline-missing" for _, error in errors):
        names = [a.filename for a in pin.transports[0].archives] or [pin.transports[0].label]
        missing = offline_missing(names)
        missing.context.update(listed)
        raise missing
    raise SourceError(
        "no-transport-worked",
        f"no way to get {pin.name} worked",
        hint="each line above says why; --mirror takes the files from a local folder",
        context=listed,
    )


def _import(pin: Pin, open_files: Callable[[], Files], context: FetchContext) -> str:
    files = open_files()
    with context.ui.task(f"import {pin.name}") as task, closing(files):
        counted = _count(files, task)
        return ObjectStore(context.cache.objects).import_files(counted, expected=pin.tree)


def _count(files: Files, task: Task) -> Iterator[ImportFile]:
    for file in files:
        yield file
        task.advance()


def _from_mirror(pin: Pin, folder: Path) -> Files:
    for way in pin.transports:
        if isinstance(way, (PypiTransport, ArchiveTransport)) and (
            path := mirror.find_archive(folder, way.archive)
        ):
            return read_tree(path, way.member)
    return mirror.read_any(folder, pin)


def _from_transport(way: Transport, context: FetchContext) -> Files:
    if isinstance(way, GitTransport):
        return git.read_tree(way, context)
    if isinstance(way, PypiTransport):
        return read_tree(pypi.fetch(way, context), way.member)
    if isinstance(way, ArchiveTransport):
        return read_tree(url.fetch(way, context), way.member)
    raise BugError(f"{way.kind.value} gives no tree")


def _require_lock(pin: Pin) -> None:
    if not pin.locked:
        for way in pin.transports:
            if isinstance(way, GitTransport):
                raise git.not_locked(way)


def _lock_key(pin: Pin) -> str:
    """What identifies the pin's files: the tree id, or what locks its transports."""
    if pin.tree:
        return pin.tree
    locks = [
        [way.url, way.commit, way.submodules]
        if isinstance(way, GitTransport)
        else [archive.sha256 for archive in way.archives] + [getattr(way, "member", None)]
        for way in pin.transports
    ]
    return content_key(locks)
