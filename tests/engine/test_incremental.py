"""A changed patch recompiles what it touches, and a broken one is named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from opencoti_build.series.git import write_repository
from tests.engine.conftest import Built
from tests.lib.series import PatchMaker

pytestmark = pytest.mark.engine

ONE = ("--tag", "test", "--target", "x86_64-linux")
SLUG = "extra-words"
TRAILERS = {"Feature": "host", "Gate": "none", "Class": "packaging"}


@pytest.fixture
def project(built: Built, tmp_path: Path) -> Iterator[Path]:
    """A copy of the project; the workspace is brought back to the real series afterwards."""
    real = built.context.project.root
    for name in ("patches", "recipes", "vendor", "manifests"):
        shutil.copytree(real / name, tmp_path / "project" / name)
    shutil.copy(real / "LICENSE", tmp_path / "project")
    yield tmp_path / "project"
    done = _run(real, "build", "engine", *ONE, "--json")
    assert done.returncode == 0, done.stderr


def _run(project: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "opencoti_build.cli.main", *args]
    env = {**os.environ, "OPENCOTI_BUILD_PROJECT": str(project)}
    return subprocess.run(command, capture_output=True, text=True, env=env)


def _add_patch(built: Built, project: Path, scratch: Path, old: str, new: str) -> None:
    """A new last patch that replaces ``old`` by ``new`` in the engine's main program."""
    write_repository(scratch, built.context.cache.objects)
    borrowed = (
        f"{built.context.cache.objects}/objects\n{built.pipeline.workspace.path}/.git/objects\n"
    )
    (scratch / "objects/info/alternates").write_text(borrowed)
    maker = PatchMaker(scratch, built.pipeline.workspace.tree, project / "patches")
    text = maker.read("opencoti/main.cpp").decode()
    assert text.count(old) == 1
    edited = {"opencoti/main.cpp": text.replace(old, new).encode()}
    maker.add(133, SLUG, edited, trailers=TRAILERS)


def test_one_changed_file_is_the_only_one_compiled(
    built: Built, project: Path, tmp_path: Path
) -> None:
    def build(words: str) -> int:
        """How many files are compiled when the last patch says ``words``."""
        shutil.rmtree(tmp_path / "scratch.git", ignore_errors=True)
        _add_patch(built, project, tmp_path / "scratch.git", "chat in the terminal", words)
        planned = json.loads(_run(project, "plan", *ONE, "--json").stdout)
        engine = next(step for step in planned["steps"] if step["step"].startswith("engine"))
        assert (engine["cached"], engine["changed"]) == (False, ["tree"])
        done = _run(project, "build", "engine", *ONE, "--json")
        assert done.returncode == 0, done.stderr
        shutil.rmtree(built.context.cache.steps / engine["key"])
        return int(json.loads(done.stdout)[0]["compiled"])

    # New words in every run: the store of steps outlives the test. The first build also takes in
    # what a new installation of the tools changed, such as the times of zig's headers.
    build(f"chat {uuid.uuid4().hex}")
    assert build(f"chat {uuid.uuid4().hex}") == 1


def test_a_compiler_error_names_the_patch(built: Built, project: Path, tmp_path: Path) -> None:
    _add_patch(built, project, tmp_path / "scratch.git", "return server ?", "return no_such_name ?")
    done = _run(project, "build", "engine", *ONE)
    assert done.returncode == 5
    assert "[compile-failed]" in done.stderr
    assert "no_such_name" in done.stderr
    assert f"(patch 0133-{SLUG})" in done.stderr
    assert "opencoti/main.cpp:" in done.stderr
    assert len(done.stderr.splitlines()) < 60
