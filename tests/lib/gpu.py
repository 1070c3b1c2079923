"""A stand-in for a GPU: a driver and a library that behave as told, built with zig.

``tests/data/gpu/driver.c`` is ``libcuda.so.1`` with the cards and faults that the environment
names, ``backend.c`` a true backend of ggml in a ``ggml-cuda.so`` whose devices are these cards.
"""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.build.cuda_note import note_text, write_note
from tests.lib.single_file import compile_c

DATA = Path(__file__).parents[1] / "data" / "gpu"
NAME = "ggml-cuda.so"
RTX_3090 = "NVIDIA GeForce RTX 3090/8.6/a1/24576"
GTX_1080 = "NVIDIA GeForce GTX 1080/6.1/b2/8192"
H200 = "NVIDIA H200/9.0/c3/143771"
ARCHITECTURES = ("80", "86")

_USED = re.compile(r"^gpu: (.+) \(compute capability [\d.]+\) with (.+) \(([a-z-]+)\)$", re.M)
_DEVICE = re.compile(r"^  (\w+): (.+) \(\d+ MiB, \d+ MiB free\)$", re.M)


def _folder(name: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"opencoti-test-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def driver() -> Path:
    """A folder with the stand-in ``libcuda.so.1``, built once a test process."""
    folder = _folder("driver")
    flags = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1")
    compile_c(folder, str(DATA / "driver.c"), *flags)
    return folder


@dataclass(frozen=True)
class Libraries:
    """Makes stand-in libraries for the engine in the folder ``engine``, of the tree ``tree``."""

    tree: Path
    engine: Path
    abi: str

    def make(
        self,
        out: Path,
        *,
        abi: str | None = None,
        architectures: tuple[str, ...] = ARCHITECTURES,
        cuda: int = 13000,
        note: bool = True,
    ) -> Path:
        """Write a library for the ABI digest ``abi`` (the engine's) to ``out``."""
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="opencoti-test-library-") as name:
            folder, sources = Path(name), [str(_backend(self.tree))]
            if note:
                text = note_text(abi or self.abi, architectures, cuda, "0.10.3")
                sources.append(write_note(folder, text).name)
            base = self.engine / "libggml-base.so.0"
            compile_c(folder, "-shared", *sources, str(base), "-o", str(out))
        return out


@functools.cache
def _backend(tree: Path) -> Path:
    folder = _folder("backend")
    includes = [f"-I{tree / name}" for name in ("ggml/include", "ggml/src")]
    defines = ["-DGGML_BACKEND_DL", "-DGGML_BACKEND_SHARED", "-DGGML_SHARED"]
    compile_c(
        folder, "-c", "-fPIC", *defines, *includes, str(DATA / "backend.c"), "-o", "backend.o"
    )
    return folder / "backend.o"


@dataclass(frozen=True)
class Run:
    """A finished run of ``--list-devices``."""

    status: int
    out: str
    err: str

    @property
    def devices(self) -> dict[str, str]:
        """The devices that ggml knows, by name, with their descriptions."""
        return dict(_DEVICE.findall(self.out))

    @property
    def lines(self) -> list[str]:
        """What the engine says about GPUs."""
        return [line for line in self.err.splitlines() if line.startswith("gpu: ")]

    @property
    def used(self) -> tuple[str, str] | None:
        """Path and source of the library that is in use."""
        found = {(path, source) for _, path, source in _USED.findall(self.err)}
        assert len(found) <= 1
        return found.pop() if found else None


def list_devices(file: Path, env: Mapping[str, str], *arguments: str, timeout: float = 60) -> Run:
    """What the single file ``file`` says of its devices."""
    command = ["sh", str(file), *arguments, "--list-devices"]
    done = subprocess.run(command, env=dict(env), capture_output=True, text=True, timeout=timeout)
    return Run(done.returncode, done.stdout, done.stderr)
