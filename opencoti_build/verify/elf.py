"""Checks of Linux programs and libraries that never run them (pyelftools reads the files).

Sources: System V gABI (program headers, dynamic section), GNU symbol versioning.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from opencoti_build.targets import Target
from opencoti_build.verify.buildpath import build_path

MACHINES = {Target.X86_64_LINUX: "EM_X86_64", Target.AARCH64_LINUX: "EM_AARCH64"}
SYSTEM_LIBRARIES = frozenset(
    {
        "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
        "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
    }
)  # fmt: skip
GLIBC_CAP = (2, 28)
RUN_PATHS = frozenset({"$ORIGIN", "$ORIGIN/", "${ORIGIN}"})
MAX_HEADERS = 4096

_PF_X = 1


@dataclass(frozen=True)
class ElfFacts:
    """What the dynamic linker would learn from a file, and what must not be in it."""

    machine: str
    bits: int
    needed: tuple[str, ...]
    glibc: tuple[int, ...]
    run_paths: tuple[str, ...]
    text_relocations: bool
    executable_stack: bool


def read_elf(data: bytes) -> ElfFacts | None:
    """The facts of an ELF file; None when ``data`` is none or is damaged."""
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(io.BytesIO(data))
        return _facts(elf)
    except (ELFError, ConstructError, ValueError, KeyError, TypeError, AttributeError, OSError,
            IndexError, AssertionError, UnicodeDecodeError, OverflowError):  # fmt: skip
        return None


def _facts(elf: Any) -> ElfFacts:
    needed: list[str] = []
    paths: list[str] = []
    text_relocations = False
    stack: bool | None = None
    if elf["e_phnum"] > MAX_HEADERS or elf["e_shnum"] > MAX_HEADERS:
        raise ValueError("too many headers")
    for segment in elf.iter_segments():
        kind = segment["p_type"]
        if kind == "PT_GNU_STACK":
            stack = bool(segment["p_flags"] & _PF_X)
        elif kind == "PT_DYNAMIC":
            for tag in _bounded(segment.iter_tags()):
                name = tag.entry.d_tag
                if name == "DT_NEEDED":
                    needed.append(tag.needed)
                elif name == "DT_RUNPATH":
                    paths += tag.runpath.split(":")
                elif name == "DT_RPATH":
                    paths += tag.rpath.split(":")
                elif name == "DT_TEXTREL" or (name == "DT_FLAGS" and tag.entry.d_val & 4):
                    text_relocations = True
    return ElfFacts(
        machine=elf["e_machine"],
        bits=elf.elfclass,
        needed=tuple(needed),
        glibc=max(_glibc(elf), default=()),
        run_paths=tuple(paths),
        text_relocations=text_relocations,
        # Without the header the kernel's default applies: executable on x86_64.
        executable_stack=stack is not False,
    )


def _bounded(items: Iterable[Any]) -> Iterator[Any]:
    """``items``, but a damaged file that announces billions of them ends as malformed."""
    for count, item in enumerate(items):
        if count == MAX_HEADERS:
            raise ValueError("too many items")
        yield item


def _glibc(elf: Any) -> Iterator[tuple[int, ...]]:
    section = elf.get_section_by_name(".gnu.version_r")
    if section is None:
        return
    for _, versions in _bounded(section.iter_versions()):
        for version in _bounded(versions):
            match = re.fullmatch(r"GLIBC_([0-9.]+)", version.name)
            if match:
                yield tuple(int(part) for part in match[1].split("."))


def elf_problems(
    facts: ElfFacts, data: bytes, target: Target, beside: frozenset[str], static: bool = False
) -> Iterator[tuple[str, str, object]]:
    """What is wrong with one file, as (reason, message, value).

    ``beside`` are the names in the file's own folder; ``static`` forbids every library.
    """
    if facts.machine != MACHINES[target] or facts.bits != 64:
        yield "elf-wrong-machine", "built for another CPU", f"{facts.machine}, {facts.bits} bits"
    allowed = frozenset() if static else SYSTEM_LIBRARIES | beside
    foreign = [name for name in facts.needed if name not in allowed]
    if foreign:
        yield "elf-foreign-library", "needs a library that is not allowed", ", ".join(foreign)
    if "libc.so.6" in facts.needed and not facts.glibc:
        yield "elf-glibc-unknown", "does not say which glibc it needs", ".gnu.version_r"
    if facts.glibc > GLIBC_CAP:
        newest = ".".join(map(str, facts.glibc))
        yield "elf-glibc-too-new", "needs a newer glibc than 2.28", newest
    bad_paths = [path for path in facts.run_paths if path not in RUN_PATHS]
    if bad_paths:
        yield "elf-run-path", "looks for libraries outside its folder", ":".join(bad_paths)
    if facts.text_relocations:
        yield "elf-text-relocations", "has text relocations", "DT_TEXTREL"
    if facts.executable_stack:
        yield "elf-executable-stack", "asks for an executable stack", "PT_GNU_STACK"
    if path := build_path(data):
        yield "elf-build-path", "holds a path of the build machine", path
