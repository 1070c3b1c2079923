"""Whole single files: what is where, the same bytes each time, models inside."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path

import pytest

from opencoti_build.errors import BuildError, PackError
from opencoti_build.pack.bundle import add_model
from opencoti_build.pack.host import EngineFile
from opencoti_build.pack.index import IndexFile, parse_index, render_index
from opencoti_build.pack.launcher_build import build_launcher, launcher_key
from opencoti_build.pack.zipformat import ALIGNMENT
from opencoti_build.pack.zipreader import read_zip
from opencoti_build.targets import Target
from tests.lib.single_file import TARGET, pack, parts


def test_entries_and_places(tmp_path: Path) -> None:
    packed = pack(tmp_path / "f.llamafile")
    assert packed.path.stat().st_mode & 0o777 == 0o755
    assert packed.path.stat().st_size == packed.size
    assert [entry.name for entry in packed.entries] == [
        "bin/launch-x86_64-linux",
        "engine/x86_64-linux/opencoti-engine",
        "engine/x86_64-linux/libggml-base.so",
        "engine/x86_64-linux/INDEX",
        "META/patches/0006-one.patch",
        "META/patches/0007-two.patch",
        "META/manifest.json",
    ]
    assert [entry.packed_size is not None for entry in packed.entries] == [
        entry.name.endswith(("/opencoti-engine", ".so")) for entry in packed.entries
    ]
    with zipfile.ZipFile(packed.path) as other:
        manifest = json.loads(other.read("META/manifest.json"))
    assert manifest["launchers"]["x86_64-linux"]["sha256"] == packed.entries[0].sha256
    assert len(manifest["targets"]["x86_64-linux"]["files"]) == 3


def test_engine_files_that_do_not_get_smaller_are_stored(tmp_path: Path) -> None:
    """They are aligned, as if the file had no compressed ones; INDEX does not tell."""
    (tmp_path / "noise").write_bytes(os.urandom(100_000))
    (tmp_path / "empty").write_bytes(b"")
    more = [EngineFile(name, tmp_path / name) for name in ("noise", "empty")]
    packed = pack(tmp_path / "f", *more)
    found = {entry.name.rsplit("/", 1)[-1]: entry for entry in packed.entries}
    for name in ("noise", "empty"):
        assert found[name].packed_size is None and found[name].offset % ALIGNMENT == 0
    with zipfile.ZipFile(packed.path) as other:
        assert other.testzip() is None
        index = other.read("engine/x86_64-linux/INDEX").decode()
        for file in parts().files(*more):
            data = other.read(f"engine/x86_64-linux/{file.name}")
            assert data == file.path.read_bytes()
            line = f"{hashlib.sha256(data).hexdigest()} {len(data)} {file.mode:o} {file.name}\n"
            assert line in index


def test_same_bytes_in_two_folders(tmp_path: Path) -> None:
    first = pack(tmp_path / "a" / "f")
    mask = os.umask(0o077)
    try:
        second = pack(tmp_path / "b" / "g")
    finally:
        os.umask(mask)
    assert first.sha256 == second.sha256
    assert first.path.read_bytes() == second.path.read_bytes()


def test_launcher_is_the_same_anywhere(tmp_path: Path) -> None:
    again = build_launcher(TARGET, tmp_path / "other name" / "x")
    assert again.read_bytes() == parts().launcher.read_bytes()
    assert again.stat().st_size < 100_000


def test_launcher_key_follows_its_inputs() -> None:
    keys = {launcher_key(TARGET, "0.15.2"), launcher_key(TARGET, "0.15.3")}
    keys.add(launcher_key(Target.AARCH64_LINUX, "0.15.2"))
    assert len(keys) == 3 and launcher_key(TARGET, "0.15.2") in keys


def test_a_launcher_that_does_not_compile(tmp_path: Path) -> None:
    for compiler, reason in ((["/nonexistent"], "no-zig"), (["false"], "launcher-failed")):
        with pytest.raises(BuildError) as caught:
            build_launcher(TARGET, tmp_path / "x", compiler=compiler)
        assert caught.value.reason == reason
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_when_packing_fails(tmp_path: Path) -> None:
    out = tmp_path / "out" / "f"
    with pytest.raises(PackError) as caught:
        pack(out, EngineFile("libggml-base.so", parts().module))
    assert caught.value.reason == "zip-duplicate-name"
    assert list(out.parent.iterdir()) == []


def test_model_and_args(tmp_path: Path) -> None:
    packed = pack(tmp_path / "f")
    model = tmp_path / "Tiny.gguf"
    model.write_bytes(b"GGUF" + os.urandom(100_000))
    bundle = add_model(packed.path, model, tmp_path / "b", "-m\n/zip/Tiny.gguf\n...\n")
    data = bundle.path.read_bytes()
    layout = read_zip(data)
    entry = layout.find("Tiny.gguf")
    assert entry is not None and entry.data_offset % ALIGNMENT == 0
    assert data[entry.data_offset : entry.end] == model.read_bytes()
    host = packed.path.read_bytes()
    assert data[: read_zip(host).directory_offset] == host[: read_zip(host).directory_offset]
    kept = {e.name: e.packed_size for e in layout.entries if e.packed_size is not None}
    assert kept == {e.name: e.packed_size for e in packed.entries if e.packed_size is not None}
    with zipfile.ZipFile(bundle.path) as other:
        assert other.testzip() is None
    with pytest.raises(PackError) as caught:
        add_model(bundle.path, model, tmp_path / "c")
    assert caught.value.reason == "pack-has-model"
    with pytest.raises(PackError) as caught:
        add_model(packed.path, packed.path, tmp_path / "c")
    assert caught.value.reason == "pack-bad-model"


def test_index_round_trip() -> None:
    files = [IndexFile("engine", "a" * 64, 5, 0o755), IndexFile("lib.so", "b" * 64, 0, 0o644)]
    index = parse_index(render_index("1.0", "t", files))
    assert index.files == tuple(files) and (index.version, index.tag) == ("1.0", "t")
    assert len(index.content_id) == 32


@pytest.mark.parametrize(
    "text",
    [
        "",
        "opencoti-index 1 1.0 t\n",
        "opencoti-index 2 1.0 t\n" + "a" * 64 + " 5 755 e\n",
        "opencoti-index 1 1.0 t\n" + "a" * 64 + " 5 755 ../e\n",
        "opencoti-index 1 1.0 t\n" + "a" * 64 + " 5 644 e\n",
        "opencoti-index 1 1.0 t\n" + "a" * 64 + " 05 755 e\n",
        "opencoti-index 1 1.0 t\n" + "a" * 64 + " 5 755 e",
        "opencoti-index 1 1.0 t\n" + 2 * ("a" * 64 + " 5 755 e\n"),
        "opencoti-index 1 1.0 t\n" + "a" * 64 + " 5 4755 e\n",
        "opencoti-index 1 1.0 t\n" + "a" * 64 + " 5 755 \u00e9\n",
    ],
)
def test_index_that_is_refused(text: str) -> None:
    with pytest.raises(PackError) as caught:
        parse_index(text.encode())
    assert caught.value.reason == "pack-bad-index"
