"""Checks of macOS programs and libraries that never run them (lief reads the files).

Sources: Apple's ``mach-o/loader.h`` (load commands); signatures: see ``codesign``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opencoti_build.targets import Target
from opencoti_build.verify.buildpath import build_path
from opencoti_build.verify.codesign import signature_problem

CPU_TYPES = {Target.AARCH64_MACOS: 0x0100000C, Target.X86_64_MACOS: 0x01000007}
SYSTEM_PREFIXES = ("/usr/lib/libSystem.", "/usr/lib/libc++", "/System/Library/Frameworks/")
LAUNCHER_PREFIXES = ("/usr/lib/libSystem.",)
OWN_PREFIXES = ("@rpath/", "@loader_path/")
RUN_PATHS = frozenset({"@loader_path", "@loader_path/", "@loader_path/."})
MIN_OS_CAP = (11, 0)
"""No file may need a newer macOS than this."""

_OWN_NAME = 13  # LC_ID_DYLIB
_EXECUTE, _LIBRARIES = 2, (6, 8)  # MH_EXECUTE; MH_DYLIB, MH_BUNDLE
_PIE = 0x200000
_PLATFORM_MACOS = 1
_THIN_64 = b"\xcf\xfa\xed\xfe"


@dataclass(frozen=True)
class MachoFacts:
    """What the dynamic linker would learn from a file; ``signature`` is (offset, size) in bytes."""

    cpu: int
    kind: int
    flags: int
    platform: int
    min_os: tuple[int, ...]
    libraries: tuple[str, ...]
    run_paths: tuple[str, ...]
    signature: tuple[int, int] | None


def read_macho(data: bytes) -> MachoFacts | None:
    """The facts of a thin 64-bit Mach-O file; None when ``data`` is none or is damaged."""
    import lief

    if data[:4] != _THIN_64:
        return None
    lief.logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of values that no enum of lief has
            fat = lief.MachO.parse(data)
            return None if fat is None or fat.size != 1 else _facts(fat.at(0))
    except (AttributeError, ValueError, TypeError, UnicodeDecodeError, OverflowError, RuntimeError):
        return None


def _facts(binary: Any) -> MachoFacts:
    header = binary.header
    build = binary.build_version if binary.has_build_version else None
    signature = binary.code_signature if binary.has_code_signature else None
    needed = [item.name for item in binary.libraries if _number(item.command) != _OWN_NAME]
    return MachoFacts(
        cpu=_number(header.cpu_type) & 0xFFFFFFFF,
        kind=_number(header.file_type),
        flags=_number(header.flags),
        platform=_number(build.platform) if build else 0,
        min_os=tuple(build.minos) if build else (),
        libraries=tuple(map(str, needed)),
        run_paths=tuple(str(item.path) for item in binary.rpaths),
        signature=(signature.data_offset, signature.data_size) if signature else None,
    )


def _number(value: Any) -> int:
    """An integer, or the one that an enum of lief stands for."""
    return int(getattr(value, "value", value))


def macho_problems(
    facts: MachoFacts,
    data: bytes,
    target: Target,
    beside: frozenset[str],
    program: bool,
    launcher: bool = False,
) -> Iterator[tuple[str, str, object]]:
    """What is wrong with one file, as (reason, message, value).

    ``beside`` are the names in the file's own folder; ``program`` says that it is no library;
    a ``launcher`` may need the system's C library only.
    """
    if facts.cpu != CPU_TYPES[target]:
        yield "macho-wrong-machine", "built for another CPU", f"{facts.cpu:#x}"
    if facts.kind != _EXECUTE if program else facts.kind not in _LIBRARIES:
        yield "macho-wrong-kind", "is not a program" if program else "is not a library", facts.kind
    if program and not facts.flags & _PIE:
        yield "macho-no-aslr", "cannot be loaded at a random address", hex(facts.flags)
    if facts.platform != _PLATFORM_MACOS or not facts.min_os:
        yield "macho-min-os-unknown", "does not say which macOS it needs", facts.platform
    elif facts.min_os[:2] > MIN_OS_CAP:
        newest = ".".join(map(str, facts.min_os))
        yield "macho-min-os-too-new", f"needs a newer macOS than {MIN_OS_CAP}", newest
    allowed = LAUNCHER_PREFIXES if launcher else SYSTEM_PREFIXES
    foreign = [n for n in facts.libraries if not n.startswith(allowed) and not _own(n, beside)]
    if foreign:
        yield "macho-foreign-library", "needs a library that is not allowed", ", ".join(foreign)
    bad_paths = [path for path in facts.run_paths if path not in RUN_PATHS]
    if bad_paths:
        yield "macho-run-path", "looks for libraries outside its folder", ":".join(bad_paths)
    if facts.signature is not None:
        if why := signature_problem(data, *facts.signature):
            yield "macho-bad-signature", "has a signature that is not valid", why
    elif target is Target.AARCH64_MACOS:
        yield "macho-no-signature", "is not signed", "LC_CODE_SIGNATURE"
    if path := build_path(data):
        yield "macho-build-path", "holds a path of the build machine", path


def _own(name: str, beside: frozenset[str]) -> bool:
    return any(name.startswith(p) and name.removeprefix(p) in beside for p in OWN_PREFIXES)
