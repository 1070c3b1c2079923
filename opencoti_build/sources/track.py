"""A newer upstream for a pin: looked up, fetched and identified, and never taken by itself."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from opencoti_build.errors import SourceError
from opencoti_build.sources.archives import copy_member, read_tree
from opencoti_build.sources.context import FetchContext
from opencoti_build.sources.pins import Archive, GitTransport, Pin, PypiTransport, Transport
from opencoti_build.sources.store import ObjectStore
from opencoti_build.sources.transports import pypi

if TYPE_CHECKING:
    from pypi_simple import DistributionPackage

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Tracked:
    """A pin and its newest form; both are the same when there is nothing newer.

    ``commit`` is the upstream commit that the new archive says it holds, or None.
    """

    old: Pin
    new: Pin
    commit: str | None

    @property
    def moved(self) -> bool:
        return self.old.tree != self.new.tree


def track(pin: Pin, context: FetchContext) -> Tracked:
    """Find the newest release of the package of ``pin``, and bring its tree into the store.

    Raises SourceError ``not-tracked`` (no PyPI transport), ``offline-missing``, ``index-failed``,
    ``not-on-index``, ``index-no-size``, and what a fetch raises.
    """
    way = next((way for way in pin.transports if isinstance(way, PypiTransport)), None)
    if way is None or way.member is None:
        raise SourceError("not-tracked", f"{pin.name} has no PyPI package to look for releases of")
    if context.offline:
        raise SourceError(
            "offline-missing",
            "looking for a newer release needs the network",
            hint="run it without --offline",
            context={"missing": f"the list of {way.package}"},
        )
    newest = _newest(way, context)
    if newest.version == way.version:
        return Tracked(pin, pin, None)
    path = pypi.fetch(newest, context)
    with context.ui.task(f"import {newest.archive.filename}"):
        store = ObjectStore(context.cache.objects)
        tree = store.import_files(read_tree(path, newest.member))
    commit = _commit(newest, context)
    transports: list[Transport] = [newest]
    for other in pin.transports:
        if isinstance(other, GitTransport) and commit:
            transports.append(replace(other, ref=None, commit=commit))
    version = commit[:9] if commit else newest.version
    new = replace(pin, version=version, tree=tree, transports=tuple(transports))
    return Tracked(pin, new, commit)


def render_pin(pin: Pin, comment: str) -> str:
    """The TOML of a source pin with PyPI and git transports, with ``comment`` on top."""
    lines = [f"# {line}".rstrip() for line in comment.strip().split("\n")]
    lines += ["format = 1", f'name = "{pin.name}"', f'kind = "{pin.kind.value}"']
    lines += [f'version = "{pin.version}"', f'license = "{pin.license}"']
    if pin.tree:
        lines.append(f'tree = "{pin.tree}"')
    for way in pin.transports:
        lines += ["", "[[transports]]", f'kind = "{way.kind.value}"']
        if isinstance(way, PypiTransport):
            lines += [f'package = "{way.package}"', f'version = "{way.version}"']
            lines += [f'filename = "{way.archive.filename}"', f'sha256 = "{way.archive.sha256}"']
            lines += [f"size = {way.archive.size}", f'member = "{way.member}"']
        elif isinstance(way, GitTransport):
            lines.append(f'url = "{way.url}"')
            lines += [f'ref = "{way.ref}"'] if way.ref else []
            lines += [f'commit = "{way.commit}"'] if way.commit else []
            lines += ["submodules = true"] if way.submodules else []
    return "\n".join(lines) + "\n"


def _newest(way: PypiTransport, context: FetchContext) -> PypiTransport:
    """The transport with the newest sdist that is neither yanked nor a pre-release."""
    from packaging.version import InvalidVersion, Version

    def version_of(package: DistributionPackage) -> Version:
        try:
            return Version(package.version or "")
        except InvalidVersion:
            return Version("0.dev0")

    found = [
        package
        for package in pypi.list_files(way.package, context)
        if package.package_type == "sdist"
        and not package.is_yanked
        and not version_of(package).is_prerelease
        and package.digests.get("sha256")
    ]
    if not found:
        raise SourceError("not-on-index", f"the index lists no release of {way.package}")
    best = max(found, key=version_of)
    if best.version == way.version:
        return way
    if not best.size:
        raise SourceError(
            "index-no-size",
            f"the index does not say how large {best.filename} is",
            hint="use an index with the JSON form of the simple API",
        )
    archive = Archive(best.filename, best.digests["sha256"], best.size)
    member = (way.member or "").replace(way.version, str(best.version))
    return PypiTransport(way.package, str(best.version), archive, member)


def _commit(way: PypiTransport, context: FetchContext) -> str | None:
    """The commit of the submodule that ``member`` is, as the sdist's own git folder tells it."""
    root, _, below = (way.member or "").partition("/")
    sink = io.BytesIO()
    path = context.blob(way.archive.sha256, way.archive.filename)
    try:
        copy_member(path, f"{root}/.git/modules/{below}/HEAD", sink, 200)
    except SourceError:
        return None
    text = sink.getvalue().decode("ascii", "replace").strip()
    return text if _COMMIT.fullmatch(text) else None
