"""What every stage of one command run shares: project, cache, recipe, messages, options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from opencoti_build.errors import UsageError
from opencoti_build.paths import Cache, Project, find_cache, find_project
from opencoti_build.recipe import Recipe, TargetRecipe, Toolchain, check_tag, load_recipe
from opencoti_build.ui import Ui

if TYPE_CHECKING:
    from opencoti_build.sources.fetch import FetchContext


@dataclass(frozen=True)
class BuildContext:
    """One run: what to build, from where, into which cache, for which targets."""

    project: Project
    cache: Cache
    recipe: Recipe
    tag: str
    targets: tuple[TargetRecipe, ...]
    ui: Ui
    offline: bool = False
    jobs: int | None = None
    toolchain: Toolchain = Toolchain.ZIG

    @property
    def workspace(self) -> Path:
        """The workspace of the recipe's base."""
        return self.cache.workspaces / self.recipe.base

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
