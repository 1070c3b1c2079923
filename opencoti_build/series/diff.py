"""The diff of a patch: which files it touches, from which blob to which blob."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from opencoti_build.errors import SeriesError

ZERO_ID = "0" * 40

_GIT = re.compile(r"diff --git a/(?P<old>.+) b/(?P<new>.+)")
_INDEX = re.compile(r"index ([0-9a-f]{7,40})\.\.([0-9a-f]{7,40})(?: ([0-7]{6}))?")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(?: .*)?")
_MODE = re.compile(r"(old mode|new mode|new file mode|deleted file mode) ([0-7]{6})")
_MODES = {"100644", "100755"}
_NO_NEWLINE = "\\ No newline at end of file"


@dataclass(frozen=True)
class FileChange:
    """One file of a patch. An absent side has the blob id ``ZERO_ID`` and the mode ``""``."""

    path: str
    old_blob: str
    new_blob: str
    added: int
    deleted: int
    is_new: bool
    old_mode: str = "100644"
    new_mode: str = "100644"

    @property
    def is_deleted(self) -> bool:
        return not self.new_mode


def parse_diff(text: str) -> tuple[FileChange, ...]:
    """The files of a git diff, every hunk counted.

    Raises SeriesError ``patch-malformed``, ``patch-bare-blank``, ``patch-binary``,
    ``patch-rename``, ``patch-bad-mode``, ``patch-bad-path``, ``patch-short-index``,
    ``patch-concatenated``, ``patch-duplicate-file`` or ``patch-empty``.
    """
    reader = _Reader(text.split("\n")[:-1])
    files: list[FileChange] = []
    while reader.more():
        files.append(_read_file(reader))
    if not files:
        raise SeriesError("patch-empty", "the patch changes no file")
    paths = [file.path for file in files]
    for path in paths:
        if paths.count(path) > 1:
            raise SeriesError("patch-duplicate-file", f"{path} is changed twice in one patch")
    return tuple(files)


class _Reader:
    """Lines with a position."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines, self._at = lines, 0

    def more(self) -> bool:
        return self._at < len(self._lines)

    def peek(self) -> str:
        return self._lines[self._at] if self.more() else ""

    def next(self) -> str:
        line = self.peek()
        self._at += 1
        return line


def _read_file(reader: _Reader) -> FileChange:
    head = reader.next()
    if re.match(r"From [0-9a-f]{40} ", head):
        raise SeriesError("patch-concatenated", "the file holds more than one mail")
    found = _GIT.fullmatch(head)
    if found is None:
        if head.startswith('diff --git "'):
            raise SeriesError("patch-bad-path", f"quoted file name in {head!r}")
        raise SeriesError("patch-malformed", f"expected 'diff --git', found {head[:60]!r}")
    path = _path_of(head)
    modes: dict[str, str] = {}
    blobs: tuple[str, str] | None = None
    while reader.more() and not reader.peek().startswith(("--- ", "diff --git ", "From ")):
        line = reader.next()
        if mode := _MODE.fullmatch(line):
            modes[mode.group(1)] = mode.group(2)
        elif index := _INDEX.fullmatch(line):
            blobs = (index.group(1), index.group(2))
            if index.group(3):
                modes["same"] = index.group(3)
        else:
            raise _extended_header(line, path)
    old_mode = _mode(modes, "old mode", "deleted file mode", absent="new file mode")
    new_mode = _mode(modes, "new mode", "new file mode", absent="deleted file mode")
    if blobs is None:
        if old_mode == new_mode or not old_mode or not new_mode:
            raise SeriesError("patch-malformed", f"{path} has no index line")
        return FileChange(path, "", "", 0, 0, False, old_mode, new_mode)
    if len(blobs[0]) != 40 or len(blobs[1]) != 40:
        raise SeriesError(
            "patch-short-index",
            f"{path} has a shortened index line",
            hint="write patches with 'opencoti-build series export'",
        )
    if (blobs[0] == ZERO_ID) != (not old_mode) or (blobs[1] == ZERO_ID) != (not new_mode):
        raise SeriesError("patch-malformed", f"{path}: index line and file mode do not agree")
    added, deleted = _read_hunks(reader, path, bool(old_mode), bool(new_mode))
    return FileChange(path, blobs[0], blobs[1], added, deleted, not old_mode, old_mode, new_mode)


def _read_hunks(reader: _Reader, path: str, has_old: bool, has_new: bool) -> tuple[int, int]:
    if not reader.peek().startswith("--- "):
        return 0, 0  # an empty file comes or goes
    old, new = reader.next(), reader.next()
    tail = "\t" if " " in path else ""
    wanted = (
        f"--- a/{path}{tail}" if has_old else "--- /dev/null",
        f"+++ b/{path}{tail}" if has_new else "+++ /dev/null",
    )
    if (old, new) != wanted:
        raise SeriesError("patch-malformed", f"{path}: file names do not agree with 'diff --git'")
    added = deleted = hunks = 0
    while found := _HUNK.fullmatch(reader.peek()):
        reader.next()
        counts = _read_hunk(reader, path, int(found[2] or 1), int(found[4] or 1))
        added, deleted, hunks = added + counts[0], deleted + counts[1], hunks + 1
    if not hunks:
        raise SeriesError("patch-malformed", f"{path}: no hunk where one is expected")
    return added, deleted


def _read_hunk(reader: _Reader, path: str, old: int, new: int) -> tuple[int, int]:
    added = deleted = 0
    while old > 0 or new > 0:
        if not reader.more():
            raise SeriesError("patch-malformed", f"{path}: the last hunk is cut short")
        line = reader.next()
        if line == "":
            raise SeriesError(
                "patch-bare-blank",
                f"{path}: a blank context line lost its leading space",
                hint="an editor or mail program stripped trailing blanks; export it again",
            )
        kind = line[0]
        if kind == " ":
            old, new = old - 1, new - 1
        elif kind == "-":
            old, deleted = old - 1, deleted + 1
        elif kind == "+":
            new, added = new - 1, added + 1
        elif line != _NO_NEWLINE:
            raise SeriesError("patch-malformed", f"{path}: bad line {line[:40]!r} in a hunk")
        if old < 0 or new < 0:
            raise SeriesError("patch-malformed", f"{path}: a hunk is longer than its header says")
    if reader.peek() == _NO_NEWLINE:
        reader.next()
    return added, deleted


def _path_of(head: str) -> str:
    rest = head[len("diff --git ") :]
    middle = len(rest) // 2
    path = rest[2:middle]
    if rest != f"a/{path} b/{path}":
        raise SeriesError("patch-rename", f"two file names in {head!r}")
    parts = path.split("/")
    bad = any(part in ("", ".", "..") or part.lower().rstrip(". ") == ".git" for part in parts)
    if bad or "\\" in path or any(ord(char) < 32 or ord(char) > 126 for char in path):
        raise SeriesError("patch-bad-path", f"file name {path!r} is not allowed")
    return path


def _mode(modes: dict[str, str], own: str, other: str, *, absent: str) -> str:
    if absent in modes:
        return ""
    mode = modes.get(own) or modes.get(other) or modes.get("same") or "100644"
    if mode not in _MODES:
        raise SeriesError("patch-bad-mode", f"file mode {mode} (link or submodule) is not allowed")
    return mode


def _extended_header(line: str, path: str) -> SeriesError:
    if line.startswith(("GIT binary patch", "Binary files ")):
        return SeriesError("patch-binary", f"{path} is changed as a binary file")
    if line.startswith(("rename ", "copy ", "similarity ", "dissimilarity ")):
        return SeriesError("patch-rename", f"{path} is renamed or copied")
    return SeriesError("patch-malformed", f"{path}: unexpected line {line[:60]!r}")
