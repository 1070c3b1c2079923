"""A series for one folder of a larger tree."""

from __future__ import annotations

from opencoti_build.errors import SeriesError
from opencoti_build.series.git import Git
from opencoti_build.series.outcome import DoesNotApplyError
from opencoti_build.series.plan import Plan, make_plan
from opencoti_build.series.series import Series
from opencoti_build.ui import Ui


def apply_below(git: Git, series: Series, tree: str, root: str, ui: Ui) -> tuple[str, Plan]:
    """``tree`` with ``series`` applied to its folder ``root``: the tree id, and what was done.

    ``git`` has an index that it may ruin; nothing is checked out. Raises SeriesError
    ``patch-root-missing``, ``git-failed``, and DoesNotApplyError ``series-does-not-apply``.
    """
    rows = git.fields("ls-tree", "-d", "-z", tree, root)
    if len(rows) != 1 or not rows[0].startswith("040000 tree "):
        raise SeriesError(
            "patch-root-missing",
            f"the tree has no folder {root} that the series could be applied to",
            context={"tree": tree},
        )
    plan = make_plan(series, rows[0].partition("\t")[0].split(" ")[2], git, ui)
    if not plan.good:
        raise DoesNotApplyError(plan.statuses)
    return graft(git, tree, root, plan.tree), plan


def graft(git: Git, tree: str, root: str, below: str) -> str:
    """The id of ``tree`` with the tree ``below`` in the place of its folder ``root``."""
    name, _, rest = root.partition("/")
    rows = []
    for row in git.fields("ls-tree", "-z", tree):
        head, _, found = row.partition("\t")
        if found == name:
            new = graft(git, head.split(" ")[2], rest, below) if rest else below
            row = f"040000 tree {new}\t{name}"
        rows.append(f"{row}\0")
    return git.text("mktree", "-z", data="".join(rows).encode("utf-8", "surrogateescape"))
