"""Building several targets: one that fails does not lose the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from opencoti_build.build import pipeline as module
from opencoti_build.build.context import BuildContext
from opencoti_build.build.ninja import NinjaResult
from opencoti_build.build.pipeline import EngineBuild, Pipeline
from opencoti_build.errors import BuildError
from opencoti_build.paths import Cache, find_project
from opencoti_build.recipe import Toolchain, load_recipe
from opencoti_build.targets import Target
from opencoti_build.toolchains import nvcc
from opencoti_build.ui import Ui

LINUX, ARM, WINDOWS = Target.X86_64_LINUX, Target.AARCH64_LINUX, Target.X86_64_WINDOWS


class FakePipeline(Pipeline):
    """A pipeline whose engines are built, or fail, as told."""

    def __init__(self, folder: Path, failures: dict[Target, str]) -> None:
        targets = tuple(SimpleNamespace(target=item) for item in (LINUX, ARM, WINDOWS))
        self.context = cast(Any, SimpleNamespace(ui=Ui(bars=False), targets=targets))
        self.folder, self.failures, self.asked = folder, failures, list[Target]()

    def engine(self, recipe: Any) -> EngineBuild:
        self.asked.append(recipe.target)
        if reason := self.failures.get(recipe.target):
            raise BuildError(reason, f"{recipe.target} is broken", context={"log": "build.log"})
        return EngineBuild(recipe.target, self.folder, NinjaResult(0, 7, 3))


def test_all_targets_are_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = FakePipeline(tmp_path, {}).engines()
    assert [item.target for item in built] == [LINUX, ARM, WINDOWS]
    assert capsys.readouterr().err.splitlines() == [
        f"{target}: built, 7 files compiled (3 of them from ccache)"
        for target in (LINUX, ARM, WINDOWS)
    ]


def test_a_failed_target_does_not_lose_the_others(tmp_path: Path) -> None:
    pipeline = FakePipeline(tmp_path, {ARM: "compile-failed"})
    with pytest.raises(BuildError) as caught:
        pipeline.engines()
    assert caught.value.reason == "compile-failed"
    assert pipeline.asked == [LINUX, ARM, WINDOWS]
    assert caught.value.context == {
        "target": str(ARM),
        "log": "build.log",
        "finished and kept": f"{LINUX}, {WINDOWS}",
    }


def test_several_failures_are_told_together(tmp_path: Path) -> None:
    pipeline = FakePipeline(tmp_path, {LINUX: "configure-failed", WINDOWS: "compile-failed"})
    with pytest.raises(BuildError) as caught:
        pipeline.engines()
    assert caught.value.reason == "targets-failed"
    assert caught.value.context[str(WINDOWS)] == f"{WINDOWS} is broken"
    assert caught.value.context[f"{LINUX}, log"] == "build.log"
    assert caught.value.context["finished and kept"] == str(ARM)


def test_what_concerns_all_targets_stops_at_once(tmp_path: Path) -> None:
    pipeline = FakePipeline(tmp_path, {LINUX: "workspace-changed"})
    with pytest.raises(BuildError) as caught:
        pipeline.engines()
    assert caught.value.reason == "workspace-changed"
    assert pipeline.asked == [LINUX]


def test_only_the_option_asks_for_a_cuda_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def no_nvcc(*_: object) -> None:
        asked.append("nvcc")
        raise BuildError("nvcc-missing", "no CUDA compiler is installed")

    monkeypatch.setattr(module, "cuda_toolchain", no_nvcc)
    project = find_project()
    recipe = load_recipe(project.recipes / "c3.toml")
    context = BuildContext(project, Cache(tmp_path), recipe, "c3", recipe.targets, Ui(bars=False))
    workspace = cast(Any, SimpleNamespace(tree="0" * 40, base_tree="1" * 40, path=tmp_path))
    names = [state.step.name for state in Pipeline(context, workspace).states()]
    assert f"engine {LINUX}" in names and not any("cuda" in name for name in names)
    assert not asked
    with pytest.raises(BuildError) as caught:
        Pipeline(context.with_cuda(), workspace).states()
    assert caught.value.reason == "nvcc-missing" and asked == ["nvcc"]


@pytest.mark.parametrize("there", [True, False])
def test_without_the_option_the_compiler_decides(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    there: bool,
) -> None:
    def find(target: Target) -> None:
        if not there:
            raise BuildError("nvcc-missing", "no CUDA compiler is installed", hint="install one")

    monkeypatch.setattr(nvcc, "find_nvcc", find)
    project = find_project()
    recipe = load_recipe(project.recipes / "c3.toml")
    context = BuildContext(project, Cache(tmp_path), recipe, "c3", recipe.targets, Ui(bars=False))
    assert context.with_cuda_if_possible().cuda is there
    said = capsys.readouterr().err.splitlines()
    assert said == [] if there else (len(said) == 1 and "install one" in said[0])
    windows = replace(context, targets=recipe.select(("x86_64-windows",)))
    assert windows.with_cuda_if_possible() is windows
    reference = replace(context, toolchain=Toolchain.COSMOCC)
    assert reference.with_cuda_if_possible() is reference
    assert capsys.readouterr().err == ""


def test_a_library_without_its_own_compiler_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find(target: Target) -> None:
        if target is Target.AARCH64_LINUX:
            raise BuildError("host-compiler-missing", "no g++ for Arm", hint="install it")

    monkeypatch.setattr(nvcc, "find_nvcc", find)
    project = find_project()
    recipe = load_recipe(project.recipes / "c3.toml")
    context = BuildContext(project, Cache(tmp_path), recipe, "c3", recipe.targets, Ui(bars=False))
    found = context.with_cuda_if_possible()
    assert [item.target for item, _ in found.cuda_libraries] == [LINUX]
    (line,) = capsys.readouterr().err.splitlines()
    assert "aarch64-linux" in line and "install it" in line
    assert len(context.with_cuda().cuda_libraries) == 2
