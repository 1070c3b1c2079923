"""Objects that are carried to another machine: nothing wrong ever gets into a cache."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from opencoti_build.build import cache_archive
from opencoti_build.build.cache_archive import export_objects, find_objects, import_objects
from opencoti_build.digest import sha256_bytes
from opencoti_build.errors import UsageError
from opencoti_build.paths import Cache
from tests.lib import fake_cuda
from tests.lib.single_file import QUIET
from tests.unit.build.test_cuda_files import ALL, Built, device, host, needs_binutils

IDS = ("0123" + "a" * 36, "01ff" + "b" * 36, "c" * 40)
HEAD = {"format": 1, "kind": "opencoti-build compiler cache", "what": "cuda", "compiler": None}


def fill(cache: Cache) -> Cache:
    """A few objects, spread as ccache does it, and what else lies there."""
    for number, name in enumerate(IDS):
        path = cache.ccache_cuda / name[0] / name[1] / name[2:]
        if number == 1:  # one level deeper
            path = cache.ccache_cuda / name[0] / name[1] / name[2] / name[3:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * 1000 * (number + 1))
    for name in ("0/stats", "0/CACHEDIR.TAG", "tmp/" + "d" * 38, "0/1/.part"):
        path = cache.ccache_cuda / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"none of it")
    return cache


def content(cache: Cache) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in find_objects(cache.ccache_cuda)}


def archive(path: Path, members: list[tuple[str, bytes]], kind: bytes = tarfile.REGTYPE) -> Path:
    """An archive with any members; ``kind`` is that of the last."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for number, (name, data) in enumerate(members, 1):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if number == len(members) and kind != tarfile.REGTYPE:
                info.type, info.size, info.linkname = kind, 0, "/etc/passwd"
            tar.addfile(info, io.BytesIO(data))
    path.write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(plain.getvalue()))
    return path


def member(name: str, data: bytes) -> tuple[str, bytes]:
    return f"{name}/{sha256_bytes(data)}", data


def head(**changes: object) -> tuple[str, bytes]:
    return "cache.json", json.dumps({**HEAD, **changes}).encode()


def end(count: int) -> tuple[str, bytes]:
    return "end.json", json.dumps({"objects": count}).encode()


def reason(action: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        action()
    return caught.value.reason


def test_objects_come_back_as_they_were(tmp_path: Path) -> None:
    cache, other = fill(Cache(tmp_path / "a")), Cache(tmp_path / "b" / "deep")
    first, second = tmp_path / "one.tar.zst", tmp_path / "two.tar.zst"
    moved = export_objects(cache, "cuda", {"version": "13.0"}, first, QUIET)
    assert (moved.objects, moved.size) == (3, 6000)
    export_objects(cache, "cuda", {"version": "13.0"}, second, QUIET)
    assert first.read_bytes() == second.read_bytes()
    assert cache_archive.read_head(first)["compiler"] == {"version": "13.0"}
    assert import_objects(other, first, QUIET).present == 0
    assert content(other) == content(cache) and len(content(cache)) == 3
    assert import_objects(other, first, QUIET).present == 3


def test_an_empty_cache_is_not_exported(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert (
        reason(lambda: export_objects(Cache(tmp_path), "cuda", None, out, QUIET)) == "cache-empty"
    )
    assert not out.exists()
    assert reason(lambda: import_objects(Cache(tmp_path), out, QUIET)) == "cache-archive-missing"


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    export_objects(fill(Cache(tmp_path / "a")), "cuda", None, whole, QUIET)
    data, cut, good = whole.read_bytes(), tmp_path / "cut", content(Cache(tmp_path / "a"))
    for size in range(0, len(data) - 4, 7):  # the last 4 bytes are zstandard's own checksum
        cut.write_bytes(data[:size])
        other = Cache(tmp_path / "b")
        assert reason(lambda: import_objects(other, cut, QUIET)) in (  # noqa: B023
            "cache-archive-truncated", "cache-archive-damaged"
        )  # fmt: skip
        assert content(other).items() <= good.items()
    assert import_objects(Cache(tmp_path / "b"), whole, QUIET).objects == 3
    assert content(Cache(tmp_path / "b")) == good


def test_every_changed_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    export_objects(fill(Cache(tmp_path / "a")), "cuda", None, whole, QUIET)
    data, bad, good = whole.read_bytes(), tmp_path / "bad", content(Cache(tmp_path / "a"))
    other = Cache(tmp_path / "b")
    for at in range(0, len(data), 3):
        bad.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        try:
            import_objects(other, bad, QUIET)
        except UsageError as error:
            assert error.reason.startswith("cache-archive-")
        assert content(other).items() <= good.items(), at


@pytest.mark.parametrize(
    ("members", "kind", "wanted"),
    [
        ([("../../evil/x", b"x")], tarfile.REGTYPE, "unsafe"),
        ([("/etc/evil", b"x")], tarfile.REGTYPE, "unsafe"),
        ([(f"{IDS[0]}/../../evil", b"x")], tarfile.REGTYPE, "unsafe"),
        ([(f"{IDS[0].upper()}/{sha256_bytes(b'x')}", b"x")], tarfile.REGTYPE, "unsafe"),
        ([member(IDS[0], b"")], tarfile.SYMTYPE, "unsafe"),
        ([member(IDS[0], b"")], tarfile.LNKTYPE, "unsafe"),
        ([member(IDS[0], b"")], tarfile.FIFOTYPE, "unsafe"),
        ([member(IDS[0], b"")], tarfile.DIRTYPE, "unsafe"),
        ([(f"{IDS[0]}/{'0' * 64}", b"x")], tarfile.REGTYPE, "damaged"),
        ([member(IDS[0], b"x")], tarfile.REGTYPE, "truncated"),
        ([member(IDS[0], b"x"), end(2)], tarfile.REGTYPE, "damaged"),
        ([member(IDS[0], b"x"), ("end.json", b"{")], tarfile.REGTYPE, "damaged"),
    ],
)
def test_members_that_no_export_writes(
    tmp_path: Path, members: list[tuple[str, bytes]], kind: bytes, wanted: str
) -> None:
    file, cache = archive(tmp_path / "f", [head(), *members], kind), Cache(tmp_path / "cache")
    assert reason(lambda: import_objects(cache, file, QUIET)) == f"cache-archive-{wanted}"
    assert not (tmp_path / "evil").exists() and not Path("/etc/evil").exists()
    assert set(content(cache)) <= ({IDS[0]} if wanted != "unsafe" else set())


def test_other_formats_and_other_files(tmp_path: Path) -> None:
    cache, path = Cache(tmp_path / "cache"), tmp_path / "f"
    for changes, wanted in (
        ({"format": 2}, "format"), ({"what": "engine"}, "format"), ({"what": "../x"}, "format"),
        ({"kind": "other"}, "damaged"), ({"format": None}, "format"),
    ):  # fmt: skip
        archive(path, [head(**changes), end(0)])
        assert reason(lambda: import_objects(cache, path, QUIET)) == f"cache-archive-{wanted}"
    archive(path, [("other.json", b"{}"), end(0)])
    assert reason(lambda: import_objects(cache, path, QUIET)) == "cache-archive-damaged"
    path.write_bytes(b"PK\x03\x04 another kind of file")
    assert reason(lambda: import_objects(cache, path, QUIET)) == "cache-archive-damaged"
    archive(path, [head(), member(IDS[2], b"whole"), end(1)])
    assert import_objects(cache, path, QUIET).objects == 1


def test_a_stopped_import_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tmp_path / "whole"
    cache = fill(Cache(tmp_path / "a"))
    export_objects(cache, "cuda", None, whole, QUIET)
    other, real, written = Cache(tmp_path / "b"), cache_archive.write_atomic, []

    def stops(path: Path, data: bytes) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(path)
        real(path, data)

    monkeypatch.setattr(cache_archive, "write_atomic", stops)
    with pytest.raises(KeyboardInterrupt):
        import_objects(other, whole, QUIET)
    assert len(content(other)) == 1
    monkeypatch.setattr(cache_archive, "write_atomic", real)
    assert import_objects(other, whole, QUIET).present == 1
    assert content(other) == content(cache)


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A file system with room for 200 KB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    return folder


def test_a_full_disk_leaves_whole_objects_or_nothing(tmp_path: Path, small_disk: Path) -> None:
    import random

    try:
        chance, cache = random.Random(3), Cache(tmp_path / "a")
        for name in IDS:
            path = cache.ccache_cuda / name[0] / name[1] / name[2:]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(chance.randbytes(90_000))
        whole, other = tmp_path / "whole", Cache(small_disk / "cache")
        with pytest.raises(OSError):
            export_objects(cache, "cuda", None, small_disk / "out", QUIET)
        assert list(small_disk.iterdir()) == []
        export_objects(cache, "cuda", None, whole, QUIET)
        with pytest.raises(OSError):
            import_objects(other, whole, QUIET)
        assert 1 <= len(content(other)) < 3 and content(other).items() <= content(cache).items()
        assert not list(other.root.rglob("*.tmp"))
    finally:
        subprocess.run(["umount", str(small_disk)], check=True)


@needs_binutils
def test_a_small_machine_only_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cache folders and two places of the compiler; ccache answers every call."""
    large = Built(tmp_path / "large", fake_cuda.install(tmp_path / "cuda"), monkeypatch)
    assert large("80", "90") != []
    out = tmp_path / "objects.tar.zst"
    export_objects(large.cache, "cuda", None, out, QUIET)
    small = Built(tmp_path / "x" / "small", fake_cuda.install(tmp_path / "other"), monkeypatch)
    assert import_objects(small.cache, out, QUIET).present == 0
    assert small("80", "90") == []
    assert small.section("two.cu") == large.section("two.cu")
    assert small("80") == host(*ALL)
    assert small("86", "90") == [*device("86", *ALL), *host(*ALL, "opencoti-gemm-sm90.cu")[:1],
                                 *host("one.cu", "opencoti-gemm-sm90.cu", "two.cu")]  # fmt: skip
