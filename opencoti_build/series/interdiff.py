"""How a series changed between two states: per patch, with moves of lines left out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from opencoti_build.series.patch import Patch
from opencoti_build.series.series import Series

_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")


class Change(Enum):
    """What became of one patch."""

    SAME = "same"
    MOVED = "moved"  # only line numbers, context or blob ids differ
    MESSAGE = "message"  # the message or the trailers differ
    CHANGED = "changed"  # what it adds or removes differs
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True)
class PatchChange:
    """One patch in both states; a name is None where there is no such patch.

    ``lines`` is the difference of the two patches, as a unified diff of their texts.
    """

    old: str | None
    new: str | None
    change: Change
    lines: tuple[str, ...] = ()

    @property
    def renamed(self) -> bool:
        return self.old is not None and self.new is not None and self.old != self.new

    def to_json(self) -> dict[str, object]:
        """The change as plain data."""
        return {
            "old": self.old,
            "new": self.new,
            "change": self.change.value,
            "diff": list(self.lines),
        }


def compare(old: Series, new: Series) -> list[PatchChange]:
    """Every patch of either series, in the order of the new one; removed patches come last.

    Patches belong together by name, then by slug, then by number.
    """
    pairs = _pair(old, new)
    changes = [_compare(pairs.get(patch.name), patch) for patch in new.patches]
    taken = {patch.name for patch in pairs.values()}
    changes += [
        PatchChange(patch.name, None, Change.REMOVED)
        for patch in old.patches
        if patch.name not in taken
    ]
    return changes


def edits(patch: Patch) -> list[str]:
    """What a patch does, free of line numbers and context: file names, added, removed lines."""
    return [
        line[len("diff --git a/") :].partition(" b/")[0] if line.startswith("diff --git ") else line
        for line in patch.diff.decode("utf-8").split("\n")
        if line.startswith(("diff --git ", "+", "-", "\\", "new file", "deleted", "old mode"))
        and not line.startswith(("+++ ", "--- "))
    ]


def _pair(old: Series, new: Series) -> dict[str, Patch]:
    """The old patch of each new one, by the new one's name."""
    left = {patch.name: patch for patch in old.patches}
    pairs: dict[str, Patch] = {}
    keys: tuple[Callable[[Patch], object], ...] = (
        lambda patch: patch.name,
        lambda patch: patch.slug,
        lambda patch: patch.number,
    )
    for key in keys:
        by_key = {key(patch): name for name, patch in left.items()}
        for patch in new.patches:
            name = by_key.get(key(patch))
            if patch.name not in pairs and name in left:
                pairs[patch.name] = left.pop(name)
    return pairs


def _compare(old: Patch | None, new: Patch) -> PatchChange:
    if old is None:
        return PatchChange(None, new.name, Change.ADDED)
    if old.data == new.data:
        return PatchChange(old.name, new.name, Change.SAME)
    if edits(old) != edits(new):
        change = Change.CHANGED
    elif _head(old) != _head(new):
        change = Change.MESSAGE
    else:
        change = Change.MOVED
    return PatchChange(old.name, new.name, change, tuple(_difference(old, new)))


def _head(patch: Patch) -> tuple[str, str, str]:
    return patch.message, patch.author, patch.date.isoformat()


def _difference(old: Patch, new: Patch) -> list[str]:
    lines = difflib.unified_diff(
        _normal(old), _normal(new), f"a/{old.name}", f"b/{new.name}", n=2, lineterm=""
    )
    return list(lines)


def _normal(patch: Patch) -> list[str]:
    """The patch as text, without what changes whenever lines move."""
    diff = [
        _HUNK.sub("@@", line)
        for line in patch.diff.decode("utf-8").rstrip("\n").split("\n")
        if not line.startswith("index ")
    ]
    return [*patch.message.rstrip("\n").split("\n"), "", *diff]
