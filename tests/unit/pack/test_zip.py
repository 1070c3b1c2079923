"""Zip writer and reader: round trips, determinism, zip64, and files that must be refused."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import struct
import subprocess
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opencoti_build.errors import PackError
from opencoti_build.pack import zipformat as z
from opencoti_build.pack.inflate import decompress
from opencoti_build.pack.zipreader import read_entry, read_zip
from opencoti_build.pack.zipwriter import ZipWriter, pad


def write(path: Path, items: dict[str, bytes], align: int = 1, start: int = 0) -> bytes:
    with path.open("w+b", buffering=0) as stream:
        stream.seek(start)
        writer = ZipWriter(stream)
        for name, data in items.items():
            writer.add_bytes(name, data, align=align)
        writer.finish()
    return path.read_bytes()


@pytest.fixture
def sample(tmp_path: Path) -> bytes:
    return write(tmp_path / "sample", {"one": b"1" * 40, "dir/two": b"2" * 50}, start=64)


def reason(data: bytes) -> str:
    with pytest.raises(PackError) as caught:
        read_zip(data)
    return caught.value.reason


def patch(data: bytes, offset: int, new: bytes) -> bytes:
    return data[:offset] + new + data[offset + len(new) :]


def local_of(data: bytes, name: bytes) -> int:
    return data.index(name) - z.LOCAL.size


def central_of(data: bytes, name: bytes) -> int:
    return data.rindex(name) - z.CENTRAL.size


def end_of(data: bytes) -> int:
    return len(data) - z.END.size


def test_round_trip_and_other_readers(tmp_path: Path) -> None:
    items = {"a": b"", "b/c.so": os.urandom(70000), "ünï": b"x", ".args": b"-m\n"}
    data = write(tmp_path / "f", items, align=z.ALIGNMENT, start=4096)
    layout = read_zip(data)
    assert [entry.name for entry in layout.entries] == list(items)
    assert layout.prologue_size == 4096 and layout.size == len(data)
    for entry in layout.entries:
        assert entry.data_offset % z.ALIGNMENT == 0
        assert data[entry.data_offset : entry.end] == items[entry.name]
        assert entry.crc32 == zlib.crc32(items[entry.name])
    with zipfile.ZipFile(tmp_path / "f") as other:
        assert other.testzip() is None
        assert {info.filename: other.read(info) for info in other.infolist()} == items
        assert {info.date_time for info in other.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_add_file_copies_and_hashes(tmp_path: Path) -> None:
    body = os.urandom(9 << 20)
    (tmp_path / "source").write_bytes(body)
    with (tmp_path / "out").open("w+b", buffering=0) as stream:
        written = ZipWriter(stream)
        one = written.add_file("big.so", tmp_path / "source", mode=0o755, align=z.ALIGNMENT)
        written.finish()
    assert one.sha256 == hashlib.sha256(body).hexdigest()
    data = (tmp_path / "out").read_bytes()
    entry = read_zip(data).entries[0]
    assert entry == one.entry and data[entry.data_offset : entry.end] == body


def test_same_bytes_whatever_the_machine_says(tmp_path: Path, monkeypatch) -> None:
    first = write(tmp_path / "a", {"x": b"1", "y": b"2"}, align=4096)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    mask = os.umask(0o077)
    try:
        assert write(tmp_path / "b", {"x": b"1", "y": b"2"}, align=4096) == first
    finally:
        os.umask(mask)


@given(st.integers(0, 1 << 20), st.sampled_from([1, 64, 4096, 65536]))
def test_padding_always_fits(offset: int, align: int) -> None:
    gap, field = pad(offset, align, z.MAX16)
    assert (offset + gap + field) % align == 0
    assert field == 0 or 4 <= field <= z.MAX16
    assert gap <= z.MAX_GAP


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=100), st.booleans()), min_size=1, max_size=8),
    st.integers(0, 99),
)
def test_any_sizes_read_back(items, start: int) -> None:
    import tempfile

    with tempfile.TemporaryFile(buffering=0) as stream:
        stream.seek(start)
        writer = ZipWriter(stream)  # type: ignore[arg-type]
        for count, (body, aligned) in enumerate(items):
            writer.add_bytes(f"n{count}", body, align=z.ALIGNMENT if aligned else 1)
        size = writer.finish()
        layout = read_zip(os.pread(stream.fileno(), size + 1, 0))
    assert [entry.size for entry in layout.entries] == [len(body) for body, _ in items]


def test_zip64_offsets(tmp_path: Path) -> None:
    """An entry and a directory past 4 GiB (a sparse file)."""
    path = tmp_path / "sparse"
    with path.open("w+b", buffering=0) as stream:
        stream.seek(5 << 30)
        writer = ZipWriter(stream)
        writer.add_bytes("far.gguf", b"weights", align=z.ALIGNMENT)
        writer.add_bytes("next", b"")
        writer.finish()
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            layout = read_zip(data)
    assert layout.entries[0].header_offset == 5 << 30
    with zipfile.ZipFile(path) as other:
        assert other.read("far.gguf") == b"weights"


@pytest.mark.parametrize("size", [z.MAX32 - 1, z.MAX32, z.MAX32 + 1, 5 << 30])
def test_zip64_sizes(tmp_path: Path, size: int) -> None:
    """A stored entry around the 32-bit limit (a sparse file; headers by the format module)."""
    name = "m.gguf"
    head = z.LOCAL.size + len(name) + (20 if size >= z.MAX32 else 0)
    entry = z.ZipEntry(name, 0o644, size, 0, 0, head)
    directory = z.central_header(entry)
    with (tmp_path / "sparse").open("w+b", buffering=0) as stream:
        stream.write(z.local_header(entry, b""))
        stream.seek(head + size)
        stream.write(directory + z.end_records(1, len(directory), head + size))
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            assert read_zip(data).entries == (entry,)
    with zipfile.ZipFile(tmp_path / "sparse") as other:
        assert other.infolist()[0].file_size == size


def test_many_entries_need_zip64(tmp_path: Path) -> None:
    entries = [z.ZipEntry(f"{n:05}", 0o644, 0, 0, 35 * n, 35 * n + 35) for n in range(65536)]
    locals_ = b"".join(z.local_header(entry, b"") for entry in entries)
    directory = b"".join(map(z.central_header, entries))
    data = locals_ + directory + z.end_records(len(entries), len(directory), len(locals_))
    assert len(read_zip(data).entries) == 65536


@pytest.mark.parametrize(
    "name",
    ["../x", "/x", "a/../b", "a//b", "a/", ".", "", "a\\b", "C:x", "a\0b", "a\nb", "x" * 1025],
)
def test_unsafe_names_are_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(PackError) as caught:
        write(tmp_path / "f", {name: b""})
    assert caught.value.reason == "zip-unsafe-name"


@pytest.mark.parametrize(
    "names", [("a", "A"), ("ß", "SS"), ("d", "d/e"), ("d/e", "D"), ("\u00e9", "e\u0301")]
)
def test_names_that_merge_are_not_written(tmp_path: Path, names: tuple[str, str]) -> None:
    with pytest.raises(PackError) as caught:
        write(tmp_path / "f", dict.fromkeys(names, b""))
    assert caught.value.reason == "zip-duplicate-name"


def test_a_source_that_shrinks_is_refused(tmp_path: Path, monkeypatch) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"12345678")
    real = os.preadv

    def shrink(fd, buffers, offset):
        source.write_bytes(b"1234")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", shrink)
    with (tmp_path / "out").open("w+b", buffering=0) as stream:
        with pytest.raises(PackError) as caught:
            ZipWriter(stream).add_file("x", source)
    assert caught.value.reason == "zip-source-changed"


def test_hostile_tails(sample: bytes) -> None:
    end = end_of(sample)
    assert reason(b"") == "zip-no-end-record"
    assert reason(z.end_records(0, 0, 0)) == "zip-empty"
    assert reason(sample[:-1]) == "zip-no-end-record"
    assert reason(sample + b"\0") == "zip-trailing-bytes"
    assert reason(sample + b"x" * 65000) == "zip-trailing-bytes"
    assert reason(patch(sample, end + 20, b"\3\0") + b"abc") == "zip-comment"
    assert reason(patch(sample, end + 20, b"\3\0")) == "zip-trailing-bytes"
    assert reason(patch(sample, end + 4, b"\1")) == "zip-multi-disk"
    assert reason(patch(sample, end + 8, b"\1")) == "zip-count-mismatch"
    assert reason(patch(sample, end + 8, b"\1\0\1\0")) == "zip-count-mismatch"
    assert reason(patch(sample, end + 8, b"\3\0\3\0")) == "zip-count-mismatch"
    assert reason(patch(sample, end + 12, b"\xff\xff\xff\x7f")) == "zip-directory-out-of-file"
    assert reason(patch(sample, end + 16, b"\xff\xff\xff\xfe")) == "zip-directory-out-of-file"
    assert reason(patch(sample, end + 16, struct.pack("<I", 3))) == "zip-directory-mismatch"


@pytest.mark.parametrize("offset", [8, 12, 16])
def test_zip64_sentinel_without_records(sample: bytes, offset: int) -> None:
    """llamafile #1038: a sentinel whose 64-bit value is absent."""
    wide = b"\xff\xff\xff\xff"
    assert reason(patch(sample, end_of(sample) + offset, wide)) == "zip-zip64-inconsistent"


def test_bytes_before_the_file_are_found(sample: bytes) -> None:
    assert reason(b"#!/bin/sh\n" + sample) == "zip-directory-mismatch"


def test_two_end_records(tmp_path: Path) -> None:
    inner = z.end_records(0, 0, 0)
    fake = inner[:-2] + struct.pack("<H", 4 + z.CENTRAL.size + 1 + z.END.size)
    assert reason(write(tmp_path / "f", {"a": fake + b"1234"})) == "zip-many-end-records"
    whole = write(tmp_path / "g", {"a": b"1"})
    at = central_of(whole, b"a")
    named = patch(whole, at + z.CENTRAL.size, b"b")
    assert reason(named) == "zip-local-mismatch"
    assert read_zip(write(tmp_path / "h", {"a": z.END_MAGIC + b"only text"}))


@pytest.mark.parametrize(
    ("offset", "new", "expected"),
    [
        (4, b"\x15", "zip-bad-field"),  # made by
        (6, b"\x15", "zip-bad-field"),  # version needed
        (8, b"\x01", "zip-encrypted"),
        (8, b"\x08", "zip-data-descriptor"),
        (9, b"\x08", "zip-bad-field"),  # UTF-8 flag on an ASCII name
        (10, b"\x08", "zip-method"),
        (12, b"\x01", "zip-bad-field"),  # time
        (14, b"\x22", "zip-bad-field"),  # date
        (16, b"\x00\x00\x00\x00", "zip-local-mismatch"),  # crc
        (20, b"\x27", "zip-size-mismatch"),
        (20, b"\xff\xff\xff\xff", "zip-zip64-inconsistent"),
        (24, b"\xff\xff\xff\xff", "zip-zip64-inconsistent"),
        (42, b"\xff\xff\xff\xff", "zip-zip64-inconsistent"),
        (28, b"\xff\xff", "zip-out-of-file"),  # name length
        (30, b"\x02", "zip-unknown-extra"),
        (32, b"\x01", "zip-comment"),
        (34, b"\x01", "zip-multi-disk"),
        (36, b"\x01", "zip-bad-field"),  # internal attributes
        (38, b"\x10", "zip-bad-field"),  # DOS attributes
        (41, b"\xa1", "zip-bad-field"),  # a symlink
        (42, b"\x00\x00\xff\x00", "zip-out-of-file"),
        (42, b"\x41", "zip-local-mismatch"),
    ],
)
def test_hostile_directory(sample: bytes, offset: int, new: bytes, expected: str) -> None:
    assert reason(patch(sample, central_of(sample, b"one") + offset, new)) == expected


@pytest.mark.parametrize("offset", range(z.LOCAL.size + 3))
def test_every_local_header_byte_counts(sample: bytes, offset: int) -> None:
    at = local_of(sample, b"one") + offset
    for bit in range(8):
        with pytest.raises(PackError):
            read_zip(patch(sample, at, bytes([sample[at] ^ 1 << bit])))


ENGINE = "engine/t/e"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A compressed entry between two stored ones."""
    folder = tmp_path_factory.mktemp("packed")
    (folder / "e").write_bytes(b"a program, " * 500)
    with (folder / "f").open("w+b", buffering=0) as stream:
        writer = ZipWriter(stream)
        writer.add_bytes("one", b"1")
        writer.add_packed(ENGINE, folder / "e", mode=0o755, align=z.ALIGNMENT)
        writer.add_bytes("two", b"2", align=64)
        writer.finish()
    return (folder / "f").read_bytes()


def test_packed_entries_and_other_readers(packed: bytes, tmp_path: Path) -> None:
    entry = read_zip(packed).find(ENGINE)
    assert entry is not None and entry.packed_size is not None and entry.size == 5500
    assert (entry.method, entry.held_size) == (z.DEFLATED, entry.packed_size)
    held = packed[entry.data_offset : entry.end]
    assert len(held) < 100 and decompress(held, 5500) == read_entry(packed, entry)
    (tmp_path / "f").write_bytes(packed)
    with zipfile.ZipFile(tmp_path / "f") as other:
        assert other.testzip() is None
        info = other.getinfo(ENGINE)
        assert (info.compress_type, info.extract_version) == (zipfile.ZIP_DEFLATED, 20)
        assert other.read(ENGINE) == b"a program, " * 500
    if shutil.which("unzip"):
        assert subprocess.run(["unzip", "-tqq", tmp_path / "f"]).returncode == 0


def test_every_bit_of_a_packed_entrys_headers_counts(packed: bytes) -> None:
    name = ENGINE.encode()
    for at, size in (
        (local_of(packed, name), z.LOCAL.size), (central_of(packed, name), z.CENTRAL.size),
    ):  # fmt: skip
        for place in range(at, at + size + len(name)):
            for bit in range(8):
                with pytest.raises(PackError):
                    read_zip(patch(packed, place, bytes([packed[place] ^ 1 << bit])))


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("engine/t/e", {}, None),
        ("engine/t/e", {"size": z.MAX_DEFLATED}, None),
        ("engine/t/e", {"size": z.MAX_DEFLATED + 1}, "zip-too-large"),
        ("engine/t/e", {"size": z.MAX32}, "zip-zip64-inconsistent"),
        ("engine/t/INDEX", {}, "zip-method"),
        ("engine/e", {}, "zip-method"),
        ("engine/t/u/e", {}, "zip-method"),
        ("bin/launch-t", {}, "zip-method"),
        ("META/manifest.json", {}, "zip-method"),
        ("ggml-cuda.so", {}, "zip-method"),
        ("m.gguf", {}, "zip-method"),
        (".args", {}, "zip-method"),
    ],
)
def test_where_packed_entries_may_be(name: str, changes: dict, expected: str | None) -> None:
    start = z.LOCAL.size + len(name)
    fields = {"size": 5, "crc32": 0, "header_offset": 0, "data_offset": start, "packed_size": 2}
    entry = z.ZipEntry(name, 0o644, **{**fields, **changes})
    local, directory = z.local_header(entry, b"") + b"\3\0", z.central_header(entry)
    data = local + directory + z.end_records(1, len(directory), len(local))
    if expected:
        assert reason(data) == expected
        return
    assert read_zip(data).entries == (entry,)
    with pytest.raises(PackError) as caught:
        read_entry(data, entry)
    assert caught.value.reason == "zip-bad-stream"


def test_a_large_file_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opencoti_build.pack.zipwriter.MAX_DEFLATED", 1000)
    (tmp_path / "e").write_bytes(bytes(1001))
    with (tmp_path / "f").open("w+b", buffering=0) as stream:
        written = ZipWriter(stream).add_packed(ENGINE, tmp_path / "e", align=z.ALIGNMENT)
    assert (written.entry.method, written.entry.data_offset) == (z.STORED, z.ALIGNMENT)


def test_a_packed_source_that_shrinks_is_refused(tmp_path: Path, monkeypatch) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"12345678" * 10)
    real = os.fstat

    def shrink(fd: int) -> os.stat_result:
        found = real(fd)
        source.write_bytes(b"1234")
        return found

    monkeypatch.setattr("opencoti_build.pack.zipwriter.os.fstat", shrink)
    with (tmp_path / "out").open("w+b", buffering=0) as stream:
        with pytest.raises(PackError) as caught:
            ZipWriter(stream).add_packed(ENGINE, source)
    assert caught.value.reason == "zip-source-changed"


def both(data: bytes, name: bytes, new: bytes) -> bytes:
    return data.replace(name, new)


def test_hostile_names(sample: bytes) -> None:
    assert reason(both(sample, b"dir/two", b"../dtwo")) == "zip-unsafe-name"
    assert reason(both(sample, b"dir/two", b"dir\\two")) == "zip-unsafe-name"
    assert reason(both(sample, b"dir/two", b"/ir/two")) == "zip-unsafe-name"
    assert reason(both(sample, b"dir/two", b"dir/tw\0")) == "zip-unsafe-name"
    assert reason(both(sample, b"dir/two", b"dir/tw\xff")) == "zip-unsafe-name"
    assert reason(both(sample, b"dir/two", b"ONE/two")) == "zip-duplicate-name"


def test_overlap(sample: bytes) -> None:
    """The first entry's size grows over the second, in both headers."""
    size = struct.pack("<II", 60, 60)
    data = patch(sample, central_of(sample, b"one") + 20, size)
    assert reason(patch(data, local_of(data, b"one") + 18, size)) == "zip-overlap"


def test_gaps_and_padding(tmp_path: Path) -> None:
    data = write(tmp_path / "f", {"a": b"1", "b": b"2"}, align=4096)
    padding = read_zip(data).entries[1].data_offset - 1
    assert reason(patch(data, padding, b"x")) == "zip-nonzero-padding"
    size = struct.pack("<II", 0, 0)
    short = patch(data, central_of(data, b"a") + 20, size)
    short = patch(short, local_of(short, b"a") + 18, size)
    assert reason(short) == "zip-nonzero-gap"
    field = local_of(data, b"b") + z.LOCAL.size + 1
    assert reason(patch(data, field, b"\x0a\x00")) == "zip-unknown-extra"


def test_order_and_reuse_of_headers(sample: bytes) -> None:
    one, two = central_of(sample, b"one"), central_of(sample, b"dir/two")
    end = end_of(sample)
    swapped = sample[:one] + sample[two:end] + sample[one:two] + sample[end:]
    assert reason(swapped) == "zip-directory-mismatch"
    twice = sample[:two] + sample[one:two] + sample[end:]
    length = struct.pack("<I", 2 * (two - one))
    assert reason(patch(twice, end_of(twice) + 12, length)) == "zip-duplicate-name"
