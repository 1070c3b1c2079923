"""Builds the C launcher for a target with zig: a small program, the same bytes anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from opencoti_build.digest import content_key, sha256_bytes
from opencoti_build.errors import BuildError
from opencoti_build.paths import atomic_path
from opencoti_build.targets import FACTS, System, Target

FLAGS = (
    "-std=gnu11", "-Os", "-g0", "-Wall", "-Wextra", "-Werror", "-fno-sanitize=undefined",
    "-fno-ident", "-ffunction-sections", "-fdata-sections",
)  # fmt: skip
# Each link builds the C library of its target, for its own optimisation and CPU; that of Windows
# takes longer than everything else here, so it is the one that the engine is linked with.
LINK_FLAGS = {
    System.LINUX: ("-static", "-s", "-Wl,--gc-sections", "-Wl,--build-id=none"),
    System.MACOS: ("-s", "-Wl,-dead_strip"),
    System.WINDOWS: (
        "-O3", f"-mcpu={FACTS[Target.X86_64_WINDOWS].cpu}", "-s", "-Wl,--gc-sections",
        "-Wl,--dynamicbase", "-Wl,--nxcompat", "-Wl,--high-entropy-va", "-ladvapi32", "-lshell32",
    ),
}  # fmt: skip
OTHER_SYSTEM = {System.LINUX: "windows", System.MACOS: "windows", System.WINDOWS: "posix"}
"""The beginning of the names of the C files that a system leaves out."""
STEP_VERSION = 3


def launcher_sources(target: Target = Target.X86_64_LINUX) -> tuple[Path, ...]:
    """The launcher's C files and headers for ``target``, sorted by name."""
    folder = Path(str(resources.files("opencoti_build.pack").joinpath("launcher")))
    left_out = OTHER_SYSTEM[target.system]
    files = (path for path in folder.iterdir() if path.suffix in (".c", ".h"))
    return tuple(sorted(path for path in files if not path.name.startswith(left_out)))


def launcher_key(target: Target, compiler: str) -> str:
    """The content key of the launcher for ``target`` built by ``compiler`` (its version)."""
    sources = {path.name: sha256_bytes(path.read_bytes()) for path in launcher_sources(target)}
    return content_key(
        {
            "step": "launcher", "version": STEP_VERSION, "target": target.value,
            "compiler": compiler, "flags": [*FLAGS, *LINK_FLAGS[target.system]], "sources": sources,
        }
    )  # fmt: skip


def build_launcher(
    target: Target,
    out: Path,
    *,
    compiler: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Build the launcher for ``target`` as ``out`` and return ``out``.

    ``compiler`` is the command that runs zig (default: the ``ziglang`` package of this Python);
    ``environment`` has variables for it, such as its cache folders (default: zig's own and a
    temporary one). Raises BuildError ``launcher-failed`` or ``no-zig``.
    """
    command = [*(compiler or (sys.executable, "-m", "ziglang")), "cc"]
    command += ["-target", FACTS[target].launcher_triple]
    with tempfile.TemporaryDirectory(prefix="opencoti-launcher-") as scratch:
        cache = {"ZIG_LOCAL_CACHE_DIR": str(Path(scratch) / "zig")}
        env = {**os.environ, **cache, **(environment or {})}
        # Relative names from the source folder, and always the same name for the output (it is
        # part of a macOS signature): nothing of this machine or run reaches the program.
        sources = launcher_sources(target)
        folder = sources[0].parent
        flags = [*FLAGS, f"-ffile-prefix-map={folder}=.", f'-DOPENCOTI_TARGET="{target.value}"']
        objects = []
        for source in sources:
            if source.suffix == ".c":
                objects.append(str(Path(scratch).absolute() / f"{source.stem}.o"))
                _run([*command, *flags, "-c", source.name, "-o", objects[-1]], folder, env)
        made = Path(scratch).absolute() / "launcher"
        _run([*command, *objects, "-o", str(made), *LINK_FLAGS[target.system]], folder, env)
        with atomic_path(out, 0o755) as temporary:
            shutil.copyfile(made, temporary)
    return out


def _run(command: list[str], folder: Path, env: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    except FileNotFoundError as error:
        raise BuildError(
            "no-zig", "zig cannot be started", hint="pip install ziglang", context={"why": error}
        ) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        hint = "pip install ziglang" if "No module named ziglang" in done.stderr else None
        raise BuildError(
            "no-zig" if hint else "launcher-failed",
            "the launcher does not compile",
            hint=hint,
            context={"output": "\n".join(lines[-20:])},
        )
