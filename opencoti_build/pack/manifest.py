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
    @property
    def packed_size(self) -> int | None: ...
    @property
    def packed_sha256(self) -> str | None: ...


def entry_row(entry: Listed) -> dict[str, object]:
    """How manifests list ``entry``. The sums of its stream are there only if it is compressed."""
    row: dict[str, object] = {
        "name": entry.name, "sha256": entry.sha256, "size": entry.size, "mode": f"{entry.mode:o}",
    }  # fmt: skip
    if entry.packed_size is not None:
        row |= {"packed_size": entry.packed_size, "packed_sha256": entry.packed_sha256}
    return row


def inner_manifest(
    facts: Mapping[str, object], version: str, tag: str, entries: Sequence[Listed]
) -> bytes:
    """The text of ``META/manifest.json`` for a file with ``entries``."""
    rows = [entry_row(entry) for entry in entries]
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
