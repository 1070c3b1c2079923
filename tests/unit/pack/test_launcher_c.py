"""The launcher's C code, built for this machine with sanitizers and fed hostile files."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from opencoti_build.pack import deflate
from opencoti_build.pack import zipformat as z
from opencoti_build.pack.bundle import add_model
from opencoti_build.pack.host import EngineFile
from opencoti_build.pack.launcher_build import launcher_sources
from opencoti_build.pack.zipreader import read_zip
from tests.lib.single_file import TARGET, pack

SHA_MAIN = r"""
#include "sha256.h"
#include <stdio.h>
int main(void)
{
    static unsigned char data[300];
    char hex[65];
    for (int i = 0; i < 300; i++)
        data[i] = (unsigned char)(i * 7);
    for (size_t n = 0; n <= 300; n++) {
        struct sha256 hash;
        sha256_start(&hash);
        sha256_update(&hash, data, n / 3);
        sha256_update(&hash, data + n / 3, n - n / 3);
        sha256_hex(&hash, hex);
        puts(hex);
    }
    return 0;
}
"""
SANITIZE = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
CLEAN_EXITS = {0, 65, 74, 126}


def gcc() -> str:
    found = shutil.which("gcc") or shutil.which("clang")
    if not found:
        pytest.skip("no C compiler with sanitizers on this machine")
    return found


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("asan") / "launcher"
    sources = [path for path in launcher_sources() if path.suffix == ".c"]
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wconversion", *SANITIZE]
    define = '-DOPENCOTI_TARGET="x86_64-linux"'
    subprocess.run([gcc(), *flags, define, "-o", out, *sources], check=True)
    return out


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    model = folder / "m.gguf"
    model.write_bytes(b"GGUFweights")
    return add_model(pack(folder / "host").path, model, folder / "f", "-m\n/zip/m.gguf\n...\n").path


def start(launcher: Path, file: Path, home: Path) -> subprocess.CompletedProcess[str]:
    env = {"OPENCOTI_HOME": str(home), "TMPDIR": "/nonexistent", "ASAN_OPTIONS": "detect_leaks=0"}
    return subprocess.run([launcher, file, "x"], capture_output=True, text=True, env=env)


def check_refusal(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode in CLEAN_EXITS, done.stderr
    assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr
    if done.returncode:
        assert done.stderr.startswith("opencoti: ") and done.stderr.count("\n") == 1


def test_sha256_vectors(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(SHA_MAIN)
    folder = launcher_sources()[0].parent
    sources = [tmp_path / "main.c", folder / "sha256.c"]
    subprocess.run([gcc(), *SANITIZE, f"-I{folder}", "-o", tmp_path / "t", *sources], check=True)
    lines = subprocess.run([tmp_path / "t"], capture_output=True, text=True, check=True).stdout
    data = bytes(n * 7 & 255 for n in range(300))
    assert lines.split() == [hashlib.sha256(data[:n]).hexdigest() for n in range(301)]


def test_probe_names_its_own_bytes(launcher: Path) -> None:
    done = subprocess.run([launcher, "--opencoti-probe"], capture_output=True, text=True)
    digest = hashlib.sha256(launcher.read_bytes()).hexdigest()
    assert done.stdout == f"opencoti {digest[:16]}\n" and done.returncode == 0


def test_good_file_under_sanitizers(launcher: Path, sample: Path, tmp_path: Path) -> None:
    for _ in range(2):
        done = start(launcher, sample, tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"<{sample}><-m></zip/m.gguf><x>" in done.stdout


def test_hostile_structure(launcher: Path, sample: Path, tmp_path: Path) -> None:
    """Random bytes changed in the directory, the end records, INDEX and local headers."""
    data = sample.read_bytes()
    layout = read_zip(data)
    index = layout.find("engine/x86_64-linux/INDEX")
    assert index is not None
    places = [*range(layout.directory_offset, len(data)), *range(index.header_offset, index.end)]
    chance = random.Random(1)
    file = tmp_path / "f"
    file.write_bytes(data)
    with file.open("r+b", buffering=0) as stream:
        for _ in range(250):
            spots = chance.sample(places, chance.choice([1, 1, 2, 4]))
            for spot in spots:
                os.pwrite(stream.fileno(), bytes([chance.choice([0, 1, 0x7F, 0xFF])]), spot)
            check_refusal(start(launcher, file, tmp_path / "home"))
            for spot in spots:
                os.pwrite(stream.fileno(), data[spot : spot + 1], spot)


@pytest.mark.parametrize("keep", [0, 1, 21, 22, 100, 4096, 60000, -1, -22, -100])
def test_truncated(launcher: Path, sample: Path, tmp_path: Path, keep: int) -> None:
    file = tmp_path / "f"
    file.write_bytes(sample.read_bytes()[:keep])
    done = start(launcher, file, tmp_path / "home")
    check_refusal(done)
    assert done.returncode == 65


@pytest.mark.parametrize("field", ["count", "size", "offset"])
def test_hostile_zip64(launcher: Path, sample: Path, tmp_path: Path, field: str) -> None:
    """llamafile #1038 and relatives: huge values in well-placed zip64 records."""
    data = sample.read_bytes()
    layout = read_zip(data)
    size = len(data) - z.END.size - layout.directory_offset
    good = {"count": len(layout.entries), "size": size, "offset": layout.directory_offset}
    for value in (0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**64 - 46, 2**64 - 1):
        values = {**good, field: value}
        tail = z.END64.pack(
            z.END64_MAGIC, 44, 813, 45, 0, 0,
            values["count"], values["count"], values["size"], values["offset"],
        )  # fmt: skip
        tail += z.LOCATOR.pack(z.LOCATOR_MAGIC, 0, layout.directory_offset + size, 1)
        tail += z.END.pack(z.END_MAGIC, 0, 0, 65535, 65535, z.MAX32, z.MAX32, 0)
        file = tmp_path / "f"
        file.write_bytes(data[: -z.END.size] + tail)
        done = start(launcher, file, tmp_path / "home")
        check_refusal(done)
        assert done.returncode == 65


def test_zip64_is_read(launcher: Path, sample: Path, tmp_path: Path) -> None:
    """A file whose directory lies past 4 GiB (sparse)."""
    data = sample.read_bytes()
    layout = read_zip(data)
    far = (5 << 30) + layout.directory_offset
    directory = data[layout.directory_offset : -z.END.size]
    file = tmp_path / "f"
    with file.open("wb") as stream:
        stream.write(data[: layout.directory_offset])
        stream.seek(far)
        stream.write(directory + z.end_records(len(layout.entries), len(directory), far))
    done = start(launcher, file, tmp_path / "home")
    assert done.returncode == 0, done.stderr


def test_damaged_engine_bytes(launcher: Path, sample: Path, tmp_path: Path) -> None:
    data = bytearray(sample.read_bytes())
    entry = read_zip(bytes(data)).find("engine/x86_64-linux/opencoti-engine")
    assert entry is not None
    data[entry.data_offset + 100] ^= 1
    assert entry.method == z.DEFLATED
    (tmp_path / "f").write_bytes(data)
    done = start(launcher, tmp_path / "f", tmp_path / "home")
    check_refusal(done)
    assert done.returncode == 65 and "opencoti-engine inside the file is damaged" in done.stderr
    assert list((tmp_path / "home" / "v" / "0.10.3").iterdir()) == []


BAD_STREAMS = {
    "byte after the end": lambda data: good_stream(data) + b"\0",
    "cut off": lambda data: good_stream(data)[:-1],
    "too short": lambda data: good_stream(data[:-1]),
    "too long": lambda data: good_stream(data + b"x"),
    "bomb": lambda data: good_stream(bytes(50_000_000)),
    "other bytes": lambda data: good_stream(bytes(len(data))),
    "empty": lambda data: b"",
}
good_stream = deflate.compress


@pytest.mark.parametrize("kind", BAD_STREAMS)
def test_bad_streams(
    launcher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(deflate, "compress", BAD_STREAMS[kind])
    (tmp_path / "e").write_bytes(b"an engine " * 10_000)
    files = [EngineFile("opencoti-engine", tmp_path / "e", 0o755)]
    file = pack(tmp_path / "f", engines={TARGET: files}).path
    done = start(launcher, file, tmp_path / "home")
    check_refusal(done)
    assert done.returncode == 65 and "opencoti-engine inside the file is damaged" in done.stderr
    assert list((tmp_path / "home" / "v" / "0.10.3").iterdir()) == []


def test_changed_streams(launcher: Path, sample: Path, tmp_path: Path) -> None:
    """One bit anywhere in a compressed file, the bits after its end included."""
    data, chance = sample.read_bytes(), random.Random(3)
    entry = read_zip(data).find("engine/x86_64-linux/libggml-base.so")
    assert entry is not None and entry.method == z.DEFLATED
    spots = [chance.randrange(entry.data_offset, entry.end) for _ in range(40)]
    file = tmp_path / "f"
    file.write_bytes(data)
    with file.open("r+b", buffering=0) as stream:
        for spot in [*spots, entry.end - 1]:
            bit = 0x80 if spot == entry.end - 1 else 1 << chance.randrange(8)
            os.pwrite(stream.fileno(), bytes([data[spot] ^ bit]), spot)
            done = start(launcher, file, tmp_path / "home")
            check_refusal(done)
            assert done.returncode == 65 and "libggml-base.so inside the file" in done.stderr
            os.pwrite(stream.fileno(), data[spot : spot + 1], spot)


@pytest.mark.parametrize("name", ["engine/x86_64-linux/INDEX", ".args"])
def test_only_engine_files_may_be_packed(
    launcher: Path, sample: Path, tmp_path: Path, name: str
) -> None:
    data = bytearray(sample.read_bytes())
    entry = read_zip(bytes(data)).find(name)
    assert entry is not None
    data[entry.header_offset + 8] = z.DEFLATED
    data[bytes(data).rindex(name.encode()) - z.CENTRAL.size + 10] = z.DEFLATED
    (tmp_path / "f").write_bytes(data)
    done = start(launcher, tmp_path / "f", tmp_path / "home")
    check_refusal(done)
    assert done.returncode == 65 and "must be stored" in done.stderr
