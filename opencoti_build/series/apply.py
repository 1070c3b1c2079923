"""Apply a series: a base tree and patches become a workspace with one commit a patch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opencoti_build.errors import SeriesError
from opencoti_build.series.outcome import DoesNotApplyError
from opencoti_build.series.plan import PatchResult, Plan, make_plan
from opencoti_build.series.series import Series
from opencoti_build.series.workspace import Stamp, State, Workspace
from opencoti_build.ui import Ui

__all__ = ["Applied", "PatchResult", "apply_series"]

_SHOWN = 10


@dataclass(frozen=True)
class Applied:
    """A finished workspace. ``tree`` is its identity; ``rewritten_files`` were touched now."""

    base_tree: str
    tree: str
    commits: tuple[PatchResult, ...]
    rewritten_files: int
    base_commit: str


def apply_series(
    series: Series,
    base_tree: str,
    objects: Path,
    workspace: Path,
    ui: Ui,
    *,
    force: bool = False,
) -> Applied:
    """Bring ``workspace`` to ``base_tree`` plus ``series``.

    Objects of the base come from the bare store ``objects``. Files that are the same before and
    after keep their times; when nothing changed, nothing is touched. ``force`` throws away edits
    and new files (ignored files stay) and leaves commits behind under ``refs/opencoti/backup``.

    Raises SeriesError ``git-missing``, ``git-failed``, ``base-missing``, ``workspace-foreign``,
    ``workspace-dirty`` (edits or new files), ``workspace-has-commits`` (commits that the series
    does not hold), and DoesNotApplyError ``series-does-not-apply`` with a status for every
    patch; in all these cases the workspace stays as it was.
    """
    space = Workspace(workspace)
    with space.hold():
        space.prepare(objects)
        try:
            return _apply(space, series, base_tree, ui, force)
        except SeriesError as error:
            if error.reason != "git-failed" or not space.interrupted:
                raise
            ui.warn(f"the interrupted workspace {space.root} is broken; making it again")
            space.rebuild(objects)
            return _apply(space, series, base_tree, ui, force=True)


def _apply(space: Workspace, series: Series, base_tree: str, ui: Ui, force: bool) -> Applied:
    recovered = space.recover() if space.interrupted else 0
    stamp = space.stamp()
    # A first apply that was cut off before its move: what is there, nobody can have edited.
    state = State("", "", ()) if space.interrupted else space.state()
    if state.dirty and not force:
        raise _dirty(state)
    if stamp and _up_to_date(stamp, state, series, base_tree):
        return Applied(base_tree, stamp.tree, stamp.commits, recovered, stamp.base_commit)
    known = stamp.commits if stamp and stamp.base_tree == base_tree else ()
    plan = make_plan(series, base_tree, space.planning_git(), ui, known)
    if not plan.good:
        raise DoesNotApplyError(plan.statuses)
    _keep_commits(space, stamp, state, plan, ui, force)
    new = Stamp(base_tree, plan.base_commit, series.digest, plan.tree, plan.top, plan.commits)
    with ui.task("updating the workspace"):
        count = recovered + space.move(new, clean=force)
    return Applied(base_tree, plan.tree, plan.commits, count, plan.base_commit)


def _up_to_date(stamp: Stamp, state: State, series: Series, base_tree: str) -> bool:
    return (
        (stamp.base_tree, stamp.series) == (base_tree, series.digest)
        and (stamp.top, stamp.tree) == (state.head, state.tree)
        and not state.dirty
    )


def _keep_commits(
    space: Workspace, stamp: Stamp | None, state: State, plan: Plan, ui: Ui, force: bool
) -> None:
    """Commits made by hand are never lost: refused, or kept under a backup ref."""
    ours = {stamp.base_commit, *(item.commit for item in stamp.commits)} if stamp else set()
    if not state.head or state.head == plan.top or state.head in ours:
        return  # an older patch may be open for editing: without changes it is just left
    if stamp and state.tree != plan.tree and not force:
        raise SeriesError(
            "workspace-has-commits",
            "the workspace has commits that the series does not hold",
            hint="run 'opencoti-build series export', or apply with --force",
            context={"HEAD": state.head, "applied": stamp.top},
        )
    ui.info(f"the former HEAD {state.head[:12]} is kept as {space.back_up(state.head)}")


def _dirty(state: State) -> SeriesError:
    shown = ", ".join(state.dirty[:_SHOWN])
    more = len(state.dirty) - _SHOWN
    return SeriesError(
        "workspace-dirty",
        "the workspace was edited by hand",
        hint="commit and run 'opencoti-build series export', or apply with --force to restore",
        context={"files": f"{shown} and {more} more" if more > 0 else shown},
    )
