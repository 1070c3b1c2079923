"""Our trees against git's, for names whose order is easy to get wrong."""

from __future__ import annotations

from pathlib import Path

import pygit2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opencoti_build.errors import SourceError
from opencoti_build.sources.safety import NameGuard, check_link, check_name
from opencoti_build.sources.tree import FileMode, TreeBuilder, object_id

NAME = st.text(alphabet="ab.-0_\u00e9", min_size=1, max_size=4).filter(
    lambda name: name not in (".", "..")
)
PATH = st.lists(NAME, min_size=1, max_size=4).map("/".join)
FILES = st.dictionaries(PATH, st.sampled_from(list(FileMode)), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> pygit2.Repository:
    return pygit2.init_repository(str(tmp_path_factory.mktemp("r")), bare=True)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(files=FILES)
def test_same_id_as_git(repository: pygit2.Repository, files: dict[str, FileMode]) -> None:
    ours, index = TreeBuilder(), pygit2.Index()
    guard = NameGuard()
    for path, mode in files.items():
        try:
            guard.add(check_name(path), folder=False)
        except SourceError:
            continue  # a file where a folder is
        data = path.encode()
        ours.add(path, mode, object_id("blob", data))
        blob = repository.create_blob(data)
        index.add(pygit2.IndexEntry(path, blob, pygit2.enums.FileMode(int(mode.value, 8))))
    objects: dict[bytes, bytes] = {}

    def put(kind: str, data: bytes) -> bytes:
        objects[object_id(kind, data)] = data
        return object_id(kind, data)

    assert ours.write(put).hex() == str(index.write_tree(repository))


@given(depth=st.integers(0, 3), up=st.integers(0, 5))
def test_links_stay_inside(depth: int, up: int) -> None:
    name, target = "d/" * depth + "l", "../" * up + "x"
    if up <= depth:
        check_link(name, target)
    else:
        with pytest.raises(SourceError) as caught:
            check_link(name, target)
        assert caught.value.reason == "unsafe-archive"


def test_own_builder(tmp_path: Path) -> None:
    from tests.lib.source_archives import make_repository
    from tests.lib.source_pins import TREE_ID

    assert make_repository(tmp_path / "r")[1] == TREE_ID
