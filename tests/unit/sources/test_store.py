from __future__ import annotations

import multiprocessing
import os
import subprocess
from pathlib import Path

import pytest

from opencoti_build.errors import SourceError
from opencoti_build.sources.packfile import _header
from opencoti_build.sources.store import ObjectStore
from opencoti_build.sources.tree import FileMode, ImportFile
from tests.lib.source_archives import TREE
from tests.lib.source_pins import TREE_ID


def tree_files(extra: str = "") -> list[ImportFile]:
    files = [
        ImportFile(name, FileMode.EXECUTABLE if name.endswith(".sh") else FileMode.FILE, data)
        for name, data in TREE.items()
    ]
    return [*files, ImportFile(extra, FileMode.FILE, extra.encode())] if extra else files


def test_git_agrees(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "deep" / "o.git")
    assert not store.has_tree(TREE_ID)
    assert store.import_files(tree_files()) == TREE_ID
    assert store.has_tree(TREE_ID)
    assert store.import_files(reversed(tree_files())) == TREE_ID  # again, in another order
    blob = subprocess.run(
        ["git", "-C", str(store.path), "rev-parse", f"{TREE_ID}:README.md"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    assert not store.has_tree(blob)
    done = subprocess.run(
        ["git", "-C", str(store.path), "fsck", "--strict", "--full"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "error" not in done.stderr
    subprocess.run(["git", "-C", str(store.path), "gc", "-q", "--prune=now"], check=True)
    assert not (store.path / "refs" / "trees" / TREE_ID).exists()  # packed
    assert store.has_tree(TREE_ID)


def test_mismatch_leaves_nothing(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "o.git")
    with pytest.raises(SourceError) as caught:
        store.import_files(tree_files("more"), expected=TREE_ID)
    assert caught.value.reason == "tree-mismatch"
    assert caught.value.context["expected"] == TREE_ID
    assert not list((store.path / "objects" / "pack").iterdir())


def test_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        ObjectStore(tmp_path / "o.git").import_files([])
    assert caught.value.reason == "tree-empty"


def test_remember(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "o.git")
    assert store.remembered("k") is None
    store.remember("k", store.import_files(tree_files()))
    assert store.remembered("k") == TREE_ID
    assert store.remembered("j") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_cache_of_another_user(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "o.git")
    store.import_files(tree_files())
    os.chown(store.path, 12345, 12345)
    assert store.has_tree(TREE_ID)


def import_in_process(path: Path, n: int) -> None:
    ObjectStore(path).import_files(tree_files(f"file{n}"))


def test_many_processes_create_and_import(tmp_path: Path) -> None:
    path = tmp_path / "o.git"
    spawn = multiprocessing.get_context("fork")
    jobs = [spawn.Process(target=import_in_process, args=(path, n)) for n in range(6)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0] * 6
    for n in range(6):
        assert ObjectStore(path).has_tree(ObjectStore(path).import_files(tree_files(f"file{n}")))
    assert [entry.name for entry in tmp_path.iterdir()] == ["o.git"]


@pytest.mark.parametrize(
    ("size", "raw"),
    [(0, b"\x30"), (15, b"\x3f"), (16, b"\xb0\x01"), (2048, b"\xb0\x80\x01"), (2047, b"\xbf\x7f")],
)
def test_pack_header(size: int, raw: bytes) -> None:
    assert _header(3, size) == raw
