"""The reference toolchain: unpacking, and what upstream's make gets to see."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from opencoti_build.build.upstream_make import UpstreamMake
from opencoti_build.errors import BuildError
from opencoti_build.sources.pins import Pin, PinKind
from opencoti_build.toolchains.cosmocc import Cosmocc, cosmocc_key, ensure_cosmocc
from opencoti_build.ui import Ui
from tests.lib.source_archives import tree_zip
from tests.lib.source_pins import context, url

FILES = {"bin/make": b"#!/bin/sh\n", "bin/tool.sh": b"#!/bin/sh\n", "include/x.h": b"x\n"}


def pin(data: bytes) -> Pin:
    way = url("http://127.0.0.1:9/cosmocc.zip", data, member=None)
    digest = hashlib.sha256(data).hexdigest()
    return Pin("cosmocc", PinKind.TOOLCHAIN, "4.0.2", "ISC", (way,), None, "cosmocc.zip", digest,
               len(data))  # fmt: skip


def unpack(folder: Path, data: bytes) -> Cosmocc:
    mirror = folder / "mirror"
    mirror.mkdir(exist_ok=True)
    (mirror / "cosmocc.zip").write_bytes(data)
    return ensure_cosmocc(pin(data), context(folder / "cache", mirrors=(mirror,)))


def test_unpacked_once(tmp_path: Path) -> None:
    data = tree_zip(prefix="", files=FILES)
    made = unpack(tmp_path, data)
    assert {p.relative_to(made.folder).as_posix() for p in made.folder.rglob("*.*")} == {
        "bin/tool.sh",
        "include/x.h",
    }
    assert (made.folder / "bin/tool.sh").stat().st_mode & 0o777 == 0o755
    (made.folder / "include/x.h").write_text("kept\n")
    assert (unpack(tmp_path, data).folder / "include/x.h").read_text() == "kept\n"
    other = tree_zip(prefix="", files={**FILES, "include/x.h": b"y\n"})
    assert unpack(tmp_path, other).folder != made.folder
    assert cosmocc_key(pin(other)) != cosmocc_key(pin(data))


def test_incomplete_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        unpack(tmp_path, tree_zip(prefix="", files={"include/x.h": b"x\n"}))
    assert caught.value.reason == "toolchain-incomplete"
    assert not list((tmp_path / "cache" / "toolchains").iterdir())


MAKE = b'#!/bin/sh\nenv > "$2/seen"\nprintf "%s\\n" "$@" > "$2/arguments"\n'


@pytest.mark.parametrize("offline", [False, True])
def test_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: bool) -> None:
    """Nothing of the user's but what programs need; offline, a proxy that leads nowhere."""
    monkeypatch.setenv("MAKEFLAGS", "-k")
    monkeypatch.setenv("CXXFLAGS", "-O0")
    monkeypatch.setenv("https_proxy", "http://proxy.example.org")
    toolchain = unpack(tmp_path, tree_zip(prefix="", files={**FILES, "bin/make": MAKE}))
    (toolchain.folder / "bin/make").chmod(0o755)
    make = UpstreamMake(toolchain, tmp_path, tmp_path, Ui(quiet=True), offline)

    def seen() -> dict[str, str]:
        lines = (tmp_path / "seen").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    make.setup()
    env = seen()
    proxy = "http://offline.invalid" if offline else "http://proxy.example.org"
    assert env["https_proxy"] == proxy and env["LC_ALL"] == "C"
    assert ("GIT_ALLOW_PROTOCOL" in env) == offline
    assert not {"MAKEFLAGS", "CXXFLAGS", "GIT_DIR"} & set(env)
    assert (tmp_path / "arguments").read_text().split() == ["-C", str(tmp_path), "setup"]

    make.build(3, "abc", lambda file, line: None)
    assert seen()["GIT_DIR"] == "/dev/null"
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[2:] == ["-j3", "LLAMA_BUILD_NUMBER=0", "LLAMA_BUILD_COMMIT=abc"]
