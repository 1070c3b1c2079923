"""Two builds in two folders, by users with other settings, give the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opencoti_build.build.pipeline import Pipeline
from opencoti_build.digest import sha256_file
from opencoti_build.release.folder import make_release
from tests.engine.conftest import TAG, Built

pytestmark = pytest.mark.engine


def test_another_folder_umask_timezone_and_home_give_the_same_bytes(
    built: Built, tmp_path: Path
) -> None:
    """Downloads, ccache and zig's libraries are shared, all of them found by content.

    ``OPENCOTI_TEST_COLD=1`` compiles everything again, and for all targets.
    """
    cold = bool(os.environ.get("OPENCOTI_TEST_COLD"))
    context = built.context
    if not cold:
        context = replace(context, targets=context.recipe.select(("x86_64-linux",)))
    release = make_release(Pipeline(context, built.pipeline.workspace), tmp_path / "first")
    cache = tmp_path / "a folder with spaces" / "cache"
    cache.mkdir(parents=True)
    first = built.context.cache
    (cache / "downloads").symlink_to(first.downloads)
    if not cold:
        (cache / "ccache").symlink_to(first.ccache)
        (cache / "toolchains").mkdir()
        (cache / "toolchains/zig-cache").symlink_to(first.toolchains / "zig-cache")
    env = {
        **os.environ,
        "OPENCOTI_BUILD_CACHE": str(cache),
        "OPENCOTI_BUILD_PROJECT": str(built.context.project.root),
        "HOME": str(tmp_path),
        "TZ": "Asia/Kathmandu",
        "LC_ALL": "C.UTF-8",
        "CFLAGS": "-DSTRAY",
        "SOURCE_DATE_EPOCH": "86400",
    }
    out = tmp_path / "dist"
    command = [sys.executable, "-m", "opencoti_build.cli.main", "artifact"]
    command += ["--tag", TAG, "--out", str(out), "--quiet", "--no-cuda"]
    command += [word for item in context.targets for word in ("--target", str(item.target))]
    old = os.umask(0o027)
    try:
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    finally:
        os.umask(old)
    assert done.returncode == 0, done.stderr

    def sums(folder: Path) -> dict[str, str]:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): sha256_file(path) for path in files}

    assert sums(out) == sums(release.folder)
    modes = {path.name: path.stat().st_mode & 0o777 for path in out.iterdir() if path.is_file()}
    assert modes[release.artifacts[0].name] == 0o755
    assert modes["MANIFEST.json"] == 0o644
