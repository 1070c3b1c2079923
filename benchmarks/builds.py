"""Programs to measure: the recipe's tree, the tree without one patch, and a native build."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.build.context import BuildContext, make_context
from opencoti_build.build.engine import EngineBuilder, EngineSpec
from opencoti_build.build.pipeline import Pipeline
from opencoti_build.paths import Cache
from opencoti_build.series.apply import apply_series
from opencoti_build.series.series import make_series
from opencoti_build.sources.fetch import ensure_file
from opencoti_build.sources.pins import load_pins
from opencoti_build.ui import Ui

PROGRAM = "llama-bench"
MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True)
class Bench:
    """One llama-bench with its modules, the model to run, and where it came from."""

    program: Path
    model: Path
    pipeline: Pipeline


def prepare() -> Bench:
    """llama-bench of the recipe's tree, built with the recipe's flags."""
    context = make_context("bench", ui=Ui())
    pipeline = Pipeline.prepare(context)
    model = ensure_file(load_pins(context.project.vendor)[MODEL], context.fetching())
    out = _folder("patched")
    spec = pipeline.spec(context.targets[0])
    _build(spec, pipeline.workspace.path, context.cache, context, out)
    return Bench(out / PROGRAM, model, pipeline)


def build_without(bench: Bench, number: int) -> Bench:
    """The same program from the series without patch ``number``.

    The tree is built under a second cache root with the same layout, so that ccache serves every
    file that the patch does not touch.
    """
    pipeline = bench.pipeline
    context = pipeline.context
    cache = _second_root(context.cache, f"without-{number:04d}")
    series = pipeline.workspace.series
    kept = make_series(series.directory, [p for p in series.patches if p.number != number])
    workspace = cache.workspaces / context.recipe.base
    applied = apply_series(
        kept, pipeline.workspace.base_tree, context.cache.objects, workspace, context.ui
    )
    spec = dataclasses.replace(pipeline.spec(context.targets[0]), tree=applied.tree)
    out = _folder(f"without-{number:04d}")
    _build(spec, workspace, cache, context, out)
    return Bench(out / PROGRAM, bench.model, pipeline)


def build_native(bench: Bench) -> Bench:
    """The same tree as one static program for this very CPU (``-march=native`` everywhere)."""
    pipeline = bench.pipeline
    context = pipeline.context
    spec = pipeline.spec(context.targets[0])
    native = NativeSpec(**{f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)})
    out = _folder("native")
    cache = _second_root(context.cache, "native", share=False)
    _build(native, pipeline.workspace.path, cache, context, out)
    return Bench(out / PROGRAM, bench.model, pipeline)


@dataclass(frozen=True)
class NativeSpec(EngineSpec):
    """As the recipe builds it, but for the CPU of this machine and without modules."""

    def cmake_options(self) -> dict[str, str]:
        flags = "-O3 -DNDEBUG -g0 -march=native"
        return {
            **super().cmake_options(),
            "BUILD_SHARED_LIBS": "OFF",
            "CMAKE_C_FLAGS_RELEASE": flags,
            "CMAKE_CXX_FLAGS_RELEASE": flags,
            "GGML_BACKEND_DL": "OFF",
            "GGML_CPU_ALL_VARIANTS": "OFF",
            "GGML_NATIVE": "ON",
            "OPENCOTI_CPU_VARIANTS": "",
        }


def _build(
    spec: EngineSpec, workspace: Path, cache: Cache, context: BuildContext, out: Path
) -> None:
    builder = EngineBuilder(spec, workspace, cache, context.ui)
    builder.build(out, context.jobs, lambda file, line: None, goals=(PROGRAM,))


def _folder(name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"opencoti-bench-{name}-"))


def _second_root(cache: Cache, name: str, share: bool = True) -> Cache:
    root = Cache(cache.root / "bench" / name)
    root.root.mkdir(parents=True, exist_ok=True)
    shared = [cache.toolchains, *([cache.ccache] if share else [])]
    for folder in shared:
        link = root.root / folder.name
        if not link.exists():
            folder.mkdir(parents=True, exist_ok=True)
            link.symlink_to(folder)
    return root
