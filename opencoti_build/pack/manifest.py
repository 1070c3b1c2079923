"""``META/manifest.json``: what a single file says about itself.

The caller's facts (base, patches, tree) plus what packing knows: every entry with sha256 and
size, grouped as ``launchers`` and ``targets``. The manifest lists all entries but itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

MANIFEST_NAME = "META/manifest.json"
FORMAT = 1


class Listed(Protocol):
    """What a manifest says about an entry."""

    @property
    def name(self) -> str: ...
    @property
    def sha256(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def mode(self) -> int: ...


def inner_manifest(
    facts: Mapping[str, object], version: str, tag: str, entries: Sequence[Listed]
) -> bytes:
    """The text of ``META/manifest.json`` for a file with ``entries``."""
    rows = [
        {"name": e.name, "sha256": e.sha256, "size": e.size, "mode": f"{e.mode:o}"} for e in entries
    ]
    targets: dict[str, dict[str, list[dict[str, object]]]] = {}
    launchers: dict[str, dict[str, object]] = {}
    for row in rows:
        parts = str(row["name"]).split("/")
        if parts[0] == "engine":
            targets.setdefault(parts[1], {"files": []})["files"].append(row)
        elif parts[0] == "bin":
            launchers[parts[1].removeprefix("launch-")] = row
    grouped = {str(row["name"]) for group in targets.values() for row in group["files"]}
    grouped |= {str(row["name"]) for row in launchers.values()}
    data: dict[str, object] = {
        **facts,
        "format": FORMAT, "version": version, "tag": tag,
        "targets": targets, "launchers": launchers,
        "files": [row for row in rows if row["name"] not in grouped],
    }  # fmt: skip
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode("ascii")


def listed_entries(manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All ``{name, sha256, size}`` rows of an inner manifest: files, targets, launchers."""
    yield from manifest.get("files") or ()
    for group in (manifest.get("targets") or {}).values():
        yield from group.get("files") or ()
    launchers = manifest.get("launchers") or {}
    yield from launchers.values() if isinstance(launchers, Mapping) else launchers
