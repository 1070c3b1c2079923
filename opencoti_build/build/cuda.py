"""The CUDA library for one set of GPU architectures: compile each file, link with zig.

Objects come from nvcc through ccache, driven by ninja (``build.cuda_files``), so that an
interrupted build goes on where it was and an edit compiles what it touches. Linking is done with
zig: it takes the symbols of an old glibc, whatever the machine has. C++ and CUDA runtime are
static.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.build import cuda_files, join, measure
from opencoti_build.build.cuda_files import CudaFile, CudaFiles
from opencoti_build.build.cuda_names import check_names
from opencoti_build.build.cuda_note import SYMBOL, needed_driver, note_text, write_note
from opencoti_build.build.diagnostics import build_failure
from opencoti_build.build.environment import CUDA_OBJECTS, compiler_environment
from opencoti_build.build.memory import (
    HEAVY,
    UNKNOWN,
    find_limits,
    known_peaks,
    learn_peaks,
    machine_memory,
)
from opencoti_build.build.ninja import NinjaResult, run_logged, run_ninja
from opencoti_build.build.steps import Step
from opencoti_build.digest import sha256_file
from opencoti_build.errors import BuildError
from opencoti_build.paths import Cache, locked, write_atomic
from opencoti_build.toolchains.nvcc import NvccToolchain
from opencoti_build.toolchains.nvcc_calls import LAYOUT, SOURCE_ENV, write_calls
from opencoti_build.toolchains.tools import tool
from opencoti_build.toolchains.zig import ZigToolchain
from opencoti_build.ui import Ui

# Raise it when this module changes what it puts out for the same inputs.
STEP_VERSION = 4

LIBRARY = "ggml-cuda.so"
CALL_SECONDS = 17
"""CPU seconds of a call, measured: 281 minutes for the 989 calls of six architectures."""
LINK_LIMIT = 2 << 30
"""Bytes: relocations of x86-64 code reach no further."""

_EXPORTS = f"{{\n  global: ggml_backend_*; {SYMBOL};\n  local: *;\n}};\n"
# What libstdc++ and headers of newer systems ask of glibc, for those that do not have it.
_OLD_GLIBC = """\
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define HIDDEN __attribute__((visibility("hidden")))
HIDDEN char __libc_single_threaded = 0;
HIDDEN uint32_t arc4random(void)
{
    uint32_t value;
    if (getentropy(&value, sizeof(value)) != 0)
        abort();
    return value;
}
#define NUMBER(type, name) \\
    HIDDEN type __isoc23_##name(const char *text, char **end, int base) \\
    { return name(text, end, base); }
NUMBER(long, strtol)
NUMBER(unsigned long, strtoul)
NUMBER(long long, strtoll)
NUMBER(unsigned long long, strtoull)
HIDDEN int __isoc23_vsscanf(const char *text, const char *format, va_list values)
{
    return vsscanf(text, format, values);
}
HIDDEN int __isoc23_sscanf(const char *text, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int count = vsscanf(text, format, values);
    va_end(values);
    return count;
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
                "support": sha256_file(self.nvcc.host.support),
                "calls": LAYOUT,
                "zig": self.zig.to_key(),
                "flags": list(cuda_files.KEY),
                "note": self.note(),
            },
        )


class CudaBuilder:
    """Builds one CudaSpec in a folder that is kept, so that the next build is small.

    It is the folder of every set of architectures: what they share is there already.
    """

    def __init__(self, spec: CudaSpec, workspace: Path, cache: Cache, ui: Ui) -> None:
        self.spec, self.workspace, self.cache, self.ui = spec, workspace, cache, ui
        self.folder = cache.builds / f"{workspace.name}-cuda-{spec.zig.target}"
        self.sources = CudaFiles(self.workspace, spec.architectures)

    def build(
        self,
        base: Path,
        output: Path,
        jobs: int | None,
        owner: Callable[[str, int], str | None],
    ) -> NinjaResult:
        """Compile, and link ``output``/ggml-cuda.so against the engine's ``base`` (libggml-base).

        Raises BuildError ``compile-failed``, ``cuda-names-differ``, ``cuda-too-large`` or
        ``link-failed``.
        """
        with locked(self.cache, f"build-{self.folder.name}"):
            files = self.sources.files()
            count = self.write_ninja_file(files, jobs or os.cpu_count() or 1)
            self._say_how_long(files, count)
            log = self.folder / "build.log"
            command = [str(tool("ninja").path), "-C", str(self.folder), "-k", "0", "-j", str(count)]
            label = f"CUDA {' '.join(self.spec.architectures)}"
            try:
                result = run_ninja(command, self._environment(), log, label, self.ui)
            finally:
                outputs = {name: _label(name) for file in files for name in file.calls}
                learn_peaks(self.cache, self.folder, outputs)
            if result.status != 0:
                raise build_failure(
                    "compile-failed", "the CUDA library does not compile", log, self.workspace,
                    owner,
                )  # fmt: skip
            for file in files:
                check_names(self.folder, file.host, file.device)
            self._link([self.folder / file.joined for file in files], base, output / LIBRARY)
        return result

    def _say_how_long(self, files: list[CudaFile], jobs: int) -> None:
        """One line before the first build of these files: it can take hours."""
        if not any((self.folder / file.joined).is_file() for file in files):
            calls = sum(len(file.calls) for file in files)
            minutes = calls * CALL_SECONDS / 60 / jobs
            self.ui.info(
                f"the CUDA library: {calls} compiler calls, about {minutes:.0f} min with "
                f"{jobs} jobs where no cache knows them (artifact --no-cuda leaves it out)"
            )

    def write_ninja_file(self, files: list[CudaFile], jobs: int) -> int:
        """Write build.ninja and what it needs; return how many calls may run at once."""
        peaks = self._peaks(files)
        heavy = frozenset(name for name, peak in peaks.items() if peak > HEAVY)
        memory = machine_memory()
        limits = find_limits(peaks.values(), jobs, memory)
        if limits.jobs < jobs or (heavy and limits.heavy < jobs):
            self.ui.info(
                f"memory ({memory / 1e9:.0f} GB) has room for {limits.jobs} CUDA compilers, "
                f"{limits.heavy} of the {len(heavy)} large ones"
            )
        python = [sys.executable, "-I", "-S"]
        programs = {
            "measure": shlex.join([*python, str(measure.__file__)]),
            "join": shlex.join([*python, str(join.__file__)]),
            "ccache": shlex.quote(str(tool("ccache").path)),
            "objcopy": str(self.spec.nvcc.host.objcopy),
        }
        calls = write_calls(self.spec.nvcc, self.cache)
        self.folder.mkdir(parents=True, exist_ok=True)
        text = self.sources.ninja_file(
            self.folder, self.spec.nvcc, calls, programs, heavy, limits.heavy
        )
        written = {"build.ninja": text, self.sources.header: self.sources.header_text()}
        for name, content in written.items():
            path = self.folder / name
            if not path.is_file() or path.read_text() != content:
                write_atomic(path, content.encode())
        return limits.jobs

    def _peaks(self, files: list[CudaFile]) -> dict[str, int]:
        """The memory (bytes) that each call is taken to need: as before, or as a like one."""
        table = known_peaks(self.cache)
        peaks = {}
        for file in files:
            like = [table[_label(name)] for name in file.device.values() if _label(name) in table]
            for name in file.device.values():
                peaks[name] = table.get(_label(name), max(like, default=UNKNOWN))
            peaks[file.host] = table.get(_label(file.host), UNKNOWN)
        return peaks

    def _environment(self) -> dict[str, str]:
        key = {**self.spec.nvcc.to_key(), "calls": LAYOUT}
        env = compiler_environment(self.cache.ccache_cuda, self.cache, "nvcc", key, CUDA_OBJECTS)
        # Every call says which headers it read, so none is preprocessed only to look it up.
        env |= {"CCACHE_DEPEND": "1", SOURCE_ENV: str(self.workspace.resolve())}
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
            str(self.spec.nvcc.host.library), str(self.spec.nvcc.host.support), str(base),
            "-lunwind", "-lm", "-ldl", "-lrt", "-lpthread", "-Wl,-rpath,$ORIGIN",
            "-Wl,--no-undefined", f"-Wl,--version-script={exports}",
        ]  # fmt: skip
        log = self.folder / "link.log"
        if run_logged(command, self._environment(), log) != 0:
            raise build_failure(
                "link-failed", "the CUDA library cannot be linked", log, self.workspace,
                lambda _file, _line: None,
            )  # fmt: skip


def _label(output: str) -> str:
    """The name of a call in the table of memory: host code is about the same for every set."""
    return re.sub(r"^host-[0-9a-f]+/", "host/", output)
