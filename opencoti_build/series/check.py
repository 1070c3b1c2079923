"""Try a series without a workspace."""

from __future__ import annotations

import tempfile
from pathlib import Path

from opencoti_build.series.git import Git, write_repository
from opencoti_build.series.outcome import PatchStatus
from opencoti_build.series.plan import make_plan
from opencoti_build.series.series import Series
from opencoti_build.ui import Ui


def check_series(series: Series, base_tree: str, objects: Path, ui: Ui) -> list[PatchStatus]:
    """What ``apply_series`` would do with each patch; nothing outlives the call.

    Raises SeriesError ``git-missing``, ``git-failed`` and ``base-missing``.
    """
    with tempfile.TemporaryDirectory(prefix="opencoti-check-") as folder:
        git_dir = Path(folder) / "check.git"
        write_repository(git_dir, objects)
        git = Git(git_dir, index=git_dir / "index")
        return list(make_plan(series, base_tree, git, ui).statuses)
