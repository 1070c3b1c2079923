"""Checks of what a file says about itself: its manifest, its INDEX files, its patches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opencoti_build.errors import PackError
from opencoti_build.pack.host import ARGS_NAME, MODEL_SUFFIX
from opencoti_build.pack.index import Index, parse_index
from opencoti_build.pack.manifest import FORMAT, MANIFEST_NAME, listed_entries
from opencoti_build.pack.variant import VARIANT_NAME
from opencoti_build.pack.zipend import Source
from opencoti_build.pack.zipreader import ZipLayout
from opencoti_build.targets import FACTS, Target
from opencoti_build.verify.report import Finding, failed, from_error, passed
from opencoti_build.verify.scan import Scan

PATCH_PREFIX = "META/patches/"
MAX_SMALL = 16 << 20


def read_manifest(data: Source, layout: ZipLayout) -> tuple[Mapping[str, Any] | None, Finding]:
    """The manifest inside the file, and whether it can be used."""
    entry = layout.find(MANIFEST_NAME)
    if entry is None or entry.size > MAX_SMALL:
        return None, failed("manifest", "manifest-missing", f"the file has no {MANIFEST_NAME}")
    try:
        manifest = json.loads(data[entry.data_offset : entry.end].decode("utf-8"))
        good = (
            isinstance(manifest, dict)
            and manifest.get("format") == FORMAT
            and isinstance(manifest.get("version"), str)
            and isinstance(manifest.get("tag"), str)
        )
        rows = list(listed_entries(manifest)) if good else []
        good = good and all(isinstance(row["name"], str) and row["sha256"] for row in rows)
        good = good and all(isinstance(row["file"], str) for row in manifest.get("patches") or ())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        good = False
    if not good:
        return None, failed("manifest", "manifest-malformed", f"{MANIFEST_NAME} is not understood")
    return manifest, passed("manifest", f"{manifest['version']}-{manifest['tag']}")


def check_entries(
    manifest: Mapping[str, Any],
    layout: ZipLayout,
    scan: Scan,
    variant: Sequence[Mapping[str, Any]] = (),
) -> Finding:
    """Whether each entry is listed with its sha256 and size, and each listed one is there.

    The sha256 of a compressed entry's stream must be listed too: several streams have the same
    content.
    ``variant`` are the rows that ``META/variant.json`` adds.
    """
    listed: dict[str, Mapping[str, Any]]
    listed = {row["name"]: row for row in listed_entries(manifest)}
    for own in variant:
        listed.setdefault(own["name"], own)
    for patch in manifest.get("patches") or ():
        listed.setdefault(PATCH_PREFIX + patch["file"], patch)
    bundled: list[str] = []
    for entry in layout.entries:
        row = listed.pop(entry.name, None)
        if row is None:
            if entry.name == ARGS_NAME or entry.name.lower().endswith(MODEL_SUFFIX):
                bundled.append(entry.name)
            elif entry.name not in (MANIFEST_NAME, VARIANT_NAME):
                return failed("entries", "entry-not-listed", "an entry is not in the manifest",
                              name=entry.name)  # fmt: skip
            continue
        facts = {
            "sha256": scan.entries[entry.name][0],
            "size": entry.size,
            "mode": f"{entry.mode:o}",
        }
        packed = (entry.packed_size, scan.packed.get(entry.name))
        if packed != (row.get("packed_size"), row.get("packed_sha256")):
            return failed("entries", "entry-packed-mismatch",
                          "an entry's stream is not what the manifest says", name=entry.name,
                          expected=row.get("packed_sha256"), actual=packed[1])  # fmt: skip
        for key, actual in facts.items():
            if key in row and _plain(key, row[key]) != actual:
                return failed("entries", f"entry-{key}-mismatch",
                              "an entry is not what the manifest says", name=entry.name,
                              expected=row[key], actual=actual)  # fmt: skip
    if listed:
        return failed("entries", "entry-missing", "the manifest lists an entry that is not there",
                      name=next(iter(listed)))  # fmt: skip
    note = f"; not in the manifest, crc only: {', '.join(bundled)}" if bundled else ""
    return passed("entries", f"{len(layout.entries)} entries{note}")


def _plain(key: str, value: object) -> object:
    """A manifest's value in one form: modes may be numbers, or octal text with zeros before."""
    if key != "mode":
        return value
    return f"{value:o}" if isinstance(value, int) else str(value).lstrip("0")


def check_index(
    data: Source, layout: ZipLayout, scan: Scan, target: Target, manifest: Mapping[str, Any] | None
) -> tuple[Index | None, Finding]:
    """Whether a target's INDEX names exactly the engine files that are there, as they are."""
    prefix, check = f"engine/{target.value}/", f"index {target.value}"
    entry = layout.find(prefix + "INDEX")
    if entry is None or entry.size > MAX_SMALL:
        return None, failed(check, "index-missing", "an engine has no INDEX", target=target.value)
    try:
        index = parse_index(data[entry.data_offset : entry.end])
    except PackError as error:
        return None, from_error(check, error)
    there = {e.name: e for e in layout.entries if e.name.startswith(prefix) and e != entry}
    for file in index.files:
        found = there.pop(prefix + file.name, None)
        if found is None:
            return None, failed(check, "index-file-missing", "INDEX names a file that is not there",
                                name=file.name)  # fmt: skip
        if (file.sha256, file.size, file.mode) != (
            scan.entries[found.name][0], found.size, found.mode
        ):  # fmt: skip
            return None, failed(check, "index-file-mismatch", "a file is not what INDEX says",
                                name=file.name)  # fmt: skip
    if there:
        return None, failed(check, "index-file-unlisted", "INDEX does not name a file",
                            name=next(iter(there)))  # fmt: skip
    if manifest and (index.version, index.tag) != (manifest["version"], manifest["tag"]):
        return None, failed(check, "index-version-mismatch", "INDEX and manifest name two versions",
                            index=f"{index.version}-{index.tag}")  # fmt: skip
    return index, passed(check, f"{len(index.files)} files, id {index.content_id}")


def check_patches(manifest: Mapping[str, Any], layout: ZipLayout, scan: Scan) -> Finding:
    """Whether the patches inside are exactly those that the manifest lists."""
    inside = {
        entry.name.removeprefix(PATCH_PREFIX): scan.entries[entry.name][0]
        for entry in layout.entries
        if entry.name.startswith(PATCH_PREFIX)
    }
    listed = {row["file"]: row.get("sha256") for row in manifest.get("patches") or ()}
    wrong = sorted(name for name in {*inside, *listed} if inside.get(name) != listed.get(name))
    if wrong:
        return failed("patches", "patch-list-mismatch", "the patches are not those of the manifest",
                      files=", ".join(wrong))  # fmt: skip
    return passed("patches", f"{len(inside)} patches")


def engine_targets(layout: ZipLayout) -> Iterator[Target]:
    """The targets that have something under ``engine/``."""
    for target in Target:
        if any(entry.name.startswith(f"engine/{target.value}/") for entry in layout.entries):
            yield target


def check_places(layout: ZipLayout, windows_image: bool) -> Finding:
    """Whether all entries are where a single file has them, and each engine has its launcher.

    ``windows_image``: the file starts on Windows, without a launcher entry.
    """
    roots = {f"engine/{target.value}" for target in Target}
    launchers = {f"bin/launch-{target.value}" for target in Target if FACTS[target].uname}
    for entry in layout.entries:
        parts = entry.name.split("/")
        good = (
            (len(parts) == 1 and (entry.name == ARGS_NAME or "." in entry.name[1:]))
            or parts[0] == "META"
            or (len(parts) == 3 and "/".join(parts[:2]) in roots)
            or entry.name in launchers
        )
        if not good:
            return failed("places", "entry-misplaced", "an entry is in no known place",
                          name=entry.name)  # fmt: skip
    for target in engine_targets(layout):
        launcher = layout.find(f"bin/launch-{target.value}") is not None
        if not (windows_image if target is Target.X86_64_WINDOWS else launcher):
            return failed("places", "launcher-missing", "an engine has no launcher",
                          target=target.value)  # fmt: skip
    return passed("places", ", ".join(target.value for target in engine_targets(layout)))
