"""Builds small but real single files: the true launcher, and a tiny C program as the engine."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.pack.host import EngineFile, PackedFile, pack_host
from opencoti_build.pack.launcher_build import build_launcher
from opencoti_build.pack.manifest import entry_row
from opencoti_build.targets import Target
from opencoti_build.ui import Ui

VERSION, TAG = "0.10.3", "c3"
ABI = "ab" * 32
TARGET = Target.X86_64_LINUX
QUIET = Ui(quiet=True)

ENGINE_C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
const char *module_name(void);
int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--version"))
        return puts("opencoti-0.10.3-c3") < 0;
    if (argc > 1 && !strcmp(argv[1], "--abi"))
        return puts("opencoti-abi-ABI") < 0;
    printf("self=%s module=%s\n", getenv("OPENCOTI_SELF"), module_name());
    for (int i = 0; i < argc; i++)
        printf("<%s>", argv[i]);
    puts("");
    return argc > 2 && !strcmp(argv[1], "--exit") ? atoi(argv[2]) : 0;
}
"""
MODULE_C = 'const char *module_name(void) { return "ggml-base"; }\n'


@dataclass(frozen=True)
class Parts:
    """The built programs: launcher, engine, and a library that the engine needs."""

    launcher: Path
    engine: Path
    module: Path

    def files(self, *more: EngineFile) -> list[EngineFile]:
        """The engine's files, as ``pack_host`` takes them."""
        return [
            EngineFile("opencoti-engine", self.engine, 0o755),
            EngineFile("libggml-base.so", self.module, 0o644),
            *more,
        ]


@functools.cache
def parts() -> Parts:
    """Build the programs once a test process, with zig's usual cache."""
    folder = Path(tempfile.mkdtemp(prefix="opencoti-test-parts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = Parts(folder / "launcher", folder / "engine", folder / "libggml-base.so")
    build_launcher(TARGET, made.launcher)
    (folder / "engine.c").write_text(ENGINE_C.replace("ABI", ABI))
    (folder / "module.c").write_text(MODULE_C)
    compile_c(folder, "module.c", "-shared", "-fPIC", "-Wl,-soname,libggml-base.so",
              "-o", made.module.name)  # fmt: skip
    compile_c(folder, "engine.c", "libggml-base.so", "-Wl,-rpath,$ORIGIN",
              "-o", made.engine.name)  # fmt: skip
    return made


def compile_c(folder: Path, *arguments: str, target: str = "x86_64-linux-gnu.2.28") -> None:
    """Run zig's C compiler in ``folder``."""
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-Os", "-g0", "-s"]
    subprocess.run([*command, *arguments], cwd=folder, check=True)


def pack(out: Path, *more: EngineFile, **changes: object) -> PackedFile:
    """A complete single file with two patches; ``changes`` replace arguments of pack_host."""
    patches = {"0006-one.patch": b"From 0000\nthe first\n", "0007-two.patch": b"the second\n"}
    rows = [{"file": n, "sha256": hashlib.sha256(d).hexdigest()} for n, d in patches.items()]
    arguments: dict[str, object] = {
        "version": VERSION,
        "tag": TAG,
        "launchers": {TARGET: parts().launcher},
        "engines": {TARGET: parts().files(*more)},
        "meta": [(f"META/patches/{name}", data) for name, data in patches.items()],
        "manifest": {"base": {"tree": "0" * 40}, "patches": rows},
        "out": out,
        "ui": QUIET,
    }
    return pack_host(**{**arguments, **changes})  # type: ignore[arg-type]


def outer_manifest(packed: PackedFile) -> dict[str, object]:
    """The release manifest that would list ``packed``."""
    entries = [{**entry_row(e), "offset": e.offset} for e in packed.entries]
    row = {"file": packed.path.name, "sha256": packed.sha256, "size": packed.size}
    return {
        "format": 1,
        "targets": {str(TARGET): {"abi_digest": ABI}},
        "artifacts": [{**row, "variant": "host", "entries": entries}],
    }


def write_outer(packed: PackedFile) -> Path:
    """Write MANIFEST.json beside ``packed``."""
    path = packed.path.parent / "MANIFEST.json"
    path.write_text(json.dumps(outer_manifest(packed)))
    return path
