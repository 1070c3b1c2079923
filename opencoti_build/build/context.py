"""What every stage of one command run shares: project, cache, recipe, messages, options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from opencoti_build.paths import Cache, Project, find_cache, find_project
from opencoti_build.recipe import Recipe, TargetRecipe, check_tag, load_recipe
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
    cuda: bool = True

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
) -> BuildContext:
    """A context for ``tag``; the recipe is ``recipes/<recipe or tag>.toml``.

    A tag without a recipe of its own uses the only recipe there is, so that test tags work.
    Raises UsageError ``bad-tag``, ``no-project``, ``recipe-missing``, ``recipe-invalid`` or
    ``target-not-in-recipe``.
    """
    check_tag(tag)
    project = find_project()
    path = project.recipes / f"{recipe or tag}.toml"
    others = sorted(project.recipes.glob("*.toml"))
    if recipe is None and not path.exists() and len(others) == 1:
        path = others[0]
    loaded = load_recipe(path)
    return BuildContext(
        project, find_cache(), loaded, tag, loaded.select(targets), ui, offline, jobs
    )
