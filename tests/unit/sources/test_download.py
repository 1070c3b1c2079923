"""Downloads over real HTTP: resume, retries, wrong bytes, two processes at once."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from opencoti_build.errors import SourceError
from opencoti_build.sources.context import FetchContext, Retry, disk_errors
from opencoti_build.sources.download import download
from opencoti_build.sources.http import public
from tests.lib.file_server import FileServer
from tests.lib.source_pins import archive, context

DATA = random.Random(1).randbytes(1_000_000)
FILE = archive("f.bin", DATA)


def get(server: FileServer, where: FetchContext, file: object = FILE) -> Path:
    return download(FILE, lambda _: (f"{server.url}/f.bin", {}), where)


def left(where: FetchContext) -> list[str]:
    """Files in the download folder, by path."""
    root = where.cache.downloads
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def reason(run: Callable[[], object]) -> str:
    with pytest.raises(SourceError) as caught:
        run()
    return caught.value.reason


WHOLE = [f"{FILE.sha256}/f.bin"]


def test_plain(server: FileServer, tmp_path: Path) -> None:
    server.files["/f.bin"] = DATA
    where = context(tmp_path)
    path = get(server, where)
    assert path.read_bytes() == DATA and left(where) == WHOLE
    assert get(server, where) == path
    assert server.asked("/f.bin") == [None]


def test_resumes_broken_streams(server: FileServer, tmp_path: Path) -> None:
    server.files["/f.bin"] = DATA
    server.drops = [300_000, 0, 250_000]
    assert get(server, context(tmp_path)).read_bytes() == DATA
    ranges = server.asked("/f.bin")
    assert ranges[0] is None
    starts = [int(str(value)[6:-1]) for value in ranges[1:]]
    assert len(starts) == 3 and starts[0] > 200_000 and starts[2] > starts[1] == starts[0]
    assert server.sent < len(DATA) + 3 * 70_000


def test_resumes_after_a_crash(server: FileServer, tmp_path: Path) -> None:
    server.files["/f.bin"] = DATA
    where = context(tmp_path)
    where.cache.downloads.mkdir(parents=True)
    where.partial(FILE.sha256).write_bytes(DATA[:700_001])
    assert get(server, where).read_bytes() == DATA
    assert server.asked("/f.bin") == ["bytes=700001-"]
    assert left(where) == WHOLE


@pytest.mark.parametrize("rotten", [b"x" * 500_000, DATA[:-1] + b"?", b"x" * 1_500_000])
def test_rotten_partial_is_dropped(server: FileServer, tmp_path: Path, rotten: bytes) -> None:
    server.files["/f.bin"] = DATA
    where = context(tmp_path)
    where.cache.downloads.mkdir(parents=True)
    where.partial(FILE.sha256).write_bytes(rotten)
    assert get(server, where).read_bytes() == DATA
    assert left(where) == WHOLE


def test_server_without_ranges(server: FileServer, tmp_path: Path) -> None:
    server.files["/f.bin"] = DATA
    server.ranges, server.drops = False, [400_000]
    assert get(server, context(tmp_path)).read_bytes() == DATA
    assert len(server.requests) == 2


def test_busy_server(server: FileServer, tmp_path: Path) -> None:
    server.files["/f.bin"] = DATA
    server.statuses = [503, 429]
    assert get(server, context(tmp_path)).read_bytes() == DATA


@pytest.mark.parametrize("good_digits", [0, 1])
def test_wrong_hash(server: FileServer, tmp_path: Path, good_digits: int) -> None:
    server.files["/f.bin"] = DATA[:-1] + bytes([DATA[-1] ^ 1])
    where = context(tmp_path)
    with pytest.raises(SourceError) as caught:
        get(server, where)
    assert caught.value.reason == "hash-mismatch"
    assert caught.value.context["expected"] == FILE.sha256
    actual = str(caught.value.context["actual"])
    assert len(actual) == 64 and actual != FILE.sha256
    assert left(where) == []


@pytest.mark.parametrize("length", [True, False])
@pytest.mark.parametrize("data", [DATA + b"x", DATA * 20])
def test_too_long_is_cut_off(server: FileServer, tmp_path: Path, data: bytes, length: bool) -> None:
    server.files["/f.bin"] = data
    server.length = length
    where = context(tmp_path)
    assert reason(lambda: get(server, where)) == "size-mismatch"
    assert left(where) == []
    assert server.sent < 15_000_000


def test_too_short(server: FileServer, tmp_path: Path) -> None:
    server.files["/f.bin"] = DATA[:-1]
    where = context(tmp_path)
    assert reason(lambda: get(server, where)) == "size-mismatch"
    server.length = False  # now it looks like a broken stream without end
    assert reason(lambda: get(server, where)) == "download-failed"


def test_refused_at_once(server: FileServer, tmp_path: Path) -> None:
    assert reason(lambda: get(server, context(tmp_path))) == "download-refused"
    assert len(server.requests) == 1


def test_gives_up_and_keeps_the_start(server: FileServer, tmp_path: Path) -> None:
    server.files["/f.bin"] = DATA
    server.drops = [200_000, 0, 0, 0]
    where = context(tmp_path)
    assert reason(lambda: get(server, where)) == "download-failed"
    assert left(where) == [f"{FILE.sha256}.partial"]
    server.drops = []
    assert get(server, where).read_bytes() == DATA


def test_nobody_listens(tmp_path: Path, server: FileServer) -> None:
    def run() -> Path:
        return download(FILE, lambda _: ("http://127.0.0.1:1/f", {}), context(tmp_path))

    assert reason(run) == "download-failed"


def test_offline(server: FileServer, tmp_path: Path) -> None:
    server.files["/f.bin"] = DATA
    assert reason(lambda: get(server, context(tmp_path, offline=True))) == "offline-missing"
    get(server, context(tmp_path))
    assert get(server, context(tmp_path, offline=True)).is_file()
    assert len(server.requests) == 1


def test_damaged_in_the_cache(server: FileServer, tmp_path: Path) -> None:
    server.files["/f.bin"] = DATA
    where = context(tmp_path)
    get(server, where).write_bytes(b"x" * len(DATA))
    assert get(server, where).read_bytes() == DATA
    assert len(server.requests) == 2


def test_processes_at_once_download_once(server: FileServer, tmp_path: Path) -> None:
    server.files["/f.bin"] = DATA
    spawn = multiprocessing.get_context("fork")
    jobs = [spawn.Process(target=get, args=(server, context(tmp_path))) for _ in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0] * 4
    assert server.asked("/f.bin") == [None]
    assert left(context(tmp_path)) == WHOLE


def test_full_disk(tmp_path: Path) -> None:
    def write() -> None:
        with disk_errors(tmp_path), Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"x")

    assert reason(write) == "disk-full"


def test_other_system_errors() -> None:
    def fail(number: int) -> None:
        with disk_errors(Path("x")):
            raise OSError(number, os.strerror(number))

    assert reason(lambda: fail(errno.EROFS)) == "cache-not-writable"
    with pytest.raises(OSError):
        fail(errno.EIO)


def test_waits_double() -> None:
    retry = Retry(first_wait=1, longest_wait=5)
    assert [retry.wait(n) for n in (1, 2, 3, 4)] == [1, 2, 4, 5]


def test_messages_hide_credentials() -> None:
    assert public("https://me:secret@host:8/a/b?token=1") == "https://host:8/a/b"
