"""Two builds in two folders, by users with other settings, give the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opencoti_build.digest import sha256_file
from tests.engine.conftest import TAG, Built

pytestmark = pytest.mark.engine


def test_another_folder_umask_timezone_and_home_give_the_same_bytes(
    built: Built, tmp_path: Path
) -> None:
    """Downloads, ccache and zig's libraries are shared, all of them found by content.

    ``OPENCOTI_TEST_COLD=1`` compiles everything again (about a quarter of an hour on two cores).
    """
    cache = tmp_path / "a folder with spaces" / "cache"
    cache.mkdir(parents=True)
    first = built.context.cache
    (cache / "downloads").symlink_to(first.downloads)
    if not os.environ.get("OPENCOTI_TEST_COLD"):
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
    command = [sys.executable, "-m", "opencoti_build.cli.main", "artifact", "--no-cuda"]
    command += ["--tag", TAG, "--out", str(out), "--quiet"]
    old = os.umask(0o027)
    try:
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    finally:
        os.umask(old)
    assert done.returncode == 0, done.stderr

    def sums(folder: Path) -> dict[str, str]:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): sha256_file(path) for path in files}

    assert sums(out) == sums(built.release.folder)
    modes = {path.name: path.stat().st_mode & 0o777 for path in out.iterdir() if path.is_file()}
    assert modes[built.file.name] == 0o755
    assert modes["MANIFEST.json"] == 0o644
