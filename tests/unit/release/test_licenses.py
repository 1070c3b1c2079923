"""Licence texts of the CUDA library."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from opencoti_build.paths import Cache, find_project
from opencoti_build.release import licenses
from opencoti_build.sources.context import FetchContext
from opencoti_build.sources.pins import Pin
from tests.lib import fake_cuda
from tests.lib.single_file import QUIET


def test_a_cuda_without_its_licence_gets_that_of_the_pinned_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "runtime.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("nvidia_cuda_runtime-13.0.96.dist-info/METADATA", "no licence")
        archive.writestr(
            "nvidia_cuda_runtime-13.0.96.dist-info/licenses/License.txt", "the pinned one"
        )
    asked = []

    def fetch(pin: Pin, _context: FetchContext) -> Path:
        asked.append(pin.name)
        return wheel

    monkeypatch.setattr(licenses, "ensure_file", fetch)
    nvcc, context = fake_cuda.install(tmp_path / "cuda"), FetchContext(Cache(tmp_path), QUIET)
    vendor = find_project().vendor

    def text() -> bytes:
        entries = dict(licenses.gpu_license_entries(nvcc, vendor, context))
        assert b"RUNTIME LIBRARY EXCEPTION" in entries["META/LICENSES/gcc-runtime-exception.txt"]
        return entries["META/LICENSES/nvidia-cuda.txt"]

    assert text() == b"a licence\n" and asked == []
    (tmp_path / "cuda" / "EULA.txt").unlink()
    assert text() == b"the pinned one" and asked == ["nvidia-cuda-runtime"]
