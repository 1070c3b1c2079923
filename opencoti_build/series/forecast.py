"""What a move of the series will ask for: every patch tried, all conflicts in one pass.

A patch that conflicts is taken as if it were resolved (its side wins), so that those after it are
tried on files that hold its lines, and do not all fail because of it.
"""

from __future__ import annotations

from opencoti_build.series.conflict import merge_patch
from opencoti_build.series.git import Git
from opencoti_build.series.outcome import Outcome, PatchStatus
from opencoti_build.series.patch import Patch
from opencoti_build.series.plan import PatchResult, Plan, commit_patch, make_plan
from opencoti_build.series.series import Series
from opencoti_build.ui import Ui


def forecast(series: Series, base_tree: str, git: Git, ui: Ui) -> list[PatchStatus]:
    """The status of every patch on ``base_tree``; ``git`` has an index that may be ruined.

    The blobs that the patches name should be in ``git``. Raises SeriesError as ``make_plan``.
    """
    statuses: dict[str, PatchStatus] = {}
    known: list[PatchResult] = []
    left = list(series.patches)
    while True:
        wanted = Series(series.directory, tuple(left))
        plan = make_plan(wanted, base_tree, git, ui, known, first_failure=True)
        ui = Ui(quiet=True)
        known = []
        failed: Patch | None = None
        results = {result.name: result for result in plan.commits}
        for patch, status in zip(wanted.patches, plan.statuses, strict=False):
            statuses.setdefault(patch.name, status)
            if patch.name in results:
                known.append(results[patch.name])
            elif status.outcome is Outcome.ALREADY_APPLIED:
                left.remove(patch)
            else:
                failed = patch
                break
        if failed is None:
            return [statuses[patch.name] for patch in series.patches]
        forced = _force(git, plan, failed, known, base_tree)
        if forced is None:
            left.remove(failed)
        else:
            known.append(forced)


def _force(
    git: Git, plan: Plan, patch: Patch, known: list[PatchResult], base_tree: str
) -> PatchResult | None:
    """The patch on top of ``known`` with its side winning; None when that changes nothing."""
    before = known[-1].tree if known else base_tree
    parent = known[-1].commit if known else plan.base_commit
    lines: list[str] = []
    for file in merge_patch(git, before, patch, "so far", prefer_patch=True):
        lines.append(f"0 {'0' * 40}\t{file.path}\n")
        if file.data is not None:
            blob = git.text("hash-object", "-w", "--stdin", data=file.data)
            lines.append(f"{file.mode or '100644'} {blob}\t{file.path}\n")
    git.run("read-tree", before)
    git.run("update-index", "--index-info", data="".join(lines).encode())
    tree = git.text("write-tree")
    if tree == before:
        return None
    commit = commit_patch(git, patch, tree, parent)
    return PatchResult(patch.number, patch.name, patch.sha256, commit, tree, Outcome.RESOLVED)
