"""Checks against the release's MANIFEST.json, which lists each artifact and its entries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opencoti_build.errors import UsageError
from opencoti_build.pack.zipreader import ZipLayout
from opencoti_build.verify.report import Finding, failed, passed
from opencoti_build.verify.scan import Scan

NAME = "MANIFEST.json"
KEYS = ("sha256", "size", "offset", "packed_size", "packed_sha256")


def load_outer(path: Path) -> dict[str, Any]:
    """The release manifest at ``path``. Raises UsageError ``bad-manifest``."""
    try:
        manifest = json.loads(path.read_text("utf-8"))
        good = isinstance(manifest, dict) and all(
            isinstance(row["file"], str) and isinstance(row["sha256"], str)
            for row in manifest["artifacts"]
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError("bad-manifest", f"{path} is not a release manifest: {error}") from error
    if not good:
        raise UsageError("bad-manifest", f"{path} is not a release manifest")
    return dict(manifest)


def find_artifact(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """What ``manifest`` says about the file called ``name``."""
    rows: list[Mapping[str, Any]] = list(manifest.get("artifacts") or ())
    return next((row for row in rows if row["file"] == name), None)


def check_outer(
    manifest: Mapping[str, Any], name: str, layout: ZipLayout | None, scan: Scan
) -> Iterator[Finding]:
    """Whether the file and its entries are those of the release."""
    row = find_artifact(manifest, name)
    yield check_bytes(row, name, scan)
    if row is not None and layout is not None and "entries" in row:
        yield _entries(row["entries"], layout, scan)


def check_bytes(row: Mapping[str, Any] | None, name: str, scan: Scan) -> Finding:
    """Whether the file called ``name`` is the one that ``row`` of the release lists."""
    if row is None:
        return failed("release", "release-not-listed", f"{NAME} does not list {name}")
    size = row.get("size", scan.size)
    if size != scan.size:
        return failed("release", "release-size-mismatch", "the file has another size than released",
                      expected=size, actual=scan.size)  # fmt: skip
    if row["sha256"] != scan.sha256:
        return failed("release", "release-sha256-mismatch", "the file is not the released one",
                      expected=row["sha256"], actual=scan.sha256)  # fmt: skip
    return passed("release", scan.sha256)


def _entries(rows: list[Mapping[str, Any]], layout: ZipLayout, scan: Scan) -> Finding:
    actual = {
        e.name: (
            scan.entries[e.name][0], e.size, e.data_offset,
            e.packed_size, scan.packed.get(e.name),
        )
        for e in layout.entries
    }  # fmt: skip
    listed = {row.get("name"): row for row in rows}
    for name in sorted({*actual, *map(str, listed)}):
        row = listed.get(name)
        if row is None or name not in actual:
            return failed("release entries", "release-entry-set", "the entries are not those "
                          "of the release", name=name)  # fmt: skip
        for key, value in zip(KEYS, actual[name], strict=True):
            if row.get(key, value) != value:
                return failed("release entries", "release-entry-mismatch",
                              "an entry is not the released one", name=name, field=key,
                              expected=row[key], actual=value)  # fmt: skip
    return passed("release entries", f"{len(actual)} entries")
