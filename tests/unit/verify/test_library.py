"""A GPU library that is published beside the single files."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from opencoti_build.cli.verify import command
from opencoti_build.errors import CheckError
from opencoti_build.ui import Ui
from opencoti_build.verify.single import verify_file
from tests.lib.cuda import code_for, cuda_library
from tests.lib.single_file import ABI

NAME = "ggml-cuda-x86_64.so"


@pytest.fixture
def release(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """The library where a release has it, and the release's manifest."""
    path = tmp_path / "dso" / "0.10.3-c3" / NAME
    path.parent.mkdir(parents=True)
    shutil.copy(cuda_library(code_for("75", "90")), path)
    row = {
        "file": f"dso/0.10.3-c3/{NAME}",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "architectures": ["75", "90"],
        "abi_digest": ABI,
    }
    manifest = {
        "artifacts": [
            {"file": "a.exe", "sha256": "0", "gpu_library": None},
            {"file": "a.llamafile", "sha256": "0", "gpu_library": row},
        ],
        "targets": {"x86_64-linux": {"abi_digest": ABI}, "x86_64-windows": {}},
    }
    return path, manifest


def reasons(path: Path, manifest: dict[str, Any] | None) -> tuple[str, ...]:
    return verify_file(path, manifest, Ui(quiet=True)).reasons


def test_it_is_compared_with_the_release(release: tuple[Path, dict[str, Any]]) -> None:
    path, manifest = release
    report = verify_file(path, manifest, Ui(quiet=True))
    assert not any(finding.reason for finding in report.findings)
    row = manifest["artifacts"][1]["gpu_library"]
    row["architectures"] = ["75"]
    assert reasons(path, manifest) == ("gpu-architectures-mismatch",)
    row |= {"architectures": ["75", "90"], "sha256": "0" * 64}
    assert reasons(path, manifest) == ("release-sha256-mismatch",)
    row["sha256"] = report.sha256
    manifest["targets"]["x86_64-linux"]["abi_digest"] = "cd" * 32
    assert reasons(path, manifest) == ("gpu-abi-mismatch",)
    other = path.with_name("other.so")
    path.rename(other)
    assert reasons(other, manifest) == ("release-not-listed",)


def test_damage_is_found_without_a_manifest(release: tuple[Path, dict[str, Any]]) -> None:
    path, _ = release
    assert reasons(path, None) == ()
    data = path.read_bytes()
    path.write_bytes(data[:40])
    assert reasons(path, None) == ("elf-malformed",)
    path.write_bytes(b"\x7fELG" + data[4:])
    assert reasons(path, None) == ("zip-no-end-record",)


def test_the_command_finds_the_manifest_of_the_release(
    release: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    path, manifest = release
    (tmp_path / "MANIFEST.json").write_text(json.dumps(manifest))
    good = CliRunner().invoke(command, [str(path), "--json"], catch_exceptions=False)
    checks = {row["check"]: row for row in json.loads(good.stdout)["findings"]}
    assert checks["release"]["ok"] and not checks["release"].get("skipped")
    elsewhere = tmp_path / "a" / "b"
    elsewhere.mkdir(parents=True)
    shutil.copy(path, elsewhere)
    (tmp_path / "MANIFEST.json").write_text("{}")  # of something else: nobody asks it
    alone = CliRunner().invoke(command, [str(elsewhere / NAME)], catch_exceptions=False)
    assert alone.exit_code == 0
    (tmp_path / "MANIFEST.json").write_text(json.dumps(manifest))
    with path.open("ab") as stream:
        stream.write(b"\0")
    with pytest.raises(CheckError) as caught:
        CliRunner().invoke(command, [str(path), "--json"], catch_exceptions=False)
    assert caught.value.context["checks"] == "release-sha256-mismatch"
