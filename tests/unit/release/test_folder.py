"""The release folder from a packed host, without building one: variants, manifest, sums."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opencoti_build.build.context import BuildContext
from opencoti_build.errors import BugError, BuildError, PackError, UsageError
from opencoti_build.gates.gate import Verdict
from opencoti_build.gates.result import Result
from opencoti_build.paths import Cache, find_project
from opencoti_build.recipe import Toolchain, load_recipe
from opencoti_build.release import folder as module
from opencoti_build.release.gpu import find_library
from opencoti_build.release.host import Host
from opencoti_build.release.manifest import check
from opencoti_build.targets import Target
from opencoti_build.verify.single import verify_file
from tests.lib import fake_cuda
from tests.lib.cuda import code_for, cuda_library
from tests.lib.single_file import ABI, QUIET, pack

FACTS: dict[str, Any] = {
    "name": "opencoti-llamafile",
    "base": {"name": "llama.cpp", "version": "1", "license": "MIT", "tree": "0" * 40},
    "patches": [],
    "workspace_tree": "1" * 40,
    "toolchains": [{"name": "zig", "version": "0.15.2", "identity": "x"}],
}

RESULTS: list[Result] = []


def no_nvcc(_: Target) -> None:
    raise BuildError("nvcc-missing", "no CUDA compiler is installed")


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    packed = pack(tmp_path / "host", manifest={**FACTS})
    project = find_project()
    recipe = load_recipe(project.recipes / "c3.toml")
    linux = recipe.select(("x86_64-linux",))
    engines = tuple(SimpleNamespace(target=item.target) for item in linux)
    host = Host(packed.path, packed.sha256, packed.size, packed.entries, engines)  # type: ignore[arg-type]
    monkeypatch.setattr(module, "make_host", lambda pipeline: host)
    monkeypatch.setattr(module, "inner_facts", lambda pipeline: dict(FACTS))
    monkeypatch.setattr(module, "find_nvcc", no_nvcc)
    monkeypatch.setattr(module, "kept_results", lambda context, workspace: list(RESULTS))
    context = BuildContext(project, Cache(tmp_path / "cache"), recipe, "c3", linux, QUIET)
    series = SimpleNamespace(patches=[])
    workspace = SimpleNamespace(series=series)
    return SimpleNamespace(context=context, workspace=workspace, host=host, abi_digest=ABI)


def test_names_manifest_and_sums(pipeline: Any, tmp_path: Path) -> None:
    """Only names that the host's targets keep; each artifact names the host and no library."""
    release = module.make_release(pipeline, tmp_path / "dist")
    names = [path.name for path in release.artifacts]
    assert names == ["opencoti-llamafile-0.10.3-c3-x86_64.llamafile"]
    (row,) = release.manifest["artifacts"]  # type: ignore[misc]
    assert row["gpu_library"] is None and row["windows"] is False
    host = release.manifest["host"]
    assert isinstance(host, dict)
    assert host["prefix"] == {"size": row["host_size"], "sha256": row["host_sha256"]}
    data = release.artifacts[0].read_bytes()[: row["host_size"]]
    assert hashlib.sha256(data).hexdigest() == row["host_sha256"]
    assert "| none |" in (tmp_path / "dist" / "BUILD_INFO.md").read_text()
    assert row["sha256"] in (tmp_path / "dist" / "SHA256SUMS").read_text()
    report = verify_file(release.artifacts[0], release.manifest, QUIET)
    assert [r for r in report.reasons if r.startswith(("release", "host"))] == []


def test_the_library_is_embedded_and_published(
    pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recipe,) = [c for c in pipeline.context.recipe.cuda if c.target is Target.X86_64_LINUX]
    built = cuda_library(code_for(*recipe.architectures))
    asked: list[tuple[str, ...]] = []

    def build(target: Any, architectures: tuple[str, ...]) -> Path:
        assert target.target is Target.X86_64_LINUX
        asked.append(architectures)
        return built

    pipeline.cuda = build
    pipeline.context = pipeline.context.with_cuda()
    with pytest.raises(BuildError) as caught:
        module.make_release(pipeline, tmp_path / "dist")
    assert caught.value.reason == "nvcc-missing" and not (tmp_path / "dist").exists()
    monkeypatch.setattr(module, "find_nvcc", lambda target: None)
    pipeline.nvcc = lambda target: fake_cuda.install(tmp_path / "cuda")
    release = module.make_release(pipeline, tmp_path / "dist")
    assert asked == [recipe.architectures]
    (row,) = release.manifest["artifacts"]  # type: ignore[misc]
    library = row["gpu_library"]
    published = tmp_path / "dist" / library["file"]
    assert library["file"] == "dso/0.10.3-c3/ggml-cuda-x86_64.so"
    assert library["architectures"] == list(recipe.architectures)
    assert library["abi_digest"] == ABI == release.manifest["targets"]["x86_64-linux"]["abi_digest"]  # type: ignore[index]
    digest = hashlib.sha256(built.read_bytes()).hexdigest()
    assert published.read_bytes() == built.read_bytes() and library["sha256"] == digest
    assert f"{digest}  {library['file']}" in (tmp_path / "dist" / "SHA256SUMS").read_text()
    with zipfile.ZipFile(release.artifacts[0]) as archive:
        assert archive.read("ggml-cuda.so") == built.read_bytes()
    assert "| ggml-cuda.so |" in (tmp_path / "dist" / "BUILD_INFO.md").read_text()

    assert set(library["architecture_sizes"]) == set(recipe.architectures)
    tools = {row["name"] for row in release.manifest["toolchains"]}  # type: ignore[attr-defined]
    assert tools == {"zig", "nvcc", "cuda-runtime", "libstdc++"}
    with zipfile.ZipFile(release.artifacts[0]) as archive:
        texts = {name: archive.read(f"META/{name}") for name in (
            "LICENSES/nvidia-cuda.txt", "LICENSES/gcc-runtime-exception.txt", "LICENSES/cccl.txt",
        )}  # fmt: skip
    assert texts["LICENSES/nvidia-cuda.txt"] == b"a licence\n"
    sums = (tmp_path / "dist" / "SHA256SUMS").read_text()
    for name, text in texts.items():
        assert (published.parent / name).read_bytes() == text
        assert f"{hashlib.sha256(text).hexdigest()}  dso/0.10.3-c3/{name}" in sums

    report = verify_file(release.artifacts[0], release.manifest, QUIET)
    found = {finding.check: finding for finding in report.findings}
    assert found["release entries"].ok and found["release host"].ok and found["entries"].ok
    assert found["release entries"].ok and found["release host"].ok
    assert found["abi x86_64-linux"].message == ABI


def test_each_linux_variant_has_its_own_library(pipeline: Any, tmp_path: Path) -> None:
    """And one without it, when its compiler is missing, does not lose the other."""
    context = pipeline.context
    both = context.recipe.select(("x86_64-linux", "aarch64-linux"))
    pipeline.cuda = lambda target, names: Path(f"{target.target}.so")

    def found(pipeline: Any) -> dict[str, str]:
        libraries = {
            variant.suffix: find_library(pipeline, variant, variant.suffix)
            for variant in context.recipe.variants
        }
        return {suffix: str(item.path) for suffix, item in libraries.items() if item}

    pipeline.context = replace(context, targets=both)
    assert found(pipeline) == {}
    nvcc = fake_cuda.install(tmp_path / "cuda")
    pipeline.nvcc = lambda target: nvcc
    pipeline.context = pipeline.context.with_cuda((Target.X86_64_LINUX,))
    assert found(pipeline) == {"-x86_64.llamafile": "x86_64-linux.so"}
    pipeline.context = pipeline.context.with_cuda()
    assert found(pipeline) == {
        "-x86_64.llamafile": "x86_64-linux.so",
        "-aarch64.llamafile": "aarch64-linux.so",
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"toolchain": Toolchain.COSMOCC}, "cuda-needs-zig"),
        ({"targets": "aarch64-macos"}, "no-cuda-for-targets"),
        ({"targets": "x86_64-windows"}, "no-cuda-for-targets"),
    ],
)
def test_what_has_no_cuda_library(pipeline: Any, change: dict[str, Any], reason: str) -> None:
    if "targets" in change:
        change = {"targets": pipeline.context.recipe.select((change["targets"],))}
    with pytest.raises(UsageError) as caught:
        replace(pipeline.context, **change).with_cuda()
    assert caught.value.reason == reason


def test_windows_gets_its_name_with_its_engine(pipeline: Any, tmp_path: Path) -> None:
    engines = [SimpleNamespace(target=t) for t in (Target.X86_64_LINUX, Target.X86_64_WINDOWS)]
    object.__setattr__(pipeline.host, "engines", tuple(engines))
    release = module.make_release(pipeline, tmp_path / "dist")
    assert [path.name.split("c3")[1] for path in release.artifacts] == [
        "-x86_64.llamafile", "-win-x86_64.llamafile.exe",
    ]  # fmt: skip
    first, second = (path.read_bytes() for path in release.artifacts)
    assert first == second


def test_a_host_without_a_name(pipeline: Any, tmp_path: Path) -> None:
    object.__setattr__(pipeline.host, "engines", ())
    with pytest.raises(PackError) as caught:
        module.make_release(pipeline, tmp_path / "dist")
    assert caught.value.reason == "pack-no-variant"


def test_only_a_foreign_host_has_targets_without_files(pipeline: Any, tmp_path: Path) -> None:
    manifest: dict[str, Any] = module.make_release(pipeline, tmp_path / "dist").manifest
    root = pipeline.context.project.root
    manifest["targets"]["x86_64-linux"]["files"] = []
    with pytest.raises(BugError):
        check(manifest, root)
    manifest["host"]["kind"] = "ape"
    check(manifest, root)


def test_gate_results_are_in_the_manifest_and_in_the_notes(
    pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = module.make_release(pipeline, tmp_path / "dist")
    assert release.manifest["gates"] == []
    assert "No gates were run" in (tmp_path / "dist" / "BUILD_INFO.md").read_text()
    rows = [
        Result("speed", "m", f"case {n}", 1.0, ">= 0.99", verdict, "words", "the command")
        for n, verdict in enumerate((Verdict.PASS, Verdict.PASS, Verdict.INCONCLUSIVE))
    ]
    monkeypatch.setattr(module, "kept_results", lambda context, workspace: rows)
    release = module.make_release(pipeline, tmp_path / "dist")
    assert release.manifest["gates"] == [row.to_json() for row in rows]
    notes = (tmp_path / "dist" / "BUILD_INFO.md").read_text()
    assert "- pass: 2\n" in notes and "- inconclusive: 1\n" in notes
