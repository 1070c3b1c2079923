"""The CUDA compiler: where it is looked for, what is refused, what identifies it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from opencoti_build.errors import BuildError
from opencoti_build.toolchains import nvcc

PROGRAMS = ("bin/nvcc", "bin/cudafe++", "bin/ptxas", "bin/fatbinary", "nvvm/bin/cicc")

HEADERS = {
    "cuda_runtime_api.h": "#define CUDART_VERSION  13000\n",
    "crt/host_config.h": "",
    "cub/version.cuh": "",
}

needs_host = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")


def cuda(root: Path, version: str = "13.0, V13.0.88") -> Path:
    """A folder laid out like a CUDA installation, with programs that only tell a version."""
    for name in PROGRAMS:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}'\n")
        path.chmod(0o755)
    (root / "lib64").mkdir()
    (root / "lib64" / "libcudart_static.a").write_bytes(b"!<arch>\n")
    for name, text in HEADERS.items():
        path = root / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No CUDA but what a test names."""

    def missing(name: str) -> object:
        raise nvcc.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(nvcc.importlib.metadata, "distribution", missing)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(nvcc, "USUAL", Path("/nowhere"))
    return monkeypatch


def reason() -> str:
    with pytest.raises(BuildError) as caught:
        nvcc.find_nvcc()
    return caught.value.reason


def test_what_cannot_be_used_is_refused(alone: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        assert reason() == "nvcc-missing"
    alone.setenv("CUDA_HOME", str(cuda(tmp_path / "old", "12.8, V12.8.93")))
    assert reason() == "nvcc-too-old"
    root = cuda(tmp_path / "part")
    (root / "bin" / "ptxas").unlink()
    alone.setenv("CUDA_HOME", str(root))
    assert reason() == "nvcc-incomplete"
    alone.setenv("CUDA_HOME", str(cuda(tmp_path / "mute", "unknown")))
    assert reason() == "nvcc-missing"
    alone.setenv("CUDA_HOME", str(cuda(tmp_path / "good")))
    alone.setenv("PATH", str(tmp_path))
    assert reason() == "host-compiler-missing"


@needs_host
def test_the_same_files_are_the_same_compiler(alone: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = []
    for name in ("one", "two"):
        alone.setenv("CUDA_HOME", str(cuda(tmp_path / name)))
        found = nvcc.find_nvcc()
        assert (found.root, found.version) == (tmp_path / name, "13.0.88")
        assert found.includes == (tmp_path / name / "include",)
        keys.append(found.to_key())
    assert keys[0] == keys[1]
    with (tmp_path / "two" / "bin" / "ptxas").open("a") as stream:
        stream.write("# another one\n")
    assert nvcc.find_nvcc().identity != keys[0]["identity"]
    # A system CUDA has the headers elsewhere, below the folder of its target.
    include = tmp_path / "one" / "include"
    include.rename(tmp_path / "one" / "moved")
    alone.setenv("CUDA_HOME", str(tmp_path / "one"))
    other = tmp_path / "one" / "targets" / "x86_64-linux"
    other.mkdir(parents=True)
    (tmp_path / "one" / "moved").rename(other / "include")
    assert nvcc.find_nvcc().to_key() == keys[0]
    (other / "include" / "cub" / "version.cuh").write_text("// another one\n")
    assert nvcc.find_nvcc().to_key() != keys[0]
    (other / "include" / "cub" / "version.cuh").unlink()
    with pytest.raises(BuildError) as caught:
        nvcc.find_nvcc().to_key()
    assert caught.value.reason == "nvcc-incomplete"
    alone.setenv("CUDA_HOME", str(tmp_path / "two"))
    (tmp_path / "two" / "lib64" / "libcudart_static.a").unlink()
    with pytest.raises(BuildError) as caught:
        nvcc.find_nvcc().to_key()
    assert caught.value.reason == "cuda-runtime-missing"


@needs_host
def test_nvcc_on_the_path_is_found_through_links(alone: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root, links = cuda(tmp_path / "cuda"), tmp_path / "links"
    links.mkdir()
    (links / "nvcc").symlink_to(root / "bin" / "nvcc")
    alone.setenv("PATH", f"{links}:/usr/bin:/bin")
    assert nvcc.find_nvcc().root == root


@needs_host
def test_a_script_called_nvcc_is_passed_over(alone: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "usr" / "bin" / "nvcc"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\nexec true\n")
    script.chmod(0o755)
    alone.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    assert reason() == "nvcc-missing"
    alone.setattr(nvcc, "USUAL", cuda(tmp_path / "cuda"))
    assert nvcc.find_nvcc().root == tmp_path / "cuda"


@needs_host
def test_the_manifest_names_compiler_and_runtime(alone: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = cuda(tmp_path / "lib" / "nvidia" / "cu13")
    alone.setenv("CUDA_HOME", str(root))
    found = nvcc.find_nvcc()
    rows = {row["name"]: row["version"] for row in found.facts()}
    assert (rows["nvcc"], rows["cuda-runtime"]) == ("13.0.88", "13.0")
    assert rows["libstdc++"] == found.host.version
    with pytest.raises(BuildError) as caught:
        found.license()
    assert caught.value.reason == "cuda-license-missing"
    package = tmp_path / "lib" / "nvidia_cuda_runtime-13.0.96.dist-info" / "licenses"
    package.mkdir(parents=True)
    (package / "License.txt").write_text("of the package")
    assert found.license() == b"of the package"
    (root / "EULA.txt").write_text("of the system")
    assert found.license() == b"of the system"
