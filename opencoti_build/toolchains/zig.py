"""The zig toolchain: clang, lld, libc and libc++ for every target from one PyPI package."""

from __future__ import annotations

import platform as host
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.digest import content_key
from opencoti_build.paths import write_atomic
from opencoti_build.targets import FACTS, System, Target
from opencoti_build.toolchains.tools import Tool, tool


@dataclass(frozen=True)
class Platform:
    """A target as zig and CMake name it: triple, system, processor."""

    triple: str
    system: str
    processor: str


_PLATFORMS = {
    Target.X86_64_LINUX: Platform("x86_64-linux-gnu", "Linux", "x86_64"),
    Target.AARCH64_LINUX: Platform("aarch64-linux-gnu", "Linux", "aarch64"),
    Target.X86_64_WINDOWS: Platform("x86_64-windows-gnu", "Windows", "AMD64"),
    Target.AARCH64_MACOS: Platform("aarch64-macos", "Darwin", "arm64"),
    Target.X86_64_MACOS: Platform("x86_64-macos", "Darwin", "x86_64"),
}
# Absolute names (as CMake passes them) and relative ones (as ccache rewrites them) both become
# names inside the source tree, so that __FILE__ never shows this machine.
_PREFIX_MAPS = (
    ' ${OPENCOTI_BUILD:+"-ffile-prefix-map=$OPENCOTI_BUILD=build"'
    ' "-ffile-prefix-map=$OPENCOTI_SOURCE/="'
    ' "-ffile-prefix-map=$OPENCOTI_SOURCE_RELATIVE/="}'
)
# For calls that say nothing of it (CMake's first look at a compiler): zig builds its libraries once
# for each optimisation, and needs minutes for it. Every call of the build itself says more.
_DEFAULTS = ("-O3", "-g0")
# As in every link of the build, for those that CMake makes to look at a compiler: without it zig
# builds its libraries a second time, with debug information.
_STRIP_LINKS = r"""strip=-s
for a do
  case $a in -c|-E|-S|-M|-MM) strip= ;; esac
done
"""
# Of programs that run during the build. As in the recipes, so that zig's libraries are there.
_HOST_GLIBC = "2.28"
# GCC's way to name Arm features, which zig does not take, in zig's words.
_ARM_MARCH = r"""for a do
  shift
  case $a in -march=armv*)
    a=$(printf %s "$a" | sed @BASE@ -e 's/+fp16/+fullfp16/' -e 's/+nosve/-sve/') ;;
  esac
  set -- "$@" "$a"
done
"""
_ARM_BASE = {
    System.LINUX: r"-e 's/-march=armv\([0-9]\)\.\([0-9]\)-a/-mcpu=generic+v\1_\2a/'"
    r" -e 's/-march=armv8-a/-mcpu=generic/'",
    # Every Mac has at least these features, and clang's own headers count on them.
    System.MACOS: r"-e 's/-march=armv[0-9.]*-a/-mcpu=apple_m1/'",
}
# zig's linker makes no bundles; a library loads just the same.
_MACOS_BUNDLE = r"""for a do
  shift
  [ "$a" = -bundle ] && a=-dynamiclib
  set -- "$@" "$a"
done
"""


def zig_environment(zig: Tool, folder: Path) -> dict[str, str]:
    """Variables for every call of ``zig``; its caches are in ``folder``.

    zig's own headers are reached through a link in ``folder``: their names are in what ccache
    hashes, and must not change with the virtual environment that zig is installed in.
    """
    folder = folder.resolve()  # zig builds its libraries again for another name of theirs
    link = folder / f"zig-lib-{zig.identity[:12]}"
    target = zig.path.parent / "lib"
    if not link.is_symlink() or link.readlink() != target:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            (Path(temporary) / "link").symlink_to(target)
            (Path(temporary) / "link").replace(link)
    cache = str(folder / "zig-cache")
    return {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache, "ZIG_LIB_DIR": str(link)}


@dataclass(frozen=True)
class ZigToolchain:
    """Compilers for one target, as wrapper scripts that CMake and ccache can call."""

    zig: Tool
    target: Target
    minimum: str | None

    @property
    def triple(self) -> str:
        """The target as zig names it, with the oldest glibc or macOS that is supported."""
        triple = _PLATFORMS[self.target].triple
        return f"{triple}.{self.minimum}" if self.minimum else triple

    @property
    def flags(self) -> tuple[str, ...]:
        """Arguments that go before every other argument of the compiler.

        They name the CPU because zig would otherwise compile for the machine that it runs on when
        target and host agree.
        """
        return ("-target", self.triple, f"-mcpu={FACTS[self.target].cpu}")

    @property
    def avx512_flags(self) -> tuple[str, ...]:
        """What AVX-512 code needs beside -mavx512…: with a baseline CPU, clang 20 (zig 0.15)
        leaves out 512-bit registers; later clangs have no such switch."""
        x86 = self.triple.startswith("x86_64")
        return ("-mevex512",) if x86 and self.zig.version.startswith("0.15.") else ()

    def to_key(self) -> dict[str, object]:
        """What of the toolchain can change a build's output."""
        return {"toolchain": "zig", "zig": self.zig.to_key(), "flags": list(self.flags)}

    def environment(self, folder: Path) -> dict[str, str]:
        """Variables for every compiler call."""
        return zig_environment(self.zig, folder)

    def _host_cxx(self) -> list[str]:
        """A compiler for tools that run during the build, static where glibc is not the host's."""
        machine = host.machine()
        linux = next((t for t in Target if t.value == f"{machine}-linux"), None)
        if linux is None or host.libc_ver()[0] != "glibc":
            return ["c++", "-target", f"{machine}-linux-musl", *_DEFAULTS]
        same = linux is self.target
        toolchain = self if same else ZigToolchain(self.zig, linux, _HOST_GLIBC)
        return ["c++", *toolchain.flags, *_DEFAULTS]

    def cmake_platform(self) -> dict[str, str]:
        """CMake variables that name the target platform."""
        platform = _PLATFORMS[self.target]
        variables = {
            "CMAKE_SYSTEM_NAME": platform.system,
            "CMAKE_SYSTEM_PROCESSOR": platform.processor,
        }
        if self.target is not Target.X86_64_LINUX:
            # Checks of CPU features would link, and zig builds its libraries for each set of them.
            variables["CMAKE_TRY_COMPILE_TARGET_TYPE"] = "STATIC_LIBRARY"
        if self.target.system is System.WINDOWS:
            variables["CMAKE_SYSTEM_VERSION"] = "10.0"
        if self.target.system is System.MACOS:
            # CMake wants one; nothing here may need it, so it is a program that fails.
            variables["CMAKE_INSTALL_NAME_TOOL"] = "/bin/false"
            variables["CMAKE_OSX_SYSROOT"] = ""
        return variables

    def _rewrites(self) -> str:
        """Shell code that puts the compiler's arguments into zig's words."""
        system = self.target.system
        arm = self.triple.startswith("aarch64")
        march = _ARM_MARCH.replace("@BASE@", _ARM_BASE[system]) if arm else ""
        return march + (_MACOS_BUNDLE if system is System.MACOS else "")

    def write_wrappers(self, folder: Path) -> Wrappers:
        """Write cc, c++, ar and ranlib into a folder named by the toolchain's key."""
        bin_dir = folder / f"zig-{self.zig.version}-{self.target}-{content_key(self.to_key())[:12]}"
        commands = {
            "cc": ["cc", *self.flags, *_DEFAULTS],
            "c++": ["c++", *self.flags, *_DEFAULTS],
            "ar": ["ar"],
            "ranlib": ["ranlib"],
            "host-c++": self._host_cxx(),
        }
        for name, args in commands.items():
            maps = _PREFIX_MAPS if name in ("cc", "c++") else ""
            program = shlex.quote(str(self.zig.path))
            rewrites = self._rewrites() if name in ("cc", "c++") else ""
            compiler = args[0] in ("cc", "c++")
            before, strip = (_STRIP_LINKS, " $strip") if compiler else ("", "")
            text = (
                f"#!/bin/sh\n{rewrites}{before}"
                f'exec {program} {shlex.join(args)}{maps}{strip} "$@"\n'
            )
            script = bin_dir / name
            if not script.is_file() or script.read_text() != text:
                write_atomic(script, text.encode(), mode=0o755)
        return Wrappers(bin_dir)


@dataclass(frozen=True)
class Wrappers:
    """The folder with the wrapper scripts of one toolchain."""

    folder: Path

    @property
    def cc(self) -> Path:
        return self.folder / "cc"

    @property
    def cxx(self) -> Path:
        return self.folder / "c++"

    @property
    def ar(self) -> Path:
        return self.folder / "ar"

    @property
    def host_cxx(self) -> Path:
        return self.folder / "host-c++"

    @property
    def ranlib(self) -> Path:
        return self.folder / "ranlib"


def zig_toolchain(target: Target, minimum: str | None) -> ZigToolchain:
    """The installed zig for ``target``. Raises BuildError ``tool-missing``."""
    return ZigToolchain(tool("zig"), target, minimum)
