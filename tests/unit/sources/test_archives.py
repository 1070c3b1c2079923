"""Hostile archives, one by one, and that the tame ones give git's own tree id."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from opencoti_build.errors import SourceError
from opencoti_build.sources.archives import copy_member, read_tree
from opencoti_build.sources.store import ObjectStore
from tests.lib.source_archives import make_tar, tar_entry, tree_tar, tree_zip, zip_info
from tests.lib.source_pins import TREE_ID

OK = tar_entry("p/ok", b"1")
SYM, HARD = tarfile.SYMTYPE, tarfile.LNKTYPE


def import_bytes(tmp_path: Path, data: bytes, member: str | None) -> str:
    path = tmp_path / "a"
    path.write_bytes(data)
    return ObjectStore(tmp_path / "objects.git").import_files(read_tree(path, member))


def zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize(
    "make",
    [
        tree_tar,
        lambda: tree_tar(mode="w:xz"),
        lambda: tree_tar(mode="w:bz2"),
        lambda: tree_tar(mode="w"),
        lambda: zstd(tree_tar(mode="w")),
        lambda: tree_tar(prefix="./pkg-1.0/"),
        tree_zip,
    ],
)
def test_same_tree_from_each_format(tmp_path: Path, make: Callable[[], bytes]) -> None:
    assert import_bytes(tmp_path, make(), "pkg-1.0") == TREE_ID


HOSTILE = {
    "parent": [tar_entry("p/../../x", b"1")],
    "absolute": [tar_entry("/p/x", b"1")],
    "drive": [tar_entry("C:/x", b"1")],
    "backslash": [tar_entry("p\\..\\x", b"1")],
    "git-alias": [tar_entry("p/.GIT/config", b"1")],
    "git-short-name": [tar_entry("p/git~1/config", b"1")],
    "link-absolute": [tar_entry("p/l", kind=SYM, link="/etc/passwd")],
    "link-out": [tar_entry("p/l", kind=SYM, link="../../x")],
    "link-out-of-member": [OK, tar_entry("p/l", kind=SYM, link="../q")],
    "link-winding": [tar_entry("p/a/l", kind=SYM, link="b/../../../x")],
    "link-empty": [tar_entry("p/l", kind=SYM, link="")],
    "link-outside-member-absolute": [OK, tar_entry("q/l", kind=SYM, link="/x")],
    "through-link": [tar_entry("p/l", kind=SYM, link="ok"), tar_entry("p/l/x", b"1")],
    "hard-out": [tar_entry("p/h", kind=HARD, link="../../etc/passwd")],
    "hard-absolute": [tar_entry("p/h", kind=HARD, link="/etc/passwd")],
    "hard-out-of-member": [tar_entry("q/x", b"1"), tar_entry("p/h", kind=HARD, link="q/x")],
    "hard-nowhere": [OK, tar_entry("p/h", kind=HARD, link="p/later"), tar_entry("p/later", b"1")],
    "fifo": [tar_entry("p/f", kind=tarfile.FIFOTYPE)],
    "char-device": [tar_entry("p/d", kind=tarfile.CHRTYPE)],
    "block-device": [tar_entry("p/d", kind=tarfile.BLKTYPE)],
    "twice": [OK, tar_entry("p/ok", b"2")],
    "twice-with-dot": [OK, tar_entry("p/./ok", b"2")],
    "case": [OK, tar_entry("p/OK", b"2")],
    "case-of-folder": [tar_entry("p/a/x", b"1"), tar_entry("p/A/y", b"2")],
    "unicode-form": [tar_entry("p/\u00e9", b"1"), tar_entry("p/e\u0301", b"2")],
    "file-and-folder": [OK, tar_entry("p/ok/x", b"2")],
    "folder-and-file": [tar_entry("p/a/x", b"1"), tar_entry("p/a", b"2")],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tar(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError) as caught:
        import_bytes(tmp_path, make_tar(*HOSTILE[name]), "p")
    assert caught.value.reason == "unsafe-archive"
    assert caught.value.context["member"] and caught.value.context["why"]
    assert not list((tmp_path / "objects.git" / "objects" / "pack").iterdir())


def make_zip(*entries: tuple[zipfile.ZipInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for info, data in entries:
            archive.writestr(info, data)
    return out.getvalue()


@pytest.mark.parametrize(
    "entries",
    [
        [(zip_info("p/../../x"), b"1")],
        [(zip_info("/x"), b"1")],
        [(zip_info("p\\x"), b"1")],
        [(zip_info("p/l", kind=0o120000), b"/etc/passwd")],
        [(zip_info("p/l", kind=0o120000), b"../../x")],
        [(zip_info("p/f", kind=0o010000), b"")],
        [(zip_info("p/d", kind=0o020000), b"")],
        [(zip_info("p/a"), b"1"), (zip_info("p/A"), b"2")],
    ],
)
def test_hostile_zip(tmp_path: Path, entries: list[tuple[zipfile.ZipInfo, bytes]]) -> None:
    with pytest.raises(SourceError) as caught:
        import_bytes(tmp_path, make_zip(*entries), "p")
    assert caught.value.reason == "unsafe-archive"


def test_links_inside_are_kept(tmp_path: Path) -> None:
    entries = [
        tar_entry("p/", kind=tarfile.DIRTYPE),
        tar_entry("p/empty/", kind=tarfile.DIRTYPE),
        tar_entry("p/.git", b"gitdir: elsewhere\n"),
        tar_entry("p/a/f", b"1"),
        tar_entry("p/a/l", kind=SYM, link="../b"),
        tar_entry("p/h", kind=HARD, link="p/a/f", mode=0o755),
    ]
    tree = import_bytes(tmp_path, make_tar(*entries), "p")
    import pygit2

    repository = pygit2.Repository(str(tmp_path / "objects.git"))
    root = repository[tree]
    assert [entry.name for entry in root] == ["a", "h"]
    assert repository[root["h"].id].read_raw() == b"1"
    assert root["h"].filemode == 0o100755
    assert repository[root["a/l"].id].read_raw() == b"../b"
    assert root["a/l"].filemode == 0o120000


@pytest.mark.parametrize("data", [b"", b"no archive", tree_tar()[:-40], zstd(b"x" * 99)[:-3]])
def test_damaged(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(SourceError) as caught:
        import_bytes(tmp_path, data, None)
    assert caught.value.reason == "bad-archive"


def test_member_missing(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        import_bytes(tmp_path, tree_tar(), "pkg-2.0")
    assert caught.value.reason == "member-missing"


def test_copy_member(tmp_path: Path) -> None:
    path = tmp_path / "w.whl"
    path.write_bytes(tree_zip(prefix="", files={"a/m": b"12345", "b": b"6"}))
    sink = io.BytesIO()
    copy_member(path, "a/m", sink, 5)
    assert sink.getvalue() == b"12345"
    for member, limit, reason in [("a/m", 4, "size-mismatch"), ("a", 9, "member-missing")]:
        with pytest.raises(SourceError) as caught:
            copy_member(path, member, io.BytesIO(), limit)
        assert caught.value.reason == reason
