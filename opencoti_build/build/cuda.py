"""The CUDA library for one set of GPU architectures: compile each file, link with zig.

Objects come from nvcc through ccache, one a source file, driven by ninja, so that an interrupted
build goes on where it was and an edit compiles what it touches. Linking is done with zig: it
takes the symbols of an old glibc, whatever the machine has. C++ and CUDA runtime are static.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.build.cuda_note import SYMBOL, needed_driver, note_text, write_note
from opencoti_build.build.diagnostics import build_failure
from opencoti_build.build.environment import compiler_environment
from opencoti_build.build.ninja import NinjaResult, run_logged, run_ninja
from opencoti_build.build.steps import Step
from opencoti_build.errors import BuildError
from opencoti_build.paths import Cache, locked, write_atomic
from opencoti_build.toolchains.nvcc import NvccToolchain
from opencoti_build.toolchains.tools import tool
from opencoti_build.toolchains.zig import ZigToolchain
from opencoti_build.ui import Ui

# Raise it when this module changes what it puts out for the same inputs.
STEP_VERSION = 2

LIBRARY = "ggml-cuda.so"
LINK_LIMIT = 2 << 30
"""Bytes: relocations of x86-64 code reach no further."""

_FOLDER = "ggml/src/ggml-cuda"
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
_FLAGS = ("-std=c++17", "-O3", "-use_fast_math", "-extended-lambda", "-compress-mode=size",
          "-Xcompiler=-fPIC,-g0,-ffile-prefix-map={workspace}/=")  # fmt: skip
# Slow files can take more than this many bytes of memory each.
_MEMORY_A_JOB = 2500 << 20
_EXPORTS = f"{{\n  global: ggml_backend_*; {SYMBOL};\n  local: *;\n}};\n"
# What libstdc++ of newer systems asks of glibc, for those that do not have it.
_OLD_GLIBC = """\
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
__attribute__((visibility("hidden"))) uint32_t arc4random(void)
{
    uint32_t value;
    if (getentropy(&value, sizeof(value)) != 0)
        abort();
    return value;
}
"""


@dataclass(frozen=True)
class CudaSpec:
    """What to build: the patched tree, for which architectures, with which compilers.

    ``abi`` is the tree's ABI digest, ``version`` that of the engine.
    """

    tree: str
    architectures: tuple[str, ...]
    nvcc: NvccToolchain
    zig: ZigToolchain
    abi: str
    version: str

    def note(self) -> str:
        """What the library says about itself."""
        driver = needed_driver(self.nvcc.version)
        return note_text(self.abi, self.architectures, driver, self.version)

    def step(self) -> Step:
        """The step with everything that can change its output."""
        return Step(
            f"ggml-cuda {self.zig.target}",
            {
                "step_version": STEP_VERSION,
                "tree": self.tree,
                "architectures": list(self.architectures),
                "nvcc": self.nvcc.to_key(),
                "zig": self.zig.to_key(),
                "flags": [*_FLAGS, *_DEFINES],
                "note": self.note(),
            },
        )


class CudaBuilder:
    """Builds one CudaSpec in a folder that is kept, so that the next build is small."""

    def __init__(self, spec: CudaSpec, workspace: Path, cache: Cache, ui: Ui) -> None:
        self.spec, self.workspace, self.cache, self.ui = spec, workspace, cache, ui
        names = "-".join(spec.architectures)
        self.folder = cache.builds / f"{workspace.name}-cuda-{spec.zig.target}-{names}"

    def build(
        self,
        base: Path,
        output: Path,
        jobs: int | None,
        owner: Callable[[str, int], str | None],
    ) -> NinjaResult:
        """Compile, and link ``output``/ggml-cuda.so against the engine's ``base`` (libggml-base).

        Raises BuildError ``compile-failed``, ``cuda-too-large`` or ``link-failed``.
        """
        with locked(self.cache, f"build-{self.folder.name}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            text, objects = self.ninja_file()
            path = self.folder / "build.ninja"
            if not path.is_file() or path.read_text() != text:
                write_atomic(path, text.encode())
            log = self.folder / "build.log"
            count = min(jobs or os.cpu_count() or 1, _jobs_in_memory())
            command = [str(tool("ninja").path), "-C", str(self.folder), "-k", "0", "-j", str(count)]
            label = f"compile CUDA {' '.join(self.spec.architectures)}"
            result = run_ninja(command, self._environment(), log, label, self.ui)
            if result.status != 0:
                raise build_failure(
                    "compile-failed", "the CUDA library does not compile", log, self.workspace,
                    owner,
                )  # fmt: skip
            self._link([self.folder / name for name in objects], base, output / LIBRARY)
        return result

    def sources(self) -> list[Path]:
        """The source files, sorted; the one for Hopper only if it is asked for."""
        folder = self.workspace / _FOLDER
        found = {path for pattern in _SOURCES for path in folder.glob(pattern)}
        if not self._hopper():
            found = {path for path in found if path.name != _HOPPER}
        return sorted(found)

    def ninja_file(self) -> tuple[str, list[str]]:
        """The text of build.ninja, and the objects that it makes."""
        ggml = self.workspace / "ggml"
        includes = [ggml / "include", ggml / "src", *self.spec.nvcc.includes]
        # No path of this machine in __FILE__, which host and device code print.
        general = [flag.format(workspace=self.workspace) for flag in _FLAGS]
        flags = [*general, *(f"-D{name}" for name in _DEFINES), *(f"-I{path}" for path in includes)]
        if self._hopper():
            flags.append("-DOPENCOTI_GEMM_SM90")
        nvcc = f"{tool('ccache').path} {self.spec.nvcc.nvcc} -ccbin {self.spec.nvcc.host.path}"
        lines = [
            "rule cuda",
            f"  command = {nvcc} {' '.join(flags)} $arch -MD -MF $out.d -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "  description = Building CUDA object $out",
        ]
        objects = []
        for path in self.sources():
            name = f"{path.relative_to(self.workspace / _FOLDER)}.o"
            names = ("90a",) if path.name == _HOPPER else self.spec.architectures
            targets = (f"--generate-code=arch=compute_{n},code=[sm_{n}]" for n in names)
            lines += [f"build {name}: cuda {path}", f"  arch = {' '.join(targets)}"]
            objects.append(name)
        return "\n".join([*lines, ""]), objects

    def _hopper(self) -> bool:
        return "90" in self.spec.architectures

    def _environment(self) -> dict[str, str]:
        env = compiler_environment(self.cache, "nvcc", self.spec.nvcc.to_key(), "10G")
        return {**env, **self.spec.zig.environment(self.cache.toolchains)}

    def _link(self, objects: list[Path], base: Path, library: Path) -> None:
        size = sum(path.stat().st_size for path in objects)
        if size >= LINK_LIMIT:
            raise BuildError(
                "cuda-too-large",
                f"the CUDA objects have {size / 1e9:.1f} GB; a library cannot have 2 GiB or more",
                context={"architectures": " ".join(self.spec.architectures)},
                hint="build fewer architectures",
            )
        exports, old = self.folder / "exports.map", self.folder / "old-glibc.c"
        write_atomic(exports, _EXPORTS.encode())
        write_atomic(old, _OLD_GLIBC.encode())
        note = write_note(self.folder, self.spec.note())
        response = self.folder / "objects.rsp"
        write_atomic(response, "\n".join(map(str, objects)).encode())
        wrappers = self.spec.zig.write_wrappers(self.cache.toolchains)
        command = [
            # Without -O zig adds checks, and the names of files that they print.
            str(wrappers.cc), "-O2", "-shared", "-s", "-g0", "-o", str(library),
            f"@{response}", str(old), str(note), str(self.spec.nvcc.runtime),
            str(self.spec.nvcc.host.library), str(base),
            "-lunwind", "-lm", "-ldl", "-lrt", "-lpthread", "-Wl,-rpath,$ORIGIN",
            "-Wl,--no-undefined", f"-Wl,--version-script={exports}",
        ]  # fmt: skip
        log = self.folder / "link.log"
        if run_logged(command, self._environment(), log) != 0:
            raise build_failure(
                "link-failed", "the CUDA library cannot be linked", log, self.workspace,
                lambda _file, _line: None,
            )  # fmt: skip


def _jobs_in_memory() -> int:
    """How many compilers the machine's memory has room for."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, memory // _MEMORY_A_JOB)
