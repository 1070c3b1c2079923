"""Checks that a variant begins with the byte-identical host (see ``pack.variant``)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opencoti_build.pack.limits import WINDOWS_LIMIT, WINDOWS_SUFFIX
from opencoti_build.pack.variant import FORMAT, VARIANT_NAME, variant_rows
from opencoti_build.pack.zipend import Source
from opencoti_build.pack.zipreader import ZipLayout
from opencoti_build.verify.outer import find_artifact
from opencoti_build.verify.report import Finding, failed, passed
from opencoti_build.verify.scan import Scan

MAX_SMALL = 1 << 20


@dataclass(frozen=True)
class VariantFacts:
    """What ``META/variant.json`` says: the host's size (bytes) and sha256, and its own rows."""

    size: int = 0
    sha256: str = ""
    rows: tuple[Mapping[str, Any], ...] = ()
    malformed: bool = False


NO_VARIANT = VariantFacts()
"""The file is a bare host, or a bundle made from one."""


def read_variant(data: Source, layout: ZipLayout) -> VariantFacts:
    """The variant facts inside a file; ``NO_VARIANT`` when it has none."""
    entry = layout.find(VARIANT_NAME)
    if entry is None:
        return NO_VARIANT
    try:
        facts = json.loads(data[entry.data_offset : min(entry.end, entry.data_offset + MAX_SMALL)])
        host, rows = facts["host"], variant_rows(facts)
        good = facts["format"] == FORMAT and isinstance(host["size"], int)
        good = good and all(isinstance(r["name"], str) and r["sha256"] for r in rows)
        if good:
            return VariantFacts(host["size"], str(host["sha256"]), tuple(rows))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return VariantFacts(malformed=True)


def marks(inner: VariantFacts, manifest: Mapping[str, Any] | None, name: str) -> set[int]:
    """The sizes of the prefixes that the checks below want hashed."""
    wanted = {inner.size}
    row = find_artifact(manifest, name) if manifest else None
    if row is not None:
        wanted.add(row.get("host_size", 0))
    return {size for size in wanted if isinstance(size, int) and size > 0}


def check_variant(inner: VariantFacts, layout: ZipLayout, scan: Scan) -> Finding:
    """Whether the file begins with the host that its own ``META/variant.json`` names."""
    if inner.malformed:
        return failed("host", "variant-malformed", f"{VARIANT_NAME} is not understood")
    own = {VARIANT_NAME, *(row["name"] for row in inner.rows)}
    first = next((entry for entry in layout.entries if entry.name in own), None)
    if scan.prefixes.get(inner.size) != inner.sha256:
        return failed("host", "host-mismatch", "the file does not begin with its host",
                      expected=inner.sha256, actual=scan.prefixes.get(inner.size))  # fmt: skip
    # A gap of zeros may stand before the first of the variant's own headers.
    if first is None or first.header_offset < inner.size:
        return failed("host", "host-mismatch", "the variant's entries lie inside the host",
                      size=inner.size)  # fmt: skip
    return passed("host", f"{inner.size} bytes, sha256 {inner.sha256}")


def check_release_host(manifest: Mapping[str, Any], name: str, scan: Scan) -> Iterator[Finding]:
    """Whether the file begins with the release's host, as all of its files do."""
    row = find_artifact(manifest, name)
    if row is None:
        return
    if row.get("windows") is True or name.lower().endswith(WINDOWS_SUFFIX):
        yield _check_windows(scan)
    if "host_sha256" not in row:
        return
    sets = {(r.get("host_size"), r.get("host_sha256")) for r in manifest["artifacts"]}
    if len(sets) != 1:
        yield failed("release host", "release-host-differs", "the release has several hosts")
    elif scan.prefixes.get(row.get("host_size", 0)) != row["host_sha256"]:
        yield failed("release host", "release-host-mismatch", "the file does not begin with the "
                     "release's host", expected=row["host_sha256"])  # fmt: skip
    else:
        count = len(manifest["artifacts"])
        yield passed("release host", f"{row['host_size']} bytes, the same in {count} files")


def _check_windows(scan: Scan) -> Finding:
    if scan.size >= WINDOWS_LIMIT:
        return failed("windows size", "windows-too-large", "Windows starts no program of 4 GiB or "
                      "more", size=scan.size)  # fmt: skip
    return passed("windows size", f"{scan.size} bytes")
