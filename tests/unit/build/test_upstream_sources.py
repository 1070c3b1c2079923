"""New files of a series in upstream's lists of sources."""

from __future__ import annotations

from pathlib import Path

from opencoti_build.build.upstream_sources import add_sources
from opencoti_build.series.series import load_series
from tests.lib.series import PatchMaker, make_store

BEFORE = """\
A := \\
\tbase/src/a.c \\
\tbase/src/b.c

B := \\
\tbase/src/a.cpp
C := \\
\tbase/src/deep/c.cpp \\
\tbase/src/deep/d.cpp
"""
AFTER = """\
A := \\
\tbase/src/new.c \\
\tbase/src/a.c \\
\tbase/src/b.c

B := \\
\tbase/src/new.cpp \\
\tbase/src/a.cpp
C := \\
\tbase/src/deep/c.cpp \\
\tbase/src/deep/d.cpp
"""


def test_a_new_file_stands_with_its_kind(tmp_path: Path) -> None:
    store, tree = make_store(tmp_path, {"src/a.c": b"a\n"})
    maker = PatchMaker(store, tree, tmp_path / "patches")
    new = ("src/new.c", "src/new.cpp", "src/new.h", "src/gone.cpp", "tests/t.cpp", "top.cpp")
    maker.add(6, "one", dict.fromkeys(new, b"x\n"))
    maker.add(7, "two", {"src/gone.cpp": None, "src/a.c": b"b\n"}, trailers={"Depends": "0006"})
    (tmp_path / "base").mkdir()
    lists = tmp_path / "base" / "BUILD.mk"
    lists.write_text(BEFORE)
    add_sources(tmp_path, "base", load_series(tmp_path / "patches"))
    assert lists.read_text() == AFTER


def test_without_lists(tmp_path: Path) -> None:
    (tmp_path / "patches").mkdir()
    add_sources(tmp_path, "base", load_series(tmp_path / "patches"))
    assert list(tmp_path.iterdir()) == [tmp_path / "patches"]
