"""The hunks of one file's diff, and where they go in a file that has moved.

A hunk goes to its own line, else to the nearest place where every one of its lines stands, as
``git apply`` does: no line may differ, a hunk without lines above it belongs to the start of the
file and one without lines below it to the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_HEAD = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+")


@dataclass(frozen=True)
class Hunk:
    """Old and new lines (with their newlines); ``start`` is the first old line, from 0.

    ``kinds`` has one of ``" -+"`` for each line of the hunk, in order.
    """

    start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    kinds: bytes

    @property
    def at_top(self) -> bool:
        return self.start == 0

    @property
    def at_end(self) -> bool:
        return not self.kinds.endswith(b" ")


def split_lines(data: bytes) -> list[bytes]:
    """The lines of a file, each with its newline (the last one may lack it)."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def sections(diff: bytes) -> list[bytes]:
    """The diff of each file, in order."""
    return re.split(rb"^(?=diff --git )", diff, flags=re.M)[1:]


def parse_hunks(section: bytes) -> tuple[Hunk, ...]:
    """The hunks of one file's diff, which ``parse_diff`` has accepted."""
    body = re.split(rb"^(?=@@ )", section, maxsplit=1, flags=re.M)[1:]
    if not body:
        return ()  # an empty file comes or goes, or only the mode changes
    hunks: list[Hunk] = []
    start, old, new, kinds = -1, [], [], bytearray()  # type: ignore[var-annotated]
    diff = body[0].split(b"\n")
    for line, after in zip(diff, [*diff[1:], b""], strict=True):
        kind = line[:1]
        if found := _HEAD.match(line):
            if start >= 0:
                hunks.append(Hunk(start, tuple(old), tuple(new), bytes(kinds)))
            start = int(found[1]) - (0 if found[2] == b"0" else 1)
            old, new, kinds = [], [], bytearray()
        elif kind in (b" ", b"-", b"+"):
            text = line[1:] + (b"" if after.startswith(b"\\ ") else b"\n")
            kinds += kind
            if kind != b"+":
                old.append(text)
            if kind != b"-":
                new.append(text)
    hunks.append(Hunk(start, tuple(old), tuple(new), bytes(kinds)))
    return tuple(hunks)


def place(
    lines: Sequence[bytes], hunks: Sequence[Hunk], *, exact: bool = False, unique: bool = False
) -> list[int] | None:
    """The line where each hunk goes, or None when one does not fit.

    ``exact``: only its own line will do. ``unique``: a hunk that is not at its own line must fit
    in one place of the file alone.
    """
    places: list[int] = []
    free = 0
    for hunk in hunks:
        at: int | None = hunk.start
        if not (free <= hunk.start and _fits(lines, hunk, hunk.start)):
            at = None if exact else _search(lines, hunk, free, unique)
        if at is None:
            return None
        places.append(at)
        free = at + len(hunk.old)
    return places


def apply_at(lines: Sequence[bytes], hunks: Sequence[Hunk], places: Sequence[int]) -> bytes:
    """The file with every hunk applied at its place."""
    out: list[bytes] = []
    at = 0
    for hunk, start in zip(hunks, places, strict=True):
        out += lines[at:start]
        out += hunk.new
        at = start + len(hunk.old)
    return b"".join([*out, *lines[at:]])


def _fits(lines: Sequence[bytes], hunk: Hunk, at: int) -> bool:
    end = at + len(hunk.old)
    if (hunk.at_top and at > 0) or (hunk.at_end and end != len(lines)):
        return False
    return end <= len(lines) and tuple(lines[at:end]) == hunk.old


def _search(lines: Sequence[bytes], hunk: Hunk, free: int, unique: bool) -> int | None:
    if not hunk.old:
        return None
    last = len(lines) - len(hunk.old)
    if hunk.at_top or hunk.at_end:
        at = 0 if hunk.at_top else last
        return at if at >= free and _fits(lines, hunk, at) else None
    first = hunk.old[0]
    found = [at for at in range(last + 1) if lines[at] == first and _fits(lines, hunk, at)]
    if unique and len(found) != 1:
        return None
    nearest = sorted(
        (at for at in found if at >= free), key=lambda at: (abs(at - hunk.start), at < hunk.start)
    )
    return nearest[0] if nearest else None
