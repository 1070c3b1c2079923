"""The engine for one target: configure with CMake, build with ninja and ccache, collect."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.build.diagnostics import build_failure
from opencoti_build.build.environment import ENGINE_OBJECTS, compiler_environment
from opencoti_build.build.ninja import NinjaResult, run_logged, run_ninja
from opencoti_build.build.steps import Step
from opencoti_build.digest import content_key
from opencoti_build.errors import BuildError
from opencoti_build.paths import Cache, locked, write_atomic
from opencoti_build.targets import System, Target
from opencoti_build.toolchains.tools import tool
from opencoti_build.toolchains.zig import ZigToolchain
from opencoti_build.ui import Ui

# Raise it when this module changes what it puts out for the same inputs.
STEP_VERSION = 1

ENGINE = "opencoti-engine"


@dataclass(frozen=True)
class _Names:
    """What a system calls programs and libraries.

    ``library`` matches the names that the loader asks for: of a library that others are linked
    with (one version number in it, except on Windows), or of a module that ggml opens.
    """

    program: str
    library: str
    run_path: str
    linker_flags: str


_NAMES = {
    System.LINUX: _Names(
        "", r"libggml(-[a-z]+\.so\.\d+|\.so\.\d+|-cpu(-.+)?\.so)", "$ORIGIN", "-s"
    ),
    System.MACOS: _Names(
        "", r"libggml(-[a-z]+\.\d+\.dylib|\.\d+\.dylib|-cpu(-.+)?\.so)", "@loader_path", "-s"
    ),
    System.WINDOWS: _Names(
        ".exe",
        r"ggml.*\.dll",
        "",
        "-s -Wl,--dynamicbase -Wl,--nxcompat -Wl,--high-entropy-va",
    ),
}
# macOS has no GPU or BLAS code here: both need frameworks of Apple's that only a Mac has.
_SYSTEM_OPTIONS = {
    System.MACOS: {
        "GGML_ACCELERATE": "OFF",
        "GGML_BLAS": "OFF",
        "GGML_METAL": "OFF",
    }
}


def program_name(target: Target, goal: str = ENGINE) -> str:
    """The file that ``goal`` makes on ``target``: ``opencoti-engine.exe`` on Windows."""
    return goal + _NAMES[target.system].program


@dataclass(frozen=True)
class EngineSpec:
    """What to build: the patched tree, for which target, with which toolchain and names.

    ``abi_digest`` is the tree's (``build.abi``).
    """

    target: Target
    tree: str
    base_tree: str
    version: str
    tag: str
    toolchain: ZigToolchain
    cpu_variants: tuple[str, ...]
    abi_digest: str

    def cmake_options(self) -> dict[str, str]:
        """Cache variables that decide what is built. No paths: they are part of the key."""
        names = _NAMES[self.target.system]
        return {
            "CMAKE_BUILD_TYPE": "Release",
            # Checks with the same flags: zig builds its C++ library once a set of flags.
            "CMAKE_TRY_COMPILE_CONFIGURATION": "Release",
            "CMAKE_C_FLAGS_RELEASE": "-O3 -DNDEBUG -g0",
            "CMAKE_CXX_FLAGS_RELEASE": "-O3 -DNDEBUG -g0",
            "CMAKE_EXE_LINKER_FLAGS": names.linker_flags,
            "CMAKE_SHARED_LINKER_FLAGS": names.linker_flags,
            "CMAKE_MODULE_LINKER_FLAGS": names.linker_flags,
            "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
            "CMAKE_INSTALL_RPATH": names.run_path,
            "CMAKE_POSITION_INDEPENDENT_CODE": "ON",
            "BUILD_SHARED_LIBS": "ON",
            "GGML_BACKEND_DL": "ON",
            "GGML_CPU_ALL_VARIANTS": "ON",
            "GGML_NATIVE": "OFF",
            "GGML_OPENMP": "OFF",
            "GGML_CCACHE": "OFF",
            "LLAMA_BUILD_COMMIT": self.base_tree[:9],
            "LLAMA_BUILD_NUMBER": "0",
            "LLAMA_BUILD_APP": "OFF",
            "LLAMA_BUILD_EXAMPLES": "OFF",
            "LLAMA_BUILD_TESTS": "OFF",
            "LLAMA_BUILD_UI": "OFF",
            "LLAMA_CURL": "OFF",
            "LLAMA_OPENSSL": "OFF",
            "OPENCOTI_ABI_DIGEST": self.abi_digest,
            "OPENCOTI_AVX512_FLAGS": ";".join(self.toolchain.avx512_flags),
            "OPENCOTI_CPU_VARIANTS": ";".join(self.cpu_variants),
            "OPENCOTI_ENGINE": "ON",
            "OPENCOTI_TAG": self.tag,
            "OPENCOTI_VERSION": self.version,
            **_SYSTEM_OPTIONS.get(self.target.system, {}),
        }

    def step(self) -> Step:
        """The engine step with everything that can change its output."""
        return Step(
            f"engine {self.target}",
            {
                "step_version": STEP_VERSION,
                "tree": self.tree,
                "toolchain": self.toolchain.to_key(),
                "cmake": tool("cmake").version,
                "options": self.cmake_options(),
            },
        )


class EngineBuilder:
    """Builds one EngineSpec in a build folder that is kept, so that the next build is small."""

    def __init__(self, spec: EngineSpec, workspace: Path, cache: Cache, ui: Ui) -> None:
        self.spec, self.workspace, self.cache, self.ui = spec, workspace, cache, ui
        self.folder = cache.builds / f"{workspace.name}-{spec.target}"
        # More variables for CMake, with paths of this machine; no part of any key.
        self.paths: dict[str, str] = {}

    def build(
        self,
        output: Path,
        jobs: int | None,
        owner: Callable[[str, int], str | None],
        goals: Sequence[str] = (ENGINE,),
    ) -> NinjaResult:
        """Build ``goals`` and copy the programs and their modules into ``output``.

        Raises BuildError ``configure-failed``, ``compile-failed`` or ``engine-without-cpu-code``.
        """
        with locked(self.cache, f"build-{self.folder.name}"):
            env = self._environment()
            self._configure(env, owner)
            result = self._ninja(env, jobs, owner, goals)
            self._collect(output, goals)
        return result

    def _environment(self) -> dict[str, str]:
        """The closed environment of compilers, and what the wrappers and CMake read."""
        toolchain = self.spec.toolchain
        env = compiler_environment(
            self.cache.ccache, self.cache, "clang", toolchain.to_key(), ENGINE_OBJECTS
        )
        relative = os.path.relpath(self.workspace, self.folder)
        env.update(
            {
                "PATH": os.pathsep.join([str(tool("ninja").path.parent), env.get("PATH", "")]),
                **toolchain.environment(self.cache.toolchains),
                "CCACHE_DEPEND": "1",
                # The workspace is a git checkout of ours: its commit must not reach the binary.
                "GIT_DIR": os.devnull,
                # Read by the compiler wrappers: no path of this machine reaches the binary.
                "OPENCOTI_SOURCE": str(self.workspace),
                "OPENCOTI_SOURCE_RELATIVE": relative,
                "OPENCOTI_BUILD": str(self.folder),
            }
        )
        return env

    def _configure(self, env: dict[str, str], owner: Callable[[str, int], str | None]) -> None:
        wrappers = self.spec.toolchain.write_wrappers(self.cache.toolchains)
        ccache = str(tool("ccache").path)
        options = {
            **self.spec.cmake_options(),
            **self.spec.toolchain.cmake_platform(),
            "CMAKE_C_COMPILER": str(wrappers.cc),
            "CMAKE_CXX_COMPILER": str(wrappers.cxx),
            "CMAKE_AR": str(wrappers.ar),
            "CMAKE_RANLIB": str(wrappers.ranlib),
            "CMAKE_C_COMPILER_LAUNCHER": ccache,
            "CMAKE_CXX_COMPILER_LAUNCHER": ccache,
            "CMAKE_MAKE_PROGRAM": str(tool("ninja").path),
            "HOST_CXX_COMPILER": str(wrappers.host_cxx),
            **self.paths,
        }
        stamp = self.folder / "opencoti-configured"
        wanted = content_key({"options": options, "cmake": str(tool("cmake").path)})
        if (
            stamp.is_file()
            and stamp.read_text() == wanted
            and (self.folder / "build.ninja").is_file()
        ):
            return
        if stamp.is_file() and not _only_names_changed(self.folder, options):
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "configure.log"
        command = [str(tool("cmake").path), "-S", str(self.workspace), "-B", str(self.folder)]
        command += ["-G", "Ninja", *(f"-D{name}={value}" for name, value in options.items())]
        with self.ui.task("configure", row=str(self.spec.target)):
            status = run_logged(command, env, log)
        if status != 0:
            raise build_failure(
                "configure-failed",
                "CMake could not configure the engine",
                log,
                self.workspace,
                owner,
            )
        write_atomic(stamp, wanted.encode())

    def _ninja(
        self,
        env: dict[str, str],
        jobs: int | None,
        owner: Callable[[str, int], str | None],
        goals: Sequence[str],
    ) -> NinjaResult:
        log = self.folder / "build.log"
        command = [str(tool("ninja").path), "-C", str(self.folder), "-k", "0", *goals]
        if jobs:
            command += ["-j", str(jobs)]
        result = run_ninja(command, env, log, str(self.spec.target), self.ui)
        if result.status != 0:
            raise build_failure(
                "compile-failed", "the engine does not compile", log, self.workspace, owner
            )
        return result

    def _collect(self, output: Path, goals: Sequence[str]) -> None:
        binaries = self.folder / "bin"
        output.mkdir(parents=True, exist_ok=True)
        for goal in goals:
            name = program_name(self.spec.target, goal)
            _copy(binaries / name, output / name, 0o755)
        library = re.compile(_NAMES[self.spec.target.system].library)
        names = [path.name for path in sorted(binaries.iterdir()) if library.fullmatch(path.name)]
        if not any("ggml-cpu" in name for name in names):
            # It would start, and fail with the first model.
            raise BuildError("engine-without-cpu-code", f"no CPU module among {', '.join(names)}")
        for name in names:
            _copy((binaries / name).resolve(), output / name, 0o755)


def _copy(source: Path, target: Path, mode: int) -> None:
    shutil.copyfile(source, target)
    target.chmod(mode)


def _only_names_changed(folder: Path, options: dict[str, str]) -> bool:
    """Whether the new options differ from the configured ones in strings of the program alone."""
    names = {"OPENCOTI_ABI_DIGEST", "OPENCOTI_TAG", "OPENCOTI_VERSION"}
    try:
        cached = (folder / "CMakeCache.txt").read_text(errors="replace")
    except OSError:
        return False
    known = dict(
        line.partition(":")[0::2] for line in cached.splitlines() if ":" in line and "=" in line
    )
    values = {name: rest.partition("=")[2] for name, rest in known.items()}
    return all(values.get(name) == value for name, value in options.items() if name not in names)
