"""Make a series again after its patches were moved, joined or taken out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opencoti_build.errors import SeriesError
from opencoti_build.series.export import read_commits, read_diff
from opencoti_build.series.git import Git
from opencoti_build.series.mail import Mail, render_mail
from opencoti_build.series.outcome import DoesNotApplyError, Outcome
from opencoti_build.series.patch import Patch, patch_from_bytes
from opencoti_build.series.plan import Plan, make_plan
from opencoti_build.series.series import Series, make_series
from opencoti_build.ui import Ui


class ReplayStoppedError(SeriesError):
    """Some patches do not apply in their new places; ``wanted`` is the series that was tried."""

    def __init__(self, wanted: Series, plan: Plan) -> None:
        error = DoesNotApplyError(plan.statuses)
        super().__init__(error.reason, error.message, hint=error.hint, context=error.context)
        self.wanted, self.plan = wanted, plan


@dataclass(frozen=True)
class Replayed:
    """A series in canonical form on its base, and the tree that it gives."""

    series: Series
    tree: str


def replay(git: Git, base_tree: str, patches: Sequence[Patch], directory: Path, ui: Ui) -> Replayed:
    """The patches in the order of their numbers, each written anew on the files it then meets.

    Blobs that the patches name should be in ``git`` (plan the old series there first). Raises
    ReplayStoppedError, and InvalidSeriesError for numbers or dependencies that cannot be.
    """
    wanted = make_series(directory, patches)
    plan = make_plan(wanted, base_tree, git, ui)
    if not plan.good:
        raise ReplayStoppedError(wanted, plan)
    return Replayed(canonical(git, plan, wanted), plan.tree)


def canonical(git: Git, plan: Plan, series: Series) -> Series:
    """``series`` as export writes it; ``plan`` holds its commits."""
    exact = all(result.outcome is Outcome.APPLIED for result in plan.commits)
    if exact and all(render_mail(patch.mail()) == patch.data for patch in series.patches):
        return series
    return make_series(
        series.directory, read_commits(git, plan.base_commit, series.directory, (), plan.top)
    )


def squash(
    git: Git, base_tree: str, order: Sequence[Patch], into: Patch, extra: Sequence[Patch], ui: Ui
) -> Patch:
    """``into`` with the changes of ``extra``, moved right after it among the patches ``order``.

    Message and author are those of ``into``. Raises ReplayStoppedError.
    """
    others = {patch.name for patch in extra}
    before = [patch for patch in order if patch.name not in others]
    at = before.index(into)
    chain = Series(into.path.parent, (*before[: at + 1], *extra))
    plan = make_plan(chain, base_tree, git, ui)
    if not plan.good:
        raise ReplayStoppedError(chain, plan)
    start = plan.commits[at - 1].commit if at else plan.base_commit
    tree = plan.commits[-1].tree
    return with_diff(into, read_diff(git, start, tree).decode("utf-8"))


def with_diff(patch: Patch, diff: str) -> Patch:
    """``patch`` with another diff. Raises SeriesError as ``patch_from_bytes`` does."""
    return rewrite(patch, replace(patch.mail(), diff=diff))


def rewrite(patch: Patch, mail: Mail, name: str | None = None) -> Patch:
    """``patch`` with another mail and perhaps another ``NNNN-slug``."""
    path = patch.path.with_name(f"{name or patch.name}.patch")
    return patch_from_bytes(path, render_mail(mail))
