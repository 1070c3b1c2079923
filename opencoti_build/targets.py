"""Targets: the systems that a single file can start on, and what is known about each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class System(Enum):
    """The operating systems of the targets."""

    LINUX = "linux"
    WINDOWS = "windows"
    MACOS = "macos"


class Target(Enum):
    """A system that engines and launchers are built for (DESIGN section 2)."""

    X86_64_LINUX = "x86_64-linux"
    AARCH64_LINUX = "aarch64-linux"
    X86_64_WINDOWS = "x86_64-windows"
    AARCH64_MACOS = "aarch64-macos"
    X86_64_MACOS = "x86_64-macos"

    def __str__(self) -> str:
        return self.value

    @property
    def system(self) -> System:
        """The operating system, from the name."""
        return System(self.value.split("-")[1])


@dataclass(frozen=True)
class TargetFacts:
    """What the packer must know about one target.

    ``uname`` holds the answers of ``uname -sm`` that mean this target (none for Windows, which
    never runs the start script); ``launcher_triple`` is zig's name for the launcher's build;
    ``cpu`` is the oldest CPU that engines run on, in zig's words.
    """

    uname: tuple[str, ...]
    launcher_triple: str
    cpu: str


# LLVM tunes x86_64_v2 for cores that split unaligned 32-byte loads; AVX code on top of that is
# slow, and takes minutes a file to compile.
_X86_64_V2 = "x86_64_v2-slow_unaligned_mem_32"


FACTS: Mapping[Target, TargetFacts] = {
    Target.X86_64_LINUX: TargetFacts(
        ("Linux x86_64", "Linux amd64"), "x86_64-linux-musl", _X86_64_V2
    ),
    Target.AARCH64_LINUX: TargetFacts(
        ("Linux aarch64", "Linux arm64"), "aarch64-linux-musl", "generic"
    ),
    Target.X86_64_WINDOWS: TargetFacts((), "x86_64-windows-gnu", _X86_64_V2),
    Target.AARCH64_MACOS: TargetFacts(("Darwin arm64",), "aarch64-macos.11.0", "apple_m1"),
    Target.X86_64_MACOS: TargetFacts(("Darwin x86_64",), "x86_64-macos.11.0", _X86_64_V2),
}
CUDA_TARGETS = (Target.X86_64_LINUX, Target.AARCH64_LINUX)
"""Those that a CUDA library can be built for; a recipe may name more."""
