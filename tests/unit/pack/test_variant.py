"""Variants: the same host in each, its own entries behind, and what verify says of changes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from opencoti_build.errors import PackError
from opencoti_build.pack.bundle import add_model
from opencoti_build.pack.variant import (
    VARIANT_NAME,
    GpuLibrary,
    Variant,
    host_identity,
    make_variant,
)
from opencoti_build.pack.zipformat import ALIGNMENT
from opencoti_build.pack.zipreader import read_zip
from opencoti_build.verify.single import verify_file
from tests.lib.cuda import code_for, cuda_library
from tests.lib.single_file import ABI, QUIET, pack

LIBRARY = "ggml-cuda.so"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("host") / "host").path


def gpu_library(*stated: str) -> GpuLibrary:
    path = cuda_library(code_for("80", "90") + code_for("90a"))
    return GpuLibrary(LIBRARY, path, stated or ("80", "90"), ABI)


def variant(host: Path, out: Path, embed: bool = True) -> Variant:
    library = gpu_library() if embed else None
    return make_variant(host, out, host_identity(host), library)


def manifest(host: Path, *variants: Variant) -> dict[str, object]:
    """The release manifest's part that the checks read."""
    identity = host_identity(host)
    rows = [
        {
            "file": made.path.name, "sha256": made.sha256, "size": made.size, "windows": False,
            "host_size": identity.size, "host_sha256": identity.sha256,
        }
        for made in variants
    ]  # fmt: skip
    return {"format": 1, "artifacts": rows}


def test_the_architectures_are_those_of_the_library(host: Path, tmp_path: Path) -> None:
    good = variant(host, tmp_path / "a")
    found = {f.check: f.message for f in verify_file(good.path, None, QUIET).findings}
    assert found["gpu architectures"].startswith("80 90,")
    wrong = make_variant(host, tmp_path / "b", host_identity(host), gpu_library("80", "90", "120f"))
    assert verify_file(wrong.path, None, QUIET).reasons == ("gpu-architectures-mismatch",)


def test_every_variant_begins_with_the_host(host: Path, tmp_path: Path) -> None:
    plain = variant(host, tmp_path / "a", embed=False)
    full = variant(host, tmp_path / "b")
    identity = host_identity(host)
    assert plain.path.read_bytes() == host.read_bytes()
    assert full.path.read_bytes()[: identity.size] == host.read_bytes()[: identity.size]
    assert [entry.name for entry in full.entries] == [LIBRARY, VARIANT_NAME]
    assert full.entries[0].offset % ALIGNMENT == 0
    outer = manifest(host, plain, full)
    for made in (plain, full):
        report = verify_file(made.path, outer, QUIET)
        assert report.reasons == ()
        assert "release host" in [finding.check for finding in report.findings]
        assert verify_file(made.path, None, QUIET).ok


def test_the_same_bytes_twice_and_no_needless_copy(host: Path, tmp_path: Path) -> None:
    assert variant(host, tmp_path / "a").sha256 == variant(host, tmp_path / "b").sha256
    first = variant(host, tmp_path / "c", embed=False)
    os.utime(first.path, ns=(0, 0))
    variant(host, tmp_path / "c", embed=False)
    assert first.path.stat().st_mtime_ns == 0


def test_a_variant_takes_no_second_library_but_a_model(host: Path, tmp_path: Path) -> None:
    full = variant(host, tmp_path / "a")
    with pytest.raises(PackError) as caught:
        variant(full.path, tmp_path / "b")
    assert caught.value.reason == "pack-has-variant"
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    assert verify_file(add_model(full.path, model, tmp_path / "c").path, None, QUIET).ok


def test_another_host_is_found(host: Path, tmp_path: Path) -> None:
    other = pack(tmp_path / "other", version="0.10.4").path
    made = variant(other, tmp_path / "a", embed=False)
    outer = manifest(host, made)
    assert "release-host-mismatch" in verify_file(made.path, outer, QUIET).reasons
    mixed = manifest(host, made)
    rows = mixed["artifacts"]
    assert isinstance(rows, list)
    rows.append({**rows[0], "file": "b", "host_sha256": "0" * 64})
    assert "release-host-differs" in verify_file(made.path, mixed, QUIET).reasons


def test_a_variant_that_names_another_host(host: Path, tmp_path: Path) -> None:
    wrong = host_identity(pack(tmp_path / "other", version="0.10.4").path)
    made = make_variant(host, tmp_path / "a", wrong, gpu_library())
    assert verify_file(made.path, None, QUIET).reasons == ("host-mismatch",)


def test_a_library_that_is_not_the_listed_one(host: Path, tmp_path: Path) -> None:
    """A forger changes the library and its crc; variant.json and the release still disagree."""
    import zlib

    made = variant(host, tmp_path / "a")
    data = bytearray(made.path.read_bytes())
    entry = read_zip(bytes(data)).find(LIBRARY)
    assert entry is not None
    data[entry.data_offset + 100] ^= 1
    crc = zlib.crc32(data[entry.data_offset : entry.end]).to_bytes(4, "little")
    data[entry.header_offset + 14 : entry.header_offset + 18] = crc
    central = bytes(data).rindex(LIBRARY.encode()) - 46
    data[central + 16 : central + 20] = crc
    made.path.write_bytes(data)
    assert verify_file(made.path, None, QUIET).reasons == ("entry-sha256-mismatch",)


def test_a_variant_file_that_says_nothing(host: Path, tmp_path: Path) -> None:
    meta = [(VARIANT_NAME, json.dumps({"format": 9}).encode())]
    packed = pack(tmp_path / "f", meta=meta, manifest={"patches": []})
    assert "variant-malformed" in verify_file(packed.path, None, QUIET).reasons


def test_windows_names_are_for_small_files(tmp_path: Path) -> None:
    packed = pack(tmp_path / "f.exe")
    row = {"file": "f.exe", "sha256": packed.sha256, "size": packed.size, "windows": True}
    report = verify_file(packed.path, {"artifacts": [row]}, QUIET)
    assert report.ok and "windows size" in [finding.check for finding in report.findings]
