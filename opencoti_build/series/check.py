"""Try a series without a workspace, and look at its patches."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.series.canonical import check_canonical, check_form
from opencoti_build.series.contents import Contents
from opencoti_build.series.depends import check_depends
from opencoti_build.series.finding import Finding, Rule
from opencoti_build.series.forecast import forecast
from opencoti_build.series.git import Git, write_repository
from opencoti_build.series.outcome import Outcome, PatchStatus
from opencoti_build.series.plan import make_plan
from opencoti_build.series.series import Series
from opencoti_build.series.stat import PatchStat, series_stats
from opencoti_build.series.usage import check_files, check_gates
from opencoti_build.ui import Ui

UPSTREAM_LINES = 300  # a patch that changes more lines of upstream files is worth a look


@dataclass(frozen=True)
class Report:
    """The whole check. ``findings`` are in the order of the patches."""

    statuses: tuple[PatchStatus, ...]
    stats: tuple[PatchStat, ...]
    findings: tuple[Finding, ...]
    tree: str

    @property
    def applies(self) -> bool:
        return all(status.outcome.good for status in self.statuses)


@contextlib.contextmanager
def scratch_git(objects: Path) -> Iterator[Git]:
    """A repository for one call, with an index, that borrows the objects of ``objects``."""
    with tempfile.TemporaryDirectory(prefix="opencoti-check-") as folder:
        git_dir = Path(folder) / "check.git"
        write_repository(git_dir, objects)
        yield Git(git_dir, index=git_dir / "index")


def check_series(
    series: Series, base_tree: str, objects: Path, ui: Ui, *, old: str | None = None
) -> list[PatchStatus]:
    """What ``apply_series`` would do with each patch; nothing outlives the call.

    ``old`` is the base that the patches were made on, for a move: what the patches make there can
    be merged, and each patch is tried as if those before it were resolved. Raises SeriesError
    ``git-missing``, ``git-failed`` and ``base-missing``.
    """
    with scratch_git(objects) as git:
        if old is not None:
            make_plan(series, old, git, Ui(quiet=True))
            return forecast(series, base_tree, git, ui)
        return list(make_plan(series, base_tree, git, ui).statuses)


def lint_series(
    series: Series,
    base_tree: str,
    objects: Path,
    ui: Ui,
    *,
    upstream_lines: int = UPSTREAM_LINES,
) -> Report:
    """Try every patch and look at all of them; nothing outlives the call.

    Rules that need the patched files are left out while a patch does not meet exactly the files
    that it was made on. Raises ``git-missing``, ``git-failed`` and ``base-missing``.
    """
    stats = series_stats(series)
    with scratch_git(objects) as git:
        plan = make_plan(series, base_tree, git, ui)
        findings = [finding for patch in series.patches for finding in check_form(patch)]
        findings += check_canonical(series, plan, git)
        findings += check_gates(series)
        for patch, stat in zip(series.patches, stats, strict=True):
            if stat.upstream_lines > upstream_lines:
                text = f"it changes {stat.upstream_lines} lines of upstream files"
                findings.append(Finding(patch.name, Rule.UPSTREAM_BUDGET, text))
        if all(status.outcome is Outcome.APPLIED for status in plan.statuses):
            with ui.task("trying dependencies"):
                contents = Contents(git, base_tree, series.patches)
                findings += check_depends(series, contents)
                findings += check_files(series, contents)
    findings.sort(key=lambda finding: finding.patch_name)
    return Report(plan.statuses, stats, tuple(findings), plan.tree)
