"""Checks of the engines and launchers inside a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opencoti_build.pack.index import Index
from opencoti_build.pack.zipend import Source
from opencoti_build.pack.zipreader import ZipLayout, read_entry
from opencoti_build.targets import System, Target
from opencoti_build.verify import abi, elf, macho, pe
from opencoti_build.verify.report import Finding, failed, passed

Problems = Iterator[tuple[str, str, object]]


def check_engine(
    data: Source,
    layout: ZipLayout,
    target: Target,
    index: Index,
    release: Mapping[str, Any] | None = None,
) -> Iterator[Finding]:
    """The program and library checks of one engine, then its version string and ABI digest.

    ``release`` is the release's manifest.
    """
    prefix, check = f"engine/{target.value}/", f"engine {target.value}"
    beside = frozenset(file.name for file in index.files)
    problems: list[Finding] = []
    for file in index.files:
        entry = layout.find(prefix + file.name)
        if entry is None:
            continue
        body = read_entry(data, entry)
        program = file == index.files[0]
        problems += _program(check, prefix + file.name, body, target, beside, program)
        if program:
            yield _version(f"version {target.value}", body, index)
            yield abi.check_digest(target, body, release)
    yield from problems or [passed(check, f"{_kind(target)}, {len(index.files)} files")]


def check_launcher(data: Source, layout: ZipLayout, target: Target) -> Iterator[Finding]:
    """The program checks of a launcher: for the right CPU, with no libraries but the system's."""
    check, name = f"launcher {target.value}", f"bin/launch-{target.value}"
    if target.system is System.WINDOWS:
        # Its image begins with the file itself.
        name, body = "the Windows image", data[0 : layout.prologue_size]
    elif (entry := layout.find(name)) is not None:
        body = data[entry.data_offset : entry.end]
    else:
        return
    problems = list(_program(check, name, body, target, frozenset(), True, launcher=True))
    yield from problems or [passed(check, f"{_kind(target)}, {len(body)} bytes")]


def _kind(target: Target) -> str:
    return {System.LINUX: "ELF", System.WINDOWS: "PE", System.MACOS: "Mach-O"}[target.system]


def _program(
    check: str, name: str, body: bytes, target: Target, beside: frozenset[str], program: bool,
    launcher: bool = False,
) -> Iterator[Finding]:  # fmt: skip
    problems = _problems(body, target, beside, program, launcher)
    if problems is None:
        reason = f"{_kind(target).lower().replace('-', '')}-malformed"
        yield failed(check, reason, f"not a {_kind(target)} file, or a damaged one", name=name)
        return
    for reason, message, value in problems:
        yield failed(check, reason, f"{name} {message}", name=name, value=value)


def _problems(
    body: bytes, target: Target, beside: frozenset[str], program: bool, launcher: bool
) -> Problems | None:
    """What is wrong with a program of ``target``; None when it cannot be read at all."""
    if target.system is System.LINUX:
        elf_facts = elf.read_elf(body)
        return elf.elf_problems(elf_facts, body, target, beside, launcher) if elf_facts else None
    if target.system is System.WINDOWS:
        pe_facts = pe.read_pe(body)
        return pe.pe_problems(pe_facts, body, beside, program) if pe_facts else None
    facts = macho.read_macho(body)
    if facts is None:
        return None
    return macho.macho_problems(facts, body, target, beside, program, launcher)


def _version(check: str, body: bytes, index: Index) -> Finding:
    wanted = f"opencoti-{index.version}-{index.tag}"
    if wanted.encode("ascii") not in body:
        return failed(check, "version-string-missing", f"the engine does not hold {wanted!r}")
    return passed(check, wanted)
