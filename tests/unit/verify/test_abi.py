"""The ABI digest of an engine, against the release's manifest and the library beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opencoti_build.pack.variant import GpuLibrary, host_identity, make_variant
from opencoti_build.targets import Target
from opencoti_build.verify.abi import check_digest, program_digest
from opencoti_build.verify.single import verify_file
from tests.lib.cuda import code_for, cuda_library, note_for
from tests.lib.single_file import ABI, QUIET, TARGET, outer_manifest, pack, parts

OTHER = "cd" * 32


def stated(digest: str | None) -> dict[str, Any]:
    return {"targets": {str(Target.X86_64_LINUX): {"abi_digest": digest}}}


@pytest.mark.parametrize(
    ("body", "manifest", "reason"),
    [
        (f"x\0opencoti-abi-{ABI}\0y", stated(ABI), ""),
        (f"x\0opencoti-abi-{ABI}\0y", stated(OTHER), "abi-digest-mismatch"),
        (f"x\0opencoti-abi-{ABI}\0y", stated(None), "abi-digest-unstated"),
        (f"x\0opencoti-abi-{ABI}\0y", None, "abi-digest-unstated"),
        (f"x\0opencoti-abi-{ABI}\0y", {"targets": {}}, "abi-digest-unstated"),
        (f"x\0opencoti-abi-{ABI}\0y", {"targets": 7}, "abi-digest-unstated"),
        ("nothing", stated(ABI), "abi-digest-missing"),
        ("opencoti-abi-\0", stated(ABI), "abi-digest-missing"),
        (f"opencoti-abi-{ABI}a", stated(ABI), "abi-digest-missing"),
        (f"opencoti-abi-{ABI}\0opencoti-abi-{OTHER}\0", stated(ABI), "abi-digest-missing"),
        ("nothing", None, "abi-digest-absent"),
    ],
)
def test_the_digest_of_a_program(body: str, manifest: dict[str, Any] | None, reason: str) -> None:
    finding = check_digest(Target.X86_64_LINUX, body.encode(), manifest)
    assert finding.reason == reason
    assert finding.ok == (reason not in ("abi-digest-mismatch", "abi-digest-missing"))


def test_an_engine_for_other_libraries_than_released_is_found(tmp_path: Path) -> None:
    packed = pack(tmp_path / "f.llamafile")
    assert program_digest(parts().engine.read_bytes()) == ABI
    manifest = outer_manifest(packed)
    assert verify_file(packed.path, manifest, QUIET).ok
    manifest["targets"] = {str(TARGET): {"abi_digest": OTHER}}
    assert verify_file(packed.path, manifest, QUIET).reasons == ("abi-digest-mismatch",)


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({}, ()),
        ({"abi": OTHER}, ("gpu-abi-mismatch",)),
        ({"architectures": ("80", "86")}, ("gpu-note-mismatch",)),
        ({"driver": 7}, ("gpu-note-malformed",)),
        (None, ("gpu-note-missing",)),
    ],
)
def test_a_library_that_the_engine_beside_it_would_refuse(
    tmp_path: Path, changes: dict[str, Any] | None, reasons: tuple[str, ...]
) -> None:
    section = code_for("80", "90")
    note = None if changes is None else note_for(section, **changes)
    library = GpuLibrary("ggml-cuda.so", cuda_library(section, note=note), ("80", "90"), ABI)
    host = pack(tmp_path / "host").path
    made = make_variant(host, tmp_path / "v", host_identity(host), library)
    assert verify_file(made.path, None, QUIET).reasons == reasons
