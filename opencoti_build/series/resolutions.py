"""Conflicts that were resolved once: remembered with the project, offered when they come again.

A conflict is known by its text alone (both sides and the base, without labels), so that it is
found again in a file that moved on elsewhere. The folder ``patches/.resolutions/`` belongs to the
project: what one of us resolved, the others and the canary need not resolve again.
"""

from __future__ import annotations

import re
from pathlib import Path

from opencoti_build.digest import sha256_bytes
from opencoti_build.paths import write_atomic
from opencoti_build.series.conflict import Kind, Merged, has_markers, merge_files
from opencoti_build.series.git import Git

FOLDER = ".resolutions"

_BLOCK = re.compile(rb"^<{7} .*?^>{7} [^\n]*\n", re.M | re.S)
_LABEL = re.compile(rb"^(<{7}|\|{7}|>{7}) [^\n]*\n", re.M)
_LABELS = ("now", "before", "then")


class Resolutions:
    """The memory of one project; ``patches`` is its patch folder."""

    def __init__(self, patches: Path) -> None:
        self.root = patches / FOLDER

    def recall(self, git: Git, merged: Merged) -> tuple[bool, bytes | None]:
        """Whether this conflict is known, and how the file looked after it (None: gone)."""
        folder = self.root / _key(merged)
        if (folder / "gone").is_file():
            return True, None
        try:
            before, after = (folder / "before").read_bytes(), (folder / "after").read_bytes()
        except OSError:
            return False, None
        text = _unlabelled(merged.data or b"")
        if text == before:
            return True, after
        data, clean = merge_files(git, text, before, after, _LABELS)
        good = clean and not has_markers(data)
        return good, data if good else None

    def remember(self, merged: Merged, after: bytes | None) -> None:
        """Keep how a conflict was resolved."""
        folder = self.root / _key(merged)
        if after is None:
            write_atomic(folder / "gone", merged.path.encode() + b"\n")
            return
        (folder / "gone").unlink(missing_ok=True)
        write_atomic(folder / "before", _unlabelled(merged.data or b""))
        write_atomic(folder / "after", after)


def _key(merged: Merged) -> str:
    blocks = _BLOCK.findall(_unlabelled(merged.data or b""))
    if merged.kind in (Kind.BOTH_CHANGED, Kind.BOTH_ADDED) and blocks:
        parts = blocks
    else:
        parts = [merged.kind.name.encode(), merged.path.encode(), merged.theirs or b""]
    return sha256_bytes(b"\0".join(parts))[:40]


def _unlabelled(data: bytes) -> bytes:
    return _LABEL.sub(rb"\1 \n", data)
