"""The series: every patch of a folder, in the order of their numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.digest import content_key
from opencoti_build.errors import SeriesError
from opencoti_build.series.patch import Patch, parse_name, parse_patch

_IGNORED = {"README.md"}


@dataclass(frozen=True)
class Problem:
    """What is wrong with one patch file."""

    patch_name: str
    reason: str
    message: str


class InvalidSeriesError(SeriesError):
    """The series as files is wrong; ``problems`` holds all that was found."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        files = len({problem.patch_name for problem in problems})
        super().__init__(
            "series-invalid",
            f"{files} patch {'file is' if files == 1 else 'files are'} not valid",
            context={
                f"{problem.patch_name} ({problem.reason})": problem.message for problem in problems
            },
        )
        self.problems = problems


@dataclass(frozen=True)
class Series:
    """The patches of one folder, lowest number first."""

    directory: Path
    patches: tuple[Patch, ...]

    @property
    def digest(self) -> str:
        """The content key over all names and contents, in order."""
        return content_key([[patch.name, patch.sha256] for patch in self.patches])

    def find(self, number: int) -> Patch:
        """The patch with this number. Raises SeriesError ``patch-unknown``."""
        for patch in self.patches:
            if patch.number == number:
                return patch
        raise SeriesError("patch-unknown", f"the series has no patch {number:04d}")


def load_series(directory: Path) -> Series:
    """Read every patch of ``directory``. No git is called.

    Raises SeriesError ``series-missing`` when there is no such folder, and
    InvalidSeriesError ``series-invalid`` with every problem of every file.
    """
    if not directory.is_dir():
        raise SeriesError("series-missing", f"there is no patch folder {directory}")
    patches: list[Patch] = []
    names = sorted(
        entry.name
        for entry in directory.iterdir()
        if not entry.name.startswith(".") and entry.name not in _IGNORED
    )
    problems = _duplicates(names)
    for name in names:
        try:
            patches.append(parse_patch(directory / name))
        except SeriesError as error:
            problems.append(Problem(name, error.reason, error.message))
    return _ordered(directory, patches, problems)


def make_series(directory: Path, patches: Sequence[Patch]) -> Series:
    """A series of parsed patches. Raises InvalidSeriesError ``series-invalid``."""
    return _ordered(directory, patches, _duplicates([patch.path.name for patch in patches]))


def _ordered(directory: Path, patches: Sequence[Patch], problems: Sequence[Problem]) -> Series:
    ordered = tuple(sorted(patches, key=lambda patch: patch.number))
    found = [*problems, *_dependencies(ordered, complete=not problems)]
    if found:
        raise InvalidSeriesError(tuple(sorted(found, key=lambda item: item.patch_name)))
    return Series(directory, ordered)


def _duplicates(names: Sequence[str]) -> list[Problem]:
    by_number: dict[int, list[str]] = {}
    for name in names:
        with contextlib.suppress(SeriesError):
            by_number.setdefault(parse_name(name)[0], []).append(name)
    return [
        Problem(name, "patch-duplicate-number", f"number {number:04d} is used by {', '.join(same)}")
        for number, same in by_number.items()
        if len(same) > 1
        for name in same
    ]


def _dependencies(patches: Sequence[Patch], complete: bool) -> list[Problem]:
    numbers = {patch.number for patch in patches}
    problems: list[Problem] = []
    for patch in patches:
        for number in patch.depends:
            if number >= patch.number:
                text = f"depends on {number:04d}, which does not come before it"
                problems.append(Problem(patch.path.name, "patch-depends-later", text))
            elif number not in numbers and complete:
                text = f"depends on {number:04d}, which is not in the series"
                problems.append(Problem(patch.path.name, "patch-depends-missing", text))
    return problems
