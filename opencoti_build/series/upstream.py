"""What a move of the base means for the series: files and lines that our patches touch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opencoti_build.series.check import scratch_git
from opencoti_build.series.series import Series


@dataclass(frozen=True)
class FileMove:
    """A file that upstream changed and patches touch. ``added`` is None for a binary file."""

    path: str
    added: int | None
    deleted: int | None
    patches: tuple[str, ...]
    gone: bool


@dataclass(frozen=True)
class BaseMove:
    """From one base to another: ``files`` changed in all, ``touched`` of them are ours too."""

    files: int
    added: int
    deleted: int
    touched: tuple[FileMove, ...]


def base_move(old: str, new: str, series: Series, objects: Path) -> BaseMove:
    """Compare two base trees of the store. Raises SeriesError ``git-failed``."""
    users: dict[str, list[str]] = {}
    for patch in series.patches:
        for file in patch.files:
            users.setdefault(file.path, []).append(patch.name)
    touched: list[FileMove] = []
    total = [0, 0, 0]
    with scratch_git(objects) as git:
        rows = git.fields("diff-tree", "-r", "-z", "--no-renames", "--numstat", old, new)
        status = git.fields("diff-tree", "-r", "-z", "--no-renames", "--name-status", old, new)
    gone = {path for kind, path in zip(status[::2], status[1::2], strict=True) if kind == "D"}
    for row in rows:
        plus, minus, path = row.split("\t")
        added = None if plus == "-" else int(plus)
        deleted = None if minus == "-" else int(minus)
        total = [total[0] + 1, total[1] + (added or 0), total[2] + (deleted or 0)]
        if path in users:
            touched.append(FileMove(path, added, deleted, tuple(users[path]), path in gone))
    return BaseMove(total[0], total[1], total[2], tuple(touched))
