"""The ABI digest that an engine has compiled in (patch 0121), and whether it is the stated one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from opencoti_build.build.engine import program_name
from opencoti_build.pack.zipend import Source
from opencoti_build.pack.zipreader import ZipLayout, read_entry
from opencoti_build.targets import Target
from opencoti_build.verify.report import Finding, failed, passed, skipped

_LINE = re.compile(rb"opencoti-abi-([0-9a-f]{64})(?![0-9a-f])")


def program_digest(body: bytes) -> str | None:
    """The digest in an engine program; None when there is none, or more than one."""
    found = set(_LINE.findall(body))
    return found.pop().decode("ascii") if len(found) == 1 else None


def engine_digests(data: Source, layout: ZipLayout) -> dict[Target, str | None]:
    """The digest of each engine in a file."""
    found: dict[Target, str | None] = {}
    for target in Target:
        entry = layout.find(f"engine/{target.value}/{program_name(target)}")
        if entry is not None:
            found[target] = program_digest(read_entry(data, entry))
    return found


def check_digest(target: Target, body: bytes, manifest: Mapping[str, Any] | None) -> Finding:
    """The digest of one engine program against the release's ``manifest``."""
    check, digest = f"abi {target.value}", program_digest(body)
    targets = manifest.get("targets") if manifest else None
    row = targets.get(target.value) if isinstance(targets, Mapping) else None
    stated = row.get("abi_digest") if isinstance(row, Mapping) else None
    if digest is None and stated is None:
        return skipped(check, "abi-digest-absent", "the engine has no ABI digest")
    if digest is None:
        return failed(check, "abi-digest-missing", "the engine has no ABI digest", expected=stated)
    if stated is None:
        return skipped(check, "abi-digest-unstated", digest)
    if digest != stated:
        return failed(check, "abi-digest-mismatch", "the engine's ABI digest is not the stated one",
                      expected=stated, actual=digest)  # fmt: skip
    return passed(check, digest)
