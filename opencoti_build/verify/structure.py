"""Checks of a file's form: the zip rules, and a prologue that is exactly what we would write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opencoti_build.errors import PackError
from opencoti_build.pack.ape import KIND
from opencoti_build.pack.header import (
    MAGIC,
    PROLOGUE_SIZE,
    LauncherPlace,
    pe_headers,
    render_prologue,
)
from opencoti_build.pack.host import start_facts
from opencoti_build.pack.zipend import Source
from opencoti_build.pack.zipformat import ALIGNMENT, STORED
from opencoti_build.pack.zipreader import ZipLayout, read_zip
from opencoti_build.targets import Target
from opencoti_build.verify.report import Finding, failed, from_error, passed
from opencoti_build.verify.scan import Scan

LAUNCHER_PREFIX = "bin/launch-"
MAX_START = 16 << 20
MAPPED_SUFFIXES = (".so", ".dll", ".dylib", ".gguf")


def check_zip(data: Source) -> tuple[ZipLayout | None, Finding]:
    """Whether the zip part keeps all rules of ``zipreader``; its layout if it does."""
    try:
        layout = read_zip(data)
    except PackError as error:
        return None, from_error("zip", error)
    return layout, passed("zip", f"{len(layout.entries)} entries")


def check_crc(layout: ZipLayout, scan: Scan) -> Finding:
    """Whether each entry's stream is whole and its content has the crc-32 that its headers say."""
    for entry in layout.entries:
        if entry.name in scan.faults:
            return failed("crc", "entry-stream-damaged", "a compressed entry cannot be unpacked",
                          name=entry.name, why=scan.faults[entry.name])  # fmt: skip
        if scan.entries[entry.name][1] != entry.crc32:
            return failed("crc", "entry-crc-mismatch", "an entry's data is damaged",
                          name=entry.name)  # fmt: skip
    return passed("crc", f"{len(layout.entries)} entries")


def check_alignment(layout: ZipLayout) -> Finding:
    """Whether data that is mapped or executed starts at a multiple of 64 KiB."""
    for entry in layout.entries:
        if entry.method != STORED:
            continue  # copied into the cache
        last = entry.name.rsplit("/", 1)[-1]
        engine = entry.name.startswith("engine/") and last != "INDEX"
        if (engine or last.lower().endswith(MAPPED_SUFFIXES)) and entry.data_offset % ALIGNMENT:
            return failed("alignment", "entry-misaligned", "an entry that is mapped is not aligned",
                          name=entry.name, offset=entry.data_offset)  # fmt: skip
    return passed("alignment")


def check_prologue(
    data: Source, layout: ZipLayout, scan: Scan, version: str | None
) -> Iterator[Finding]:
    """Whether the DOS header and start script are those of this version and these launchers."""
    head = data[0:PROLOGUE_SIZE]
    if head[: len(MAGIC)] != MAGIC:
        yield failed("header", "header-bad-magic", "the file does not start with MZqFpD='")
        return
    headers = pe_headers(head)
    if layout.prologue_size != PROLOGUE_SIZE and not headers:
        yield failed("header", "header-bad-size", "the first entry is not right after the prologue",
                     expected=PROLOGUE_SIZE, actual=layout.prologue_size)  # fmt: skip
        return
    yield passed("header", "MZ, shell, PE, zip" if headers else "MZ, shell, zip")
    if version is None:
        yield failed(
            "script", "script-no-version", "no version is known to compare the script with"
        )
        return
    launchers = {
        target: LauncherPlace(entry.data_offset, entry.size, scan.entries[entry.name][0])
        for target in Target
        if (entry := layout.find(LAUNCHER_PREFIX + target.value)) is not None
    }
    try:
        expected = render_prologue(version, launchers, headers)
    except PackError as error:
        yield from_error("script", error)
        return
    if head != expected:
        where = next(
            at for at in range(PROLOGUE_SIZE) if head[at : at + 1] != expected[at : at + 1]
        )
        yield failed("script", "script-changed", "the start script is not the one of this version",
                     offset=where)  # fmt: skip
    else:
        yield passed("script", ", ".join(target.value for target in launchers) or "no launcher")


def has_windows_image(data: Source) -> bool:
    """Whether the prologue has PE headers."""
    return bool(pe_headers(data[0:PROLOGUE_SIZE]))


def check_start(data: Source, layout: ZipLayout, manifest: Mapping[str, Any]) -> Finding:
    """Whether the bytes before the first entry (script, Windows image) are as the manifest says."""
    listed = manifest.get("start")
    if not isinstance(listed, Mapping):
        return failed("start", "start-not-listed", "the manifest does not list the file's start")
    kind = KIND if listed.get("kind") == KIND else None
    if layout.prologue_size > MAX_START and kind is None:
        return failed("start", "header-bad-size", "the first entry is far from the file's start",
                      actual=layout.prologue_size)  # fmt: skip
    actual = start_facts(data[0 : layout.prologue_size], kind)
    if dict(listed) != actual:
        return failed("start", "start-mismatch", "the file's start is not what the manifest says",
                      expected=listed.get("sha256"), actual=actual["sha256"])  # fmt: skip
    return passed("start", f"{actual['size']} bytes")
