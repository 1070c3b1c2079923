"""What ninja does for the CUDA library: the calls of each source file.

A source file is compiled once for each GPU architecture, to packed device code alone, and once for
the host; a third call joins them to the object that one nvcc call for all architectures would have
made. So a further architecture compiles its own device code only (and host code, which knows the
list of architectures), and a call needs memory for one architecture at a time.

nvcc has no switch for host code alone: it only looks at the device code then, for one old
architecture, and joining puts the real code where that is empty.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.digest import content_key
from opencoti_build.toolchains.nvcc import NvccToolchain
from opencoti_build.toolchains.nvcc_calls import PROGRAMS

FOLDER = "ggml/src/ggml-cuda"
# As the folder's CMakeLists.txt takes them without GGML_CUDA_FA_ALL_QUANTS.
_SOURCES = (
    "*.cu",
    "template-instances/fattn-tile*.cu",
    "template-instances/fattn-mma*.cu",
    "template-instances/mmq*.cu",
    "template-instances/mmf*.cu",
    "template-instances/fattn-vec-instance-f16-f16.cu",
    "template-instances/fattn-vec-instance-q4_0-q4_0.cu",
    "template-instances/fattn-vec-instance-q8_0-q8_0.cu",
    "template-instances/fattn-vec-instance-bf16-bf16.cu",
)
# Compiled for sm_90a alone (wgmma), and only if there is anything for sm_90.
_HOPPER = "opencoti-gemm-sm90.cu"
_DEFINES = (
    "GGML_BACKEND_BUILD",
    "GGML_BACKEND_DL",
    "GGML_BACKEND_SHARED",
    "GGML_CUDA_OPENCOTI_GEMM",
    "GGML_CUDA_PEER_MAX_BATCH_SIZE=128",
    "GGML_CUDA_USE_GRAPHS",
    "GGML_SCHED_MAX_COPIES=4",
    "GGML_SHARED",
    "NDEBUG",
    "_GNU_SOURCE",
    "_XOPEN_SOURCE=600",
)
# CUB and Thrust would put the list of architectures into the names of their kernels, and the parts
# of a file are compiled for different lists. It is there for programs with several copies of them
# that see each other's symbols; this library shows none.
_NAMES = (
    "CUB_DISABLE_NAMESPACE_MAGIC",
    "CUB_IGNORE_NAMESPACE_MAGIC_ERROR",
    "THRUST_DISABLE_ABI_NAMESPACE",
    "THRUST_IGNORE_ABI_NAMESPACE_ERROR",
)
_FLAGS = ("-std=c++17", "-O3", "-use_fast_math", "-extended-lambda",
          "-Xcompiler=-fPIC,-g0,-ffile-prefix-map={tree}/=")  # fmt: skip
# Every supported CUDA knows this architecture.
_HOST_FLAGS = ("--generate-code=arch=compute_75,code=[compute_75]", "-fdevice-syntax-only")
_DEVICE_FLAGS = ("-compress-mode=size",)
KEY = (*_FLAGS, *_DEFINES, *_NAMES, *_HOST_FLAGS, *_DEVICE_FLAGS)
"""What of this module is part of the library's content key."""

# $measure writes the memory that a call took beside its output (build.measure).
_RULES = """\
rule device
  command = $measure $out.peak $ccache $device $flags $pack $arch -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
  description = Building CUDA code $out
rule host
  command = $measure $out.peak $ccache $nvcc $flags $host -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
  description = Building CUDA object $out
rule join
  command = $join $objcopy $in $out $containers
  description = Joining $out
"""


@dataclass(frozen=True)
class CudaFile:
    """One source file: what ninja makes of it, as names in the build folder."""

    source: Path
    host: str
    device: Mapping[str, str]
    joined: str

    @property
    def calls(self) -> tuple[str, ...]:
        """The outputs of its compilers."""
        return (self.host, *self.device.values())


@dataclass(frozen=True)
class CudaFiles:
    """The source files of one library for ``architectures``."""

    workspace: Path
    architectures: tuple[str, ...]

    @property
    def hopper(self) -> bool:
        """Whether the code for sm_90a is in it."""
        return "90" in self.architectures

    def sources(self) -> list[Path]:
        """The source files, sorted; the one for Hopper only if it is asked for."""
        folder = self.workspace / FOLDER
        found = {path for pattern in _SOURCES for path in folder.glob(pattern)}
        if not self.hopper:
            found = {path for path in found if path.name != _HOPPER}
        return sorted(found)

    def files(self) -> list[CudaFile]:
        """The source files with what is made of each."""
        found = []
        for path in self.sources():
            name = path.relative_to(self.workspace / FOLDER).as_posix()
            wanted = ("90a",) if path.name == _HOPPER else self.architectures
            device = {arch: f"sm_{arch}/{name}.fatbin" for arch in wanted}
            found.append(
                CudaFile(path, f"host-{self._set}/{name}.o", device, f"all-{self._set}/{name}.o")
            )
        return found

    @property
    def header(self) -> str:
        """The name of the header that tells host code which architectures there are."""
        return f"host-{self._set}/architectures.h"

    def header_text(self) -> str:
        """Its text: nvcc would name the one that it compiles for."""
        numbers = sorted({int(name.rstrip("af")) * 10 for name in self.architectures})
        text = "#undef __CUDA_ARCH_LIST__\n"
        text += f"#define __CUDA_ARCH_LIST__ {','.join(map(str, numbers))}\n"
        return text + ("#define OPENCOTI_GEMM_SM90\n" if self.hopper else "")

    @property
    def _set(self) -> str:
        """A short name of the set of architectures."""
        return content_key(list(self.architectures))[:12]

    def ninja_file(
        self, folder: Path, nvcc: NvccToolchain, calls: Path, programs: Mapping[str, str],
        heavy: frozenset[str], depth: int,
    ) -> str:  # fmt: skip
        """The text of build.ninja in ``folder``; ``calls`` is the folder of ``nvcc_calls``.

        Files of the cache have relative names: absolute ones would be part of what ccache asks
        for, and of ``__FILE__``. ``programs``: the commands measure, ccache, join and objcopy. No
        more than ``depth`` of the outputs ``heavy`` are made at once.
        """
        tree, tools = (_relative(path, folder) for path in (self.workspace, calls))
        local = [path.relative_to(nvcc.root) for path in nvcc.includes]
        includes = [f"{tree}/ggml/include", f"{tree}/ggml/src", *(f"{tools}/{p}" for p in local)]
        flags = [
            f"-ccbin {nvcc.host.path}",
            *(flag.format(tree=tree) for flag in _FLAGS),
            *(f"-D{name}" for name in (*_DEFINES, *_NAMES)),
            *(f"-I{path}" for path in includes),
        ]
        values = {
            **programs,
            **{name: f"{tools}/{path}" for name, path in PROGRAMS.items()},
            "flags": " ".join(flags),
            "pack": " ".join(_DEVICE_FLAGS),
            "host": " ".join([f"-include {self.header}", *_HOST_FLAGS]),
        }
        lines = [f"{name} = {value}" for name, value in values.items()]
        lines += ["pool heavy", f"  depth = {depth}", _RULES]
        for file in self.files():
            source = f"{tree}/{file.source.relative_to(self.workspace).as_posix()}"
            lines.append(f"build {file.host}: host {source} | {self.header}")
            lines += ["  pool = heavy"] if file.host in heavy else []
            for arch, output in file.device.items():
                lines.append(f"build {output}: device {source}")
                lines.append(f"  arch = --generate-code=arch=compute_{arch},code=[sm_{arch}]")
                lines += ["  pool = heavy"] if output in heavy else []
            containers = " ".join(file.device.values())
            lines.append(f"build {file.joined}: join {file.host} | {containers}")
            lines.append(f"  containers = {containers}")
        goals = " ".join(file.joined for file in self.files())
        return "\n".join([*lines, f"default {goals}", ""])


def _relative(path: Path, folder: Path) -> str:
    """``path`` from ``folder``, by the cache's own names where a link does not lead elsewhere."""
    name = os.path.relpath(path, folder)
    if (folder / name).resolve() != path.resolve():
        name = os.path.relpath(path.resolve(), folder.resolve())
    return Path(name).as_posix()
