"""The pipeline of one run: the plan of its steps, and carrying it out from left to right."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.build.context import BuildContext
from opencoti_build.build.cuda import LIBRARY, CudaBuilder, CudaSpec
from opencoti_build.build.engine import ENGINE, EngineBuilder, EngineSpec
from opencoti_build.build.launcher import LAUNCHER, launcher_step, make_launcher
from opencoti_build.build.ninja import NinjaResult
from opencoti_build.build.steps import Step, StepState, StepStore
from opencoti_build.build.workspace import Workspace, prepare_workspace
from opencoti_build.errors import BuildError
from opencoti_build.recipe import TargetRecipe
from opencoti_build.targets import Target
from opencoti_build.toolchains.nvcc import find_nvcc
from opencoti_build.toolchains.zig import zig_toolchain


@dataclass(frozen=True)
class EngineBuild:
    """A finished engine: its folder, and what ninja did (None when it was stored)."""

    target: Target
    folder: Path
    compiled: NinjaResult | None

    def files(self) -> list[Path]:
        """The engine first, then its modules by name."""
        names = sorted(path for path in self.folder.iterdir() if path.name != "step.json")
        return sorted(names, key=lambda path: path.name != ENGINE)


class Pipeline:
    """The steps of one run on a prepared workspace."""

    def __init__(self, context: BuildContext, workspace: Workspace) -> None:
        self.context, self.workspace = context, workspace
        self.store = StepStore(context.cache)

    @classmethod
    def prepare(cls, context: BuildContext) -> Pipeline:
        """Fetch the base and apply the series. Raises SourceError and SeriesError."""
        return cls(context, prepare_workspace(context))

    def spec(self, recipe: TargetRecipe) -> EngineSpec:
        """The engine to build for one target of the recipe."""
        return EngineSpec(
            target=recipe.target,
            tree=self.workspace.tree,
            base_tree=self.workspace.base_tree,
            version=self.context.recipe.version,
            tag=self.context.tag,
            toolchain=zig_toolchain(
                recipe.target, recipe.minimum.version if recipe.minimum else None
            ),
            cpu_variants=recipe.cpu_variants,
        )

    def steps(self) -> list[Step]:
        """The compile steps, in order."""
        return [
            *(
                step
                for recipe in self.context.targets
                for step in (self.spec(recipe).step(), launcher_step(recipe.target))
            ),
            *self._cuda_steps(),
        ]

    def _cuda_steps(self) -> Iterator[Step]:
        """The CUDA libraries that ``artifact`` would build here: none without a compiler."""
        wanted = {item.target: item.architectures for item in self.context.recipe.cuda}
        for recipe in self.context.targets:
            if recipe.target in wanted and self.context.cuda:
                with contextlib.suppress(BuildError):
                    yield self._cuda_spec(recipe, wanted[recipe.target]).step()

    def states(self) -> list[StepState]:
        """Each step with whether it is stored and, if not, which input changed."""
        return [self.store.state(step) for step in self.steps()]

    def engine(self, recipe: TargetRecipe) -> EngineBuild:
        """Build the engine for one target, or take it from the store. Raises BuildError."""
        spec = self.spec(recipe)
        done: list[NinjaResult] = []

        def action(output: Path) -> None:
            builder = EngineBuilder(spec, self.workspace.path, self.context.cache, self.context.ui)
            done.append(builder.build(output, self.context.jobs, self.workspace.owner))
            self.workspace.check_unchanged()

        folder = self.store.run(spec.step(), action)
        if done:
            self._report(done[0])
        return EngineBuild(spec.target, folder, done[0] if done else None)

    def launcher(self, target: Target) -> Path:
        """Build the launcher of ``target``, or take it from the store. Raises BuildError."""
        folder = self.store.run(
            launcher_step(target), lambda output: make_launcher(target, self.context.cache, output)
        )
        return folder / LAUNCHER

    def cuda(self, recipe: TargetRecipe, architectures: tuple[str, ...]) -> Path:
        """Build the CUDA library of ``recipe``'s target, or take it from the store.

        Builds the engine first, whose libggml-base it is linked against. Raises BuildError.
        """
        spec = self._cuda_spec(recipe, architectures)
        done: list[NinjaResult] = []

        def action(output: Path) -> None:
            base = self.engine(recipe).folder / "libggml-base.so.0"
            builder = CudaBuilder(spec, self.workspace.path, self.context.cache, self.context.ui)
            done.append(builder.build(base, output, self.context.jobs, self.workspace.owner))
            self.workspace.check_unchanged()

        folder = self.store.run(spec.step(), action)
        if done:
            self._report(done[0])
        return folder / LIBRARY

    def _cuda_spec(self, recipe: TargetRecipe, architectures: tuple[str, ...]) -> CudaSpec:
        if recipe.target is not Target.X86_64_LINUX:
            raise BuildError(
                "cuda-target-unknown", f"the CUDA library cannot be built for {recipe.target}"
            )
        toolchain = self.spec(recipe).toolchain
        return CudaSpec(self.workspace.tree, architectures, find_nvcc(), toolchain)

    def _report(self, result: NinjaResult) -> None:
        self.context.ui.info(
            f"compiled {result.compiled} files ({result.from_ccache} of them from ccache)"
        )
