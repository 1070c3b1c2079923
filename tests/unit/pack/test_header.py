"""The prologue: its layout and limits, and the start script's cleanliness."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from opencoti_build.errors import PackError
from opencoti_build.pack.header import (
    MAX_SCRIPT_SIZE,
    PROLOGUE_SIZE,
    LauncherPlace,
    render_prologue,
    render_script,
)
from opencoti_build.targets import Target

LARGEST = {target: LauncherPlace(1 << 33, 1 << 30, "f" * 64) for target in Target}


def test_layout() -> None:
    head = render_prologue("0.10.3", LARGEST)
    assert len(head) == PROLOGUE_SIZE
    assert head.startswith(b"MZqFpD='\n")
    assert head[0x3C:0x40] == bytes(4)
    assert head[0x40:0x42] == b"'\n"
    assert max(head) < 0x7F
    assert b"\0" not in head.split(b"\n")[0]
    assert head.rstrip(b"\0").endswith(b"\nexit 126\n")


def test_script_with_all_targets_fits() -> None:
    assert len(render_script("v" * 64, LARGEST)) <= MAX_SCRIPT_SIZE


@pytest.mark.parametrize("version", ["", "a b", "$(id)", "../x", "'", "-x", "x" * 65])
def test_versions_that_are_not_words(version: str) -> None:
    with pytest.raises(PackError) as caught:
        render_script(version, {})
    assert caught.value.reason == "pack-bad-word"


def test_shellcheck(tmp_path: Path) -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    script = tmp_path / "start.sh"
    script.write_bytes(b"#!/bin/sh\n" + render_script("0.10.3", LARGEST))
    done = subprocess.run(["shellcheck", "-s", "sh", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
