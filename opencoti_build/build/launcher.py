"""The launcher step: the small static program that unpacks and starts the engine."""

from __future__ import annotations

from pathlib import Path

from opencoti_build.build.steps import Step
from opencoti_build.pack.launcher_build import build_launcher, launcher_key
from opencoti_build.paths import Cache
from opencoti_build.targets import Target
from opencoti_build.toolchains.tools import tool
from opencoti_build.toolchains.zig import zig_environment

LAUNCHER = "launcher"


def launcher_step(target: Target) -> Step:
    """The launcher of ``target`` with everything that can change its output."""
    zig = tool("zig")
    return Step(
        f"launcher {target}",
        {"launcher": launcher_key(target, zig.version), "zig": zig.to_key()},
    )


def make_launcher(target: Target, cache: Cache, output: Path) -> None:
    """Build the launcher of ``target`` into the folder ``output``. Raises BuildError."""
    zig = tool("zig")
    build_launcher(
        target,
        output / LAUNCHER,
        compiler=(str(zig.path),),
        environment=zig_environment(zig, cache.toolchains),
    )
