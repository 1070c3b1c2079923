"""Checks of the engines and launchers inside a file."""

from __future__ import annotations

from collections.abc import Iterator

from opencoti_build.pack.index import Index
from opencoti_build.pack.zipend import Source
from opencoti_build.pack.zipreader import ZipLayout
from opencoti_build.targets import Target
from opencoti_build.verify.elf import MACHINES, elf_problems, read_elf
from opencoti_build.verify.report import Finding, failed, passed, skipped


def check_engine(
    data: Source, layout: ZipLayout, target: Target, index: Index
) -> Iterator[Finding]:
    """The program and library checks of one engine, then its version string."""
    prefix, check = f"engine/{target.value}/", f"engine {target.value}"
    if target not in MACHINES:
        yield skipped(check, "engine-not-examined", "no checks are known for this target")
        return
    beside = frozenset(file.name for file in index.files)
    problems: list[Finding] = []
    for file in index.files:
        entry = layout.find(prefix + file.name)
        if entry is None:
            continue
        body = data[entry.data_offset : entry.end]
        problems += _program(check, prefix + file.name, body, target, beside)
        if file == index.files[0]:
            yield _version(f"version {target.value}", body, index)
    yield from problems or [passed(check, f"{len(index.files)} files")]


def check_launcher(data: Source, layout: ZipLayout, target: Target) -> Iterator[Finding]:
    """The program checks of a launcher: static, for the right CPU."""
    entry, check = layout.find(f"bin/launch-{target.value}"), f"launcher {target.value}"
    if entry is None:
        return
    if target not in MACHINES:
        yield skipped(check, "engine-not-examined", "no checks are known for this target")
        return
    body = data[entry.data_offset : entry.end]
    problems = list(_program(check, entry.name, body, target, frozenset(), static=True))
    yield from problems or [passed(check, f"{entry.size} bytes")]


def _program(
    check: str, name: str, body: bytes, target: Target, beside: frozenset[str], static: bool = False
) -> Iterator[Finding]:
    facts = read_elf(body)
    if facts is None:
        yield failed(check, "elf-malformed", "not an ELF file, or a damaged one", name=name)
        return
    for reason, message, value in elf_problems(facts, body, target, beside, static):
        yield failed(check, reason, f"{name} {message}", name=name, value=value)


def _version(check: str, body: bytes, index: Index) -> Finding:
    wanted = f"opencoti-{index.version}-{index.tag}"
    if wanted.encode("ascii") not in body:
        return failed(check, "version-string-missing", f"the engine does not hold {wanted!r}")
    return passed(check, wanted)
