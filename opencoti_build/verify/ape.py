"""Checks of a host that upstream's build made: one Actually Portable Executable.

Source: Cosmopolitan ``ape/specification.md``. The file is at once a shell script that writes ELF
headers with printf (one for each CPU, in the first 8192 bytes), and a PE program. What is not
examined is reported as skipped, each with a reason.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from opencoti_build.pack.ape import KIND, MAGICS
from opencoti_build.pack.zipend import Source
from opencoti_build.pack.zipreader import ZipLayout
from opencoti_build.targets import Target
from opencoti_build.verify import elf, pe
from opencoti_build.verify.buildpath import build_path
from opencoti_build.verify.report import Finding, failed, passed, skipped

SCRIPT_SIZE = 8192
"""Bytes from the start that hold the ELF headers."""
_HEADER_SIZE = 64
_PRINTF = re.compile(rb"printf '([^']*)'")
_OCTAL = re.compile(rb"\\([0-7]{1,3})")


def is_ape(manifest: Mapping[str, Any] | None) -> bool:
    """Whether the file says that upstream's build made its host."""
    start = (manifest or {}).get("start")
    return isinstance(start, Mapping) and start.get("kind") == KIND


def check_ape_places(layout: ZipLayout) -> Finding:
    """Upstream's entries may be anywhere, but not where an engine or launcher of ours would be."""
    for entry in layout.entries:
        if entry.name.startswith(("engine/", "bin/launch-")):
            return failed("places", "entry-misplaced", "upstream's program has an engine of ours",
                          name=entry.name)  # fmt: skip
    return passed("places", "upstream's program")


def check_ape(data: Source, layout: ZipLayout, version: str) -> Iterator[Finding]:
    """Whether the program is one for each of its systems, as far as that can be seen."""
    image = data[0 : layout.prologue_size]
    yield _header(image)
    for target in elf.MACHINES:
        yield _elf(f"program {target.value}", image, elf.MACHINES[target])
    yield _pe(f"program {Target.X86_64_WINDOWS.value}", image)
    yield skipped("program macos", "ape-macos-not-examined", "its loader is found by the script")
    yield skipped("script", "ape-script-not-compared", "upstream's: known by its sha256 alone")
    if path := build_path(image):
        yield skipped("build paths", "ape-path-unclear", f"upstream's, or of the build: {path}")
    else:
        yield passed("build paths")
    if version.encode() in image:
        yield passed("version", version)
    else:
        yield skipped("version", "ape-version-not-named", "upstream's program has its own version")


def _header(image: bytes) -> Finding:
    line = image[: image.find(b"\n", len(MAGICS[0]))]
    if image[: len(MAGICS[0])] not in MAGICS:
        return failed("header", "header-bad-magic", "the file does not start as an APE does")
    if image[len(MAGICS[0]) : len(MAGICS[0]) + 1] != b"\n" or b"\0" in line:
        return failed("header", "ape-bad-first-line", "a shell would not read the first line")
    return passed("header", "APE, zip")


def _elf(check: str, image: bytes, machine: str) -> Finding:
    from elftools.elf.elffile import ELFFile

    for header in _elf_headers(image[:SCRIPT_SIZE]):
        # What a loader sees: this header in the place of the file's first bytes.
        view = header + image[len(header) :]
        facts = elf.read_elf(view)
        if facts is None or facts.machine != machine:
            continue
        if facts.needed:
            return failed(check, "ape-not-static", "the program needs libraries",
                          names=", ".join(facts.needed))  # fmt: skip
        loads = [s for s in ELFFile(io.BytesIO(view)).iter_segments() if s["p_type"] == "PT_LOAD"]
        if not loads or any(s["p_offset"] + s["p_filesz"] > len(image) for s in loads):
            return failed(check, "ape-elf-cut-off", "segments lie outside of the program")
        return passed(check, f"ELF, {len(loads)} segments")
    return failed(check, "ape-elf-missing", "the script has no ELF header for this CPU")


def _elf_headers(script: bytes) -> Iterator[bytes]:
    for found in _PRINTF.finditer(script):
        text = _OCTAL.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), found[1])
        if text.startswith(b"\x7fELF") and len(text) >= _HEADER_SIZE:
            yield text[:_HEADER_SIZE]


def _pe(check: str, image: bytes) -> Finding:
    if image.startswith(MAGICS[1]):
        return skipped(check, "ape-not-for-windows", "the program says that it is none")
    facts = pe.read_pe(image)
    if facts is None:
        return failed(check, "pe-malformed", "not a PE file, or a damaged one")
    if facts.machine != pe.MACHINE_X86_64 or facts.flags & pe.DLL:
        return failed(check, "pe-wrong-machine", "not a program for this CPU")
    if facts.layout_problem:
        return failed(check, "pe-bad-layout", "a layout that Windows may refuse",
                      value=facts.layout_problem)  # fmt: skip
    return passed(check, "PE")
