"""What is taken out of a build folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from opencoti_build.build.engine import ENGINE, EngineBuilder, EngineSpec, program_name
from opencoti_build.errors import BuildError
from opencoti_build.paths import Cache
from opencoti_build.targets import Target
from opencoti_build.toolchains.zig import zig_toolchain
from opencoti_build.ui import Ui
from tests.lib.single_file import ABI

CASES = {
    # target, what CMake leaves behind, what the engine needs of it
    "variants": (
        Target.X86_64_LINUX,
        ["libggml-base.so", "libggml-base.so.0", "libggml-base.so.0.13.1", "libggml.so",
         "libggml.so.0", "libggml-cpu-haswell.so", "libggml-cpu-armv8.2_2.so", "test-chat"],
        ["libggml-base.so.0", "libggml.so.0", "libggml-cpu-haswell.so",
         "libggml-cpu-armv8.2_2.so"],
    ),
    # As the gates build it: one module, without a name of its own.
    "one": (
        Target.X86_64_LINUX,
        ["libggml-base.so.0", "libggml.so.0", "libggml-cpu.so", "libllama.so.0.so"],
        ["libggml-base.so.0", "libggml.so.0", "libggml-cpu.so"],
    ),
    "macos": (
        Target.AARCH64_MACOS,
        ["libggml-base.0.dylib", "libggml-base.dylib", "libggml.0.dylib",
         "libggml-cpu-apple_m1.so"],
        ["libggml-base.0.dylib", "libggml.0.dylib", "libggml-cpu-apple_m1.so"],
    ),
    "windows": (
        Target.X86_64_WINDOWS,
        ["ggml-base.dll", "ggml.dll", "ggml-cpu-sse42.dll", "ggml.lib"],
        ["ggml-base.dll", "ggml.dll", "ggml-cpu-sse42.dll"],
    ),
}  # fmt: skip


def builder(target: Target, folder: Path, files: list[str]) -> EngineBuilder:
    toolchain = zig_toolchain(target, "2.28" if target is Target.X86_64_LINUX else "11.0")
    spec = EngineSpec(target, "tree", "base", "1.0", "dev", toolchain, (), ABI)
    made = EngineBuilder(spec, folder / "workspace", Cache(folder / "cache"), Ui(quiet=True))
    (made.folder / "bin").mkdir(parents=True)
    for name in [*files, program_name(target)]:
        (made.folder / "bin" / name).write_text(name)
    return made


@pytest.mark.parametrize("case", CASES)
def test_the_engine_and_its_modules_are_collected(tmp_path: Path, case: str) -> None:
    target, there, wanted = CASES[case]
    builder(target, tmp_path, there)._collect(tmp_path / "out", [ENGINE])
    found = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()}
    assert found == dict.fromkeys([*wanted, program_name(target)], 0o755)


def test_an_engine_without_cpu_code_is_refused(tmp_path: Path) -> None:
    made = builder(Target.X86_64_LINUX, tmp_path, ["libggml-base.so.0", "libggml.so.0"])
    with pytest.raises(BuildError) as caught:
        made._collect(tmp_path / "out", [ENGINE])
    assert caught.value.reason == "engine-without-cpu-code"
