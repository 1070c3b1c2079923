"""The release folder of a real build, its second run, and its verification."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from opencoti_build.digest import sha256_file
from opencoti_build.release.manifest import check
from opencoti_build.ui import Ui
from opencoti_build.verify.single import verify_file
from tests.engine.conftest import TAG, Built

pytestmark = pytest.mark.engine


def test_the_folder_holds_what_the_manifest_says(built: Built) -> None:
    folder = built.release.folder
    manifest = json.loads((folder / "MANIFEST.json").read_bytes())
    check(manifest, built.context.project.root)
    assert manifest["workspace_tree"] == built.pipeline.workspace.tree
    patches = sorted(path.name for path in (folder / "patches").iterdir())
    assert [item["file"] for item in manifest["patches"]] == patches
    assert len(patches) >= 4
    for artifact in manifest["artifacts"]:
        path = folder / artifact["file"]
        assert (path.stat().st_size, sha256_file(path)) == (artifact["size"], artifact["sha256"])


def test_sha256sums_is_complete_and_right(built: Built) -> None:
    folder = built.release.folder
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True)
    assert done.returncode == 0
    named = {line.split("  ", 1)[1] for line in (folder / "SHA256SUMS").read_text().splitlines()}
    there = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert there - named == {"SHA256SUMS"}


def test_the_tree_can_be_made_again_with_git_alone(built: Built, tmp_path: Path) -> None:
    """As BUILD_INFO.md says: the base, the patches of the release, and git am."""
    tree, store = tmp_path / "tree", built.context.cache.objects
    env = {**os.environ, "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    for name in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{name}_NAME": "someone", f"GIT_{name}_EMAIL": "someone@example.org"}

    def git(*args: str, cwd: Path = tree) -> str:
        done = subprocess.run(["git", *args], cwd=cwd, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    tree.mkdir()
    git("init", "-q")
    (tree / ".git/objects/info/alternates").write_text(f"{store}/objects\n")
    base = git("commit-tree", "-m", "base", built.pipeline.workspace.base_tree)
    git("checkout", "-q", base)
    patches = sorted(map(str, (built.release.folder / "patches").iterdir()))
    git("am", "-q", "--3way", *patches)
    assert git("rev-parse", "HEAD^{tree}") == built.pipeline.workspace.tree


def test_other_zip_readers_list_it(built: Built) -> None:
    with zipfile.ZipFile(built.file) as archive:
        assert archive.testzip() is None
        assert "META/manifest.json" in archive.namelist()
    done = subprocess.run(["unzip", "-l", built.file], capture_output=True, text=True)
    assert done.returncode == 0
    assert "engine/x86_64-linux/opencoti-engine" in done.stdout


def test_verify_accepts_it(built: Built) -> None:
    manifest = json.loads((built.release.folder / "MANIFEST.json").read_bytes())
    for given in (manifest, None):
        report = verify_file(built.file, given, Ui(quiet=True))
        assert [item for item in report.findings if not item.ok] == []


def test_a_second_artifact_run_compiles_nothing(built: Built, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "opencoti_build.cli.main", "artifact"]
    command += [
        "--tag",
        TAG,
        "--out",
        str(built.release.folder),
        "--offline",
        "--no-cuda",
        *built.target_options,
    ]
    before = built.file.stat().st_mtime_ns
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "compile" not in done.stderr
    assert built.file.stat().st_mtime_ns == before


def test_the_engine_has_no_path_of_this_machine(built: Built) -> None:
    engine = built.pipeline.engine(built.context.targets[0])
    for path in engine.files():
        data = path.read_bytes()
        for needle in (str(built.context.cache.root), str(Path.home()) + "/"):
            assert needle.encode() not in data, path.name
