"""Licence texts of everything whose code is in the single file."""

from __future__ import annotations

import zipfile
from pathlib import Path

from opencoti_build.errors import BuildError
from opencoti_build.sources.context import FetchContext
from opencoti_build.sources.fetch import ensure_file
from opencoti_build.sources.pins import find_pin, load_pins
from opencoti_build.toolchains.nvcc import NvccToolchain
from opencoti_build.toolchains.tools import tool

# Of what CUDA's packages (not a system CUDA) and no package at all carry.
_TEXTS = Path(__file__).parent / "texts"
_RUNTIME, _LICENSE = "nvidia-cuda-runtime", ".dist-info/licenses/License.txt"

# Inside the zig package: what the compiler links into every program.
_TOOLCHAIN = {
    "libcxx.txt": "lib/libcxx/LICENSE.TXT",
    "libcxxabi.txt": "lib/libcxxabi/LICENSE.TXT",
    "libunwind.txt": "lib/libunwind/LICENSE.TXT",
    "musl.txt": "lib/libc/musl/COPYRIGHT",
    "zig.txt": "LICENSE",
}


def license_entries(workspace: Path, project_root: Path) -> list[tuple[str, bytes]]:
    """``(name under META/LICENSES, text)`` pairs, sorted by name."""
    entries = {"opencoti.txt": project_root / "LICENSE", "llama.cpp.txt": workspace / "LICENSE"}
    for path in (workspace / "licenses").glob("LICENSE-*"):
        entries[f"{path.name.removeprefix('LICENSE-')}.txt"] = path
    zig = tool("zig").path.parent
    for name, relative in _TOOLCHAIN.items():
        if (zig / relative).is_file():
            entries[name] = zig / relative
    return [(f"META/LICENSES/{name}", entries[name].read_bytes()) for name in sorted(entries)]


def gpu_license_entries(
    nvcc: NvccToolchain, vendor: Path, context: FetchContext
) -> list[tuple[str, bytes]]:
    """As above, for what is in the CUDA library: CUDA's runtime, templates, the C++ library.

    A CUDA without NVIDIA's licence text (container images leave it out) gets that of the pinned
    runtime. Raises SourceError when that cannot be fetched.
    """
    texts = {path.name: path.read_bytes() for path in _TEXTS.glob("*.txt")}
    try:
        texts["nvidia-cuda.txt"] = nvcc.license()
    except BuildError:
        wheel = ensure_file(find_pin(load_pins(vendor), _RUNTIME), context)
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (item for item in archive.namelist() if item.endswith(_LICENSE))
            texts["nvidia-cuda.txt"] = archive.read(name)
    return [(f"META/LICENSES/{name}", texts[name]) for name in sorted(texts)]
