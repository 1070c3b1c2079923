"""What every stage of one command run shares: project, cache, recipe, messages, options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from opencoti_build.errors import BuildError, UsageError
from opencoti_build.paths import Cache, Project, find_cache, find_project
from opencoti_build.recipe import (
    CudaRecipe,
    Recipe,
    TargetRecipe,
    Toolchain,
    check_tag,
    load_recipe,
)
from opencoti_build.targets import CUDA_TARGETS, Target
from opencoti_build.ui import Ui

if TYPE_CHECKING:
    from opencoti_build.sources.fetch import FetchContext


@dataclass(frozen=True)
class BuildContext:
    """One run: what to build, from where, into which cache, for which targets.

    ``cuda``: the release has the CUDA libraries too, which take hours to build.
    """

    project: Project
    cache: Cache
    recipe: Recipe
    tag: str
    targets: tuple[TargetRecipe, ...]
    ui: Ui
    offline: bool = False
    jobs: int | None = None
    toolchain: Toolchain = Toolchain.ZIG
    cuda: bool = False
    cuda_targets: tuple[Target, ...] = CUDA_TARGETS

    @property
    def workspace(self) -> Path:
        """The workspace of the recipe's base."""
        return self.cache.workspaces / self.recipe.base

    @property
    def cuda_libraries(self) -> tuple[tuple[TargetRecipe, CudaRecipe], ...]:
        """The targets of this run for which a CUDA library can be built, each with its recipe."""
        known = {item.target: item for item in self.recipe.cuda if item.target in self.cuda_targets}
        return tuple((item, known[item.target]) for item in self.targets if item.target in known)

    def with_cuda(self, targets: tuple[Target, ...] = CUDA_TARGETS) -> BuildContext:
        """The same run with CUDA libraries, of those of its targets that are in ``targets``.

        Raises UsageError ``cuda-needs-zig`` or ``no-cuda-for-targets``.
        """
        if self.toolchain is not Toolchain.ZIG:
            raise UsageError(
                "cuda-needs-zig",
                f"the CUDA library is not built with {self.toolchain.value}",
                hint="use --toolchain zig",
            )
        context = replace(self, cuda=True, cuda_targets=targets)
        if not context.cuda_libraries:
            raise UsageError(
                "no-cuda-for-targets",
                "no CUDA library can be built for the targets",
                hint="one of them has to be in the recipe's table cuda, and one of: "
                + ", ".join(map(str, targets)),
            )
        return context

    def with_cuda_if_possible(self) -> BuildContext:
        """The same run, with the CUDA libraries for which there are compilers.

        When only a compiler is missing, or useless, one line says so.
        """
        if self.toolchain is not Toolchain.ZIG:
            return self
        from opencoti_build.toolchains.nvcc import find_nvcc

        found, lines = [], []
        for recipe, _ in self.cuda_libraries:
            try:
                find_nvcc(recipe.target)
                found.append(recipe.target)
            except BuildError as error:
                one = f" for {recipe.target}" if error.reason == "host-compiler-missing" else ""
                how = f"; {error.hint}" if error.hint else ""
                lines.append(f"without the CUDA library{one}: {error.message}{how}")
        for line in dict.fromkeys(lines):
            self.ui.info(line)
        return self.with_cuda(tuple(found)) if found else self

    def fetching(self) -> FetchContext:
        """The same run as the sources package sees it."""
        from opencoti_build.sources.fetch import FetchContext

        return FetchContext(self.cache, self.ui, offline=self.offline)


def make_context(
    tag: str,
    *,
    recipe: str | None = None,
    targets: tuple[str, ...] = (),
    ui: Ui,
    offline: bool = False,
    jobs: int | None = None,
    toolchain: str | None = None,
) -> BuildContext:
    """A context for ``tag``; the recipe is ``recipes/<recipe or tag>.toml``.

    A tag without a recipe of its own uses the only recipe there is, so that test tags work.
    ``toolchain`` takes the place of the recipe's. Raises UsageError ``bad-tag``, ``no-project``,
    ``recipe-missing``, ``recipe-invalid``, ``target-not-in-recipe``, ``toolchain-not-in-recipe``
    or ``target-not-selectable``.
    """
    check_tag(tag)
    project = find_project()
    path = project.recipes / f"{recipe or tag}.toml"
    others = sorted(project.recipes.glob("*.toml"))
    if recipe is None and not path.exists() and len(others) == 1:
        path = others[0]
    loaded = load_recipe(path)
    chosen = loaded.toolchain(toolchain)
    if chosen is Toolchain.COSMOCC and targets:
        raise UsageError(
            "target-not-selectable",
            "cosmocc makes one program for all targets",
            hint="leave --target out",
        )
    selected = loaded.select(targets)
    return BuildContext(project, find_cache(), loaded, tag, selected, ui, offline, jobs, chosen)
