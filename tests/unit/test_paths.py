"""Atomic files, the project folder, the cache folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from opencoti_build.errors import UsageError
from opencoti_build.paths import atomic_path, find_cache, find_project, write_atomic


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_atomic(target, b"old")
    with pytest.raises(RuntimeError), atomic_path(target) as temporary:
        temporary.write_bytes(b"half")
        raise RuntimeError
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    import os

    old = os.umask(0o077)
    try:
        write_atomic(tmp_path / "run", b"", mode=0o755)
    finally:
        os.umask(old)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755


def test_the_project_is_found_from_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("recipes", "patches", "deep/er"):
        (tmp_path / name).mkdir(parents=True)
    assert find_project(tmp_path / "deep" / "er").root == tmp_path.resolve()
    monkeypatch.setenv("OPENCOTI_BUILD_PROJECT", str(tmp_path / "deep"))
    with pytest.raises(UsageError) as caught:
        find_project()
    assert caught.value.reason == "no-project"


def test_the_cache_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCOTI_BUILD_CACHE", str(tmp_path / "c"))
    assert find_cache().root == tmp_path / "c"
