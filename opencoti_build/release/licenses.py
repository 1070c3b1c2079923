"""Licence texts of everything whose code is in the single file."""

from __future__ import annotations

from pathlib import Path

from opencoti_build.toolchains.tools import tool

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
