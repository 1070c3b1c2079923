"""The pipeline of one run: the plan of its steps, and carrying it out from left to right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from opencoti_build.build.abi import abi_digest
from opencoti_build.build.context import BuildContext
from opencoti_build.build.cuda import LIBRARY, CudaBuilder, CudaSpec
from opencoti_build.build.engine import EngineBuilder, EngineSpec, program_name
from opencoti_build.build.launcher import LAUNCHER, launcher_step, make_launcher
from opencoti_build.build.ninja import NinjaResult
from opencoti_build.build.steps import Step, StepState, StepStore
from opencoti_build.build.workspace import Workspace, prepare_workspace
from opencoti_build.errors import BuildError
from opencoti_build.recipe import TargetRecipe
from opencoti_build.targets import Target
from opencoti_build.toolchains.nvcc import NvccToolchain
from opencoti_build.toolchains.nvcc_cross import cuda_toolchain
from opencoti_build.toolchains.zig import zig_toolchain

# Failures that say nothing about the other targets.
_OF_ONE_TARGET = ("configure-failed", "compile-failed")


@dataclass(frozen=True)
class EngineBuild:
    """A finished engine: its folder, and what ninja did (None when it was stored)."""

    target: Target
    folder: Path
    compiled: NinjaResult | None

    def summary(self) -> str:
        """How the engine came to be, in a few words."""
        if self.compiled is None:
            return "cached"
        done = self.compiled
        return f"built, {done.compiled} files compiled ({done.from_ccache} of them from ccache)"

    def files(self) -> list[Path]:
        """The engine first, then its modules by name."""
        names = sorted(path for path in self.folder.iterdir() if path.name != "step.json")
        return sorted(names, key=lambda path: path.name != program_name(self.target))


class Pipeline:
    """The steps of one run on a prepared workspace."""

    def __init__(self, context: BuildContext, workspace: Workspace) -> None:
        self.context, self.workspace = context, workspace
        self.store = StepStore(context.cache)
        self._nvcc: dict[Target, NvccToolchain] = {}

    @classmethod
    def prepare(cls, context: BuildContext) -> Pipeline:
        """Fetch the base and apply the series. Raises SourceError and SeriesError."""
        return cls(context, prepare_workspace(context))

    @cached_property
    def abi_digest(self) -> str:
        """The digest of what the engine shares with a GPU library."""
        return abi_digest(self.workspace.path)

    def spec(self, recipe: TargetRecipe) -> EngineSpec:
        """The engine to build for one target of the recipe."""
        return EngineSpec(
            target=recipe.target,
            tree=self.workspace.tree,
            base_tree=self.workspace.base_tree,
            version=self.context.recipe.version,
            tag=self.context.tag,
            toolchain=zig_toolchain(recipe.target, recipe.minimum_version),
            cpu_variants=recipe.cpu_variants,
            abi_digest=self.abi_digest,
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
        """The CUDA libraries that ``artifact --cuda`` builds; nvcc is looked for only then."""
        if not self.context.cuda:
            return
        for recipe, library in self.context.cuda_libraries:
            yield self._cuda_spec(recipe, library.architectures).step()

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
        return EngineBuild(spec.target, folder, done[0] if done else None)

    def engines(self) -> list[EngineBuild]:
        """The engines of all targets of this run, in one progress view.

        A target that does not build is no reason to lose the others: they are built all the
        same, and kept. Raises BuildError: of the target that failed, or ``targets-failed``.
        """
        built: list[EngineBuild] = []
        failed: dict[str, BuildError] = {}
        with self.context.ui.board([str(recipe.target) for recipe in self.context.targets]) as end:
            for recipe in self.context.targets:
                try:
                    built.append(self.engine(recipe))
                    end(str(recipe.target), built[-1].summary())
                except BuildError as error:
                    if error.reason not in _OF_ONE_TARGET:
                        raise
                    failed[str(recipe.target)] = error
                    end(str(recipe.target), f"failed: {error.message}")
        if failed:
            raise _failure(failed, [str(item.target) for item in built])
        return built

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
            compiled, cached = done[0].compiled, done[0].from_ccache
            self.context.ui.info(f"compiled {compiled} CUDA files ({cached} of them from ccache)")
        return folder / LIBRARY

    def _cuda_spec(self, recipe: TargetRecipe, architectures: tuple[str, ...]) -> CudaSpec:
        engine = self.spec(recipe)
        return CudaSpec(
            tree=self.workspace.tree,
            architectures=architectures,
            nvcc=self.nvcc(recipe.target),
            zig=engine.toolchain,
            abi=engine.abi_digest,
            version=engine.version,
        )

    def nvcc(self, target: Target) -> NvccToolchain:
        """The CUDA compiler for ``target``. Raises BuildError and SourceError."""
        if target not in self._nvcc:  # Its identity is a digest of some hundred megabytes.
            vendor, fetching = self.context.project.vendor, self.context.fetching()
            self._nvcc[target] = cuda_toolchain(target, vendor, fetching)
        return self._nvcc[target]


def _failure(failed: Mapping[str, BuildError], built: Sequence[str]) -> BuildError:
    """What to raise for the targets that failed, saying which others are finished and kept."""
    kept = {"finished and kept": ", ".join(built) or "none"}
    if len(failed) == 1:
        ((target, error),) = failed.items()
        error.context = {"target": target, **error.context, **kept}
        return error
    context: dict[str, object] = {}
    for target, error in failed.items():
        context[target] = error.message
        named = ((key, value) for key, value in error.context.items() if key != "last lines")
        context.update({f"{target}, {key}": value for key, value in named})
    return BuildError(
        "targets-failed",
        f"{len(failed)} targets do not build",
        hint="build one of them with --target to see the end of its log",
        context={**context, **kept},
    )
