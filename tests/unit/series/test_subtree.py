"""A series for a folder of a larger tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from opencoti_build.errors import SeriesError
from opencoti_build.series.git import Git
from opencoti_build.series.series import load_series
from opencoti_build.series.subtree import apply_below
from opencoti_build.ui import Ui
from tests.lib.series import PatchMaker, make_store, write_tree

UI = Ui(quiet=True)
FILES = {"a.c": b"one\ntwo\n", "b.c": b"b\n"}


@pytest.mark.parametrize("root", ["base", "deep/er/base"])
def test_only_the_folder_changes(tmp_path: Path, root: str) -> None:
    store, tree = make_store(tmp_path, FILES)
    maker = PatchMaker(store, tree, tmp_path / "patches")
    maker.add(6, "one", {"a.c": b"one\n2\n", "new/c.c": b"c\n", "b.c": None})
    around = {"z": b"z\n", "deep/x": b"x\n", "a.c": b"not this one\n"}
    whole = {**around, **{f"{root}/{name}": data for name, data in FILES.items()}}
    before = write_tree(store, None, whole, tmp_path / "i")
    git = Git(store, index=tmp_path / "index")
    after, plan = apply_below(git, load_series(tmp_path / "patches"), before, root, UI)
    patched = {"a.c": b"one\n2\n", "new/c.c": b"c\n"}
    expected = {**around, **{f"{root}/{name}": data for name, data in patched.items()}}
    assert after == write_tree(store, None, expected, tmp_path / "i")
    assert [result.name for result in plan.commits] == ["0006-one"]


@pytest.mark.parametrize("root", ["nowhere", "base/a.c", "base/nowhere"])
def test_no_such_folder(tmp_path: Path, root: str) -> None:
    store, _ = make_store(tmp_path, FILES)
    (tmp_path / "patches").mkdir()
    tree = write_tree(store, None, {"base/a.c": b"a\n"}, tmp_path / "i")
    git = Git(store, index=tmp_path / "index")
    with pytest.raises(SeriesError) as caught:
        apply_below(git, load_series(tmp_path / "patches"), tree, root, UI)
    assert caught.value.reason == "patch-root-missing"
