"""One artifact, one plain server and the models, built or fetched once for all engine tests."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from opencoti_build.build.context import BuildContext, make_context
from opencoti_build.build.engine import EngineBuilder
from opencoti_build.build.pipeline import Pipeline
from opencoti_build.recipe import TargetRecipe
from opencoti_build.release.folder import Release, make_release
from opencoti_build.sources.fetch import FetchContext, ensure_file
from opencoti_build.sources.pins import load_pins
from opencoti_build.targets import Target
from opencoti_build.ui import Ui

TAG = "test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the slow tests out unless they are asked for."""
    if os.environ.get("OPENCOTI_TEST_SLOW"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: set OPENCOTI_TEST_SLOW"))


@dataclass(frozen=True)
class Built:
    """The release under test and the pipeline that made it."""

    context: BuildContext
    pipeline: Pipeline
    release: Release

    @property
    def file(self) -> Path:
        return self.release.artifacts[0]

    @property
    def target_options(self) -> list[str]:
        """What makes a command build the same targets."""
        return [word for item in self.context.targets for word in ("--target", str(item.target))]


# Systems whose programs can run here, so that tests learn something from building them.
RUNNABLE = (Target.X86_64_LINUX, Target.AARCH64_LINUX, Target.X86_64_WINDOWS)


def chosen_targets(pipeline: Pipeline) -> tuple[TargetRecipe, ...]:
    """What the tests build: what can run, and what is in the cache in any case.

    ``OPENCOTI_TEST_TARGETS`` names others: targets with commas between them, or ``all``.
    """
    recipe, wanted = pipeline.context.recipe, os.environ.get("OPENCOTI_TEST_TARGETS", "")
    if wanted:
        return recipe.select(() if wanted == "all" else tuple(wanted.split(",")))
    cached = {state.step.name for state in pipeline.states() if state.cached}
    return tuple(
        item
        for item in recipe.targets
        if item.target in RUNNABLE or f"engine {item.target}" in cached
    )


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """``artifact --tag test``, from the cache when nothing changed."""
    prepared = Pipeline.prepare(make_context(TAG, ui=Ui(bars=False)))
    context = replace(prepared.context, targets=chosen_targets(prepared))
    pipeline = Pipeline(context, prepared.workspace)
    return Built(context, pipeline, make_release(pipeline, tmp_path_factory.mktemp("dist") / TAG))


@pytest.fixture(scope="session")
def plain_server(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same tree's ordinary ``llama-server``, built in the same folder."""
    out = tmp_path_factory.mktemp("plain")
    pipeline = built.pipeline
    spec = pipeline.spec(built.context.targets[0])
    builder = EngineBuilder(spec, pipeline.workspace.path, built.context.cache, built.context.ui)
    builder.build(out, None, pipeline.workspace.owner, goals=("opencoti-engine", "llama-server"))
    return out / "llama-server"


@pytest.fixture(scope="session")
def native_tests(built: Built, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The C++ tests of the series by name, with the CPU modules beside them."""
    out = tmp_path_factory.mktemp("native")
    pipeline = built.pipeline
    sources = sorted((pipeline.workspace.path / "tests").glob("test-opencoti-*.cpp"))
    names = [source.stem.removeprefix("test-opencoti-") for source in sources]
    programs = {name: f"opencoti-test-{name}" for name in names}
    spec = pipeline.spec(built.context.targets[0])
    builder = EngineBuilder(spec, pipeline.workspace.path, built.context.cache, built.context.ui)
    goals = ("opencoti-engine", *programs.values())
    builder.build(out, None, pipeline.workspace.owner, goals=goals)
    return {name: out / program for name, program in programs.items()}


def _model(built: Built, name: str) -> Path:
    pins = load_pins(built.context.project.vendor)
    return ensure_file(pins[name], FetchContext(built.context.cache, built.context.ui))


@pytest.fixture(scope="session")
def smollm2(built: Built) -> Path:
    """SmolLM2-135M-Instruct."""
    return _model(built, "smollm2-135m-instruct")


@pytest.fixture(scope="session")
def gemma3(built: Built) -> Path:
    """Gemma-3-270M, a model with sliding-window attention."""
    return _model(built, "gemma-3-270m")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with a home of its own, so that no test touches the user's."""
    folder = tmp_path_factory.mktemp("home")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_")}
    return {**kept, "HOME": str(folder)}
