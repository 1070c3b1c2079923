"""The patched tree of a recipe, and which patch wrote a line of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opencoti_build.build.context import BuildContext
from opencoti_build.errors import BuildError, SeriesError
from opencoti_build.series.apply import Applied, apply_series
from opencoti_build.series.git import Git
from opencoti_build.series.series import Series, load_series
from opencoti_build.series.workspace import Workspace as SeriesWorkspace
from opencoti_build.sources.fetch import ensure_tree
from opencoti_build.sources.pins import Pin, find_pin, load_pins


@dataclass(frozen=True)
class Workspace:
    """A checkout of the base with every patch applied; ``tree`` is its identity."""

    path: Path
    base: Pin
    series: Series
    applied: Applied

    @property
    def base_tree(self) -> str:
        return self.applied.base_tree

    @property
    def tree(self) -> str:
        return self.applied.tree

    def check_unchanged(self) -> None:
        """Raise BuildError ``workspace-changed`` when the files are no longer ``tree``.

        Called after a build, so that an output is never stored under the key of another tree.
        """
        state = SeriesWorkspace(self.path).state()
        if state.tree != self.tree or state.dirty:
            raise BuildError(
                "workspace-changed",
                "the workspace changed while it was built",
                hint="run the same command again",
                context={"expected tree": self.tree, "tree": state.tree},
            )

    def owner(self, file: str, line: int) -> str | None:
        """The patch (``NNNN-slug``) that wrote ``file:line``, or None for an upstream line."""
        git = Git(self.path / ".git", work_tree=self.path)
        try:
            blamed = git.text("blame", "--porcelain", "-L", f"{line},{line}", "HEAD", "--", file)
        except SeriesError:
            return None  # a generated file, or a line past its end
        commit = blamed.split(" ", 1)[0]
        names = {result.commit: result.name for result in self.applied.commits}
        return names.get(commit)


def prepare_workspace(
    context: BuildContext, path: Path | None = None, *, patched: bool = True
) -> Workspace:
    """Fetch the base, apply the series, and return the workspace.

    It is in ``path`` (default: the recipe's workspace); without patches if ``patched`` is False.
    Raises SourceError and SeriesError.
    """
    path = path or context.workspace
    base = find_pin(load_pins(context.project.vendor), context.recipe.base)
    base_tree = ensure_tree(base, context.fetching())
    series = load_series(context.project.patches)
    if not patched:
        series = Series(series.directory, ())
    applied = apply_series(series, base_tree, context.cache.objects, path, context.ui)
    return Workspace(path, base, series, applied)
