"""The CUDA compiler: from the PyPI packages of the extra ``cuda``, or a system CUDA.

nvcc compiles device code itself and hands host code to a C++ compiler of the system: zig's C++
library does not go with CUDA's headers. Only objects come from here; ``build.cuda`` links them.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.digest import content_key, sha256_bytes, sha256_file
from opencoti_build.errors import BuildError
from opencoti_build.targets import Target

OLDEST = (12, 9)
"""The first CUDA with family targets such as 120f."""
USUAL = Path("/usr/local/cuda")
"""Where NVIDIA's own packages install it."""
# What decides about the bytes of device code; the same files give the same code wherever they lie.
_PROGRAMS = ("bin/nvcc", "bin/cudafe++", "bin/ptxas", "bin/fatbinary", "nvvm/bin/cicc")
# Headers of the three packages whose code is compiled in; they state their versions.
_HEADERS = ("cuda_runtime_api.h", "crt/host_config.h", "cub/version.cuh")
_LIBRARIES = {
    Target.X86_64_LINUX: ("lib", "lib64", "targets/x86_64-linux/lib"),
    Target.AARCH64_LINUX: ("targets/sbsa-linux/lib",),
}
# Compilers for host code, as systems name those for another CPU than their own.
_PREFIXES = {Target.X86_64_LINUX: "", Target.AARCH64_LINUX: "aarch64-linux-gnu-"}
_HINT = "run: pip install 'opencoti-build[cuda]', or install CUDA 12.9 or newer and set CUDA_HOME"
_VERSION = re.compile(r"release (\d+)\.(\d+), V([\d.]+)")
_RUNTIME_VERSION = re.compile(r"#define\s+CUDART_VERSION\s+(\d+)")
_CXX_NAMES = ("g++", "g++-14", "g++-13", "g++-12", "g++-11")


@dataclass(frozen=True)
class HostCxx:
    """The C++ compiler for host code, with its static C++ library and its objcopy.

    ``support`` is the compiler's own library: on Arm, its code calls functions there for atomics.
    """

    path: Path
    version: str
    library: Path
    support: Path
    objcopy: Path


@dataclass(frozen=True)
class NvccToolchain:
    """A CUDA compiler: ``root`` holds bin/, include/, nvvm/ and the libraries.

    ``host`` makes code for ``target``. ``other_runtime``: where the static runtime for it is, if
    it is not in ``root``.
    """

    root: Path
    version: str
    identity: str
    host: HostCxx
    target: Target = Target.X86_64_LINUX
    other_runtime: Path | None = None

    @property
    def nvcc(self) -> Path:
        return self.root / "bin" / "nvcc"

    @property
    def runtime(self) -> Path:
        """The static CUDA runtime. Raises BuildError ``cuda-runtime-missing``."""
        paths = (self.root / folder / "libcudart_static.a" for folder in _LIBRARIES[self.target])
        found = self.other_runtime or next((path for path in paths if path.is_file()), None)
        if found is None:
            raise BuildError(
                "cuda-runtime-missing", f"no libcudart_static.a below {self.root}", hint=_HINT
            )
        return found

    @property
    def includes(self) -> tuple[Path, ...]:
        """Folders of headers, some of which only one of the two layouts has."""
        places = ("include", "include/cccl", "cccl/include", "targets/x86_64-linux/include")
        return tuple(self.root / place for place in places if (self.root / place).is_dir())

    def to_key(self) -> dict[str, object]:
        """What of the toolchain can change a build's output, wherever it lies.

        Raises BuildError ``cuda-runtime-missing`` or ``nvcc-incomplete``.
        """
        host = {"version": self.host.version, "library": sha256_file(self.host.library)}
        return {"version": self.version, "identity": self.identity, "headers": self._headers(),
                "runtime": sha256_file(self.runtime), "host": host}  # fmt: skip

    def facts(self) -> list[dict[str, str]]:
        """What MANIFEST.json says: the compilers, and the runtime that is linked in."""
        version = _RUNTIME_VERSION.search(self._header("cuda_runtime_api.h").decode())
        number = int(version[1]) if version else 0
        cross = "" if self.target is Target.X86_64_LINUX else f" {self.target}"
        return [
            {"name": "nvcc", "version": self.version, "identity": self.identity},
            {
                "name": f"cuda-runtime{cross}",
                "version": f"{number // 1000}.{number % 1000 // 10}",
                "identity": sha256_file(self.runtime)[:32],
            },
            {
                "name": f"libstdc++{cross}",
                "version": self.host.version,
                "identity": sha256_file(self.host.library)[:32],
            },
        ]

    def license(self) -> bytes:
        """NVIDIA's licence text, which its runtime travels with.

        Raises BuildError ``cuda-license-missing``.
        """
        packages = "nvidia_cuda_runtime-*.dist-info/licenses/License.txt"
        places = ("EULA.txt", "doc/EULA.txt", f"dist-info/{packages}", f"../../{packages}")
        for place in places:
            folder, pattern = self.root, place
            while pattern.startswith("../"):
                folder, pattern = folder.parent, pattern[3:]
            for path in sorted(folder.glob(pattern)):
                return path.read_bytes()
        raise BuildError(
            "cuda-license-missing", f"CUDA in {self.root} has no licence text", hint=_HINT
        )

    def _headers(self) -> str:
        """The digest of headers, by their names below the include folders."""
        return content_key({name: sha256_bytes(self._header(name)) for name in _HEADERS})[:32]

    def _header(self, name: str) -> bytes:
        paths = (folder / name for folder in self.includes)
        found = next((path for path in paths if path.is_file()), None)
        if found is None:
            raise BuildError("nvcc-incomplete", f"CUDA in {self.root} has no {name}", hint=_HINT)
        return found.read_bytes()


def find_nvcc(target: Target = Target.X86_64_LINUX) -> NvccToolchain:
    """The installed CUDA compiler: the PyPI packages first, then CUDA_HOME, PATH, /usr/local/cuda.

    With a C++ compiler for ``target``, which may be missing where nvcc is not.

    What is named by CUDA_HOME is taken or refused; a script called nvcc on PATH is passed over.

    Raises BuildError ``nvcc-missing``, ``nvcc-too-old``, ``nvcc-incomplete`` or
    ``host-compiler-missing``.
    """
    for root in _roots():
        if (root / "bin" / "nvcc").is_file():
            return _examine(root, target)
        if str(root) == os.environ.get("CUDA_HOME"):
            break
    raise BuildError("nvcc-missing", "no CUDA compiler is installed", hint=_HINT)


def _roots() -> Iterator[Path]:
    try:
        package = importlib.metadata.distribution("nvidia-cuda-nvcc")
    except importlib.metadata.PackageNotFoundError:
        pass
    else:
        for item in package.files or ():
            if item.name == "nvcc" and item.parent.name == "bin":
                yield Path(str(package.locate_file(item))).resolve().parents[1]
    if home := os.environ.get("CUDA_HOME"):
        yield Path(home)
    if found := shutil.which("nvcc"):
        root = Path(found).resolve().parents[1]
        if all((root / name).is_file() for name in _PROGRAMS):
            yield root
    yield USUAL


def _examine(root: Path, target: Target) -> NvccToolchain:
    version = _run_version(root / "bin" / "nvcc")
    missing = [name for name in _PROGRAMS if not (root / name).is_file()]
    if missing:
        raise BuildError(
            "nvcc-incomplete",
            f"the CUDA compiler in {root} is not complete",
            context={"missing": ", ".join(missing)},
            hint=_HINT,
        )
    stats = {name: (root / name).stat() for name in _PROGRAMS}
    identity = content_key(
        {name: _digest(root / name, at.st_size, at.st_mtime_ns) for name, at in stats.items()}
    )[:32]
    return NvccToolchain(root, version, identity, _find_host(target), target)


@functools.cache
def _digest(program: Path, _size: int, _changed: int) -> str:
    """Kept for a run: they are large, and asked for by each target and step."""
    return sha256_file(program)


def _run_version(nvcc: Path) -> str:
    try:
        text = subprocess.run([str(nvcc), "--version"], capture_output=True, text=True).stdout
    except OSError as error:
        raise BuildError("nvcc-missing", f"{nvcc} does not start: {error}", hint=_HINT) from None
    match = _VERSION.search(text)
    if match is None:
        raise BuildError("nvcc-missing", f"{nvcc} does not tell its version", hint=_HINT)
    if (int(match[1]), int(match[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise BuildError("nvcc-too-old", f"CUDA {match[3]} is older than {oldest}", hint=_HINT)
    return match[3]


def _find_host(target: Target) -> HostCxx:
    prefix = _PREFIXES[target]
    for name in _CXX_NAMES:
        if path := shutil.which(prefix + name):
            library = Path(_output(path, "-print-file-name=libstdc++.a"))
            objcopy = shutil.which(_output(path, "-print-prog-name=objcopy"))
            support = Path(_output(path, "-print-libgcc-file-name"))
            if library.is_file() and support.is_file() and objcopy:
                version = _output(path, "-dumpfullversion")
                return HostCxx(
                    Path(path), version, library.resolve(), support.resolve(), Path(objcopy)
                )
    raise BuildError(
        "host-compiler-missing",
        f"nvcc needs {prefix}g++ with its static C++ library and binutils for host code",
        hint=f"install g++{'-' if prefix else ''}{prefix[:-1]} with the system's package manager",
    )


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()
