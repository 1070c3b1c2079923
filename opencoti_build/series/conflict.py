"""One patch that does not apply, merged file by file, with both sides where they disagree."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from opencoti_build.series.diff import ZERO_ID, FileChange
from opencoti_build.series.exact import BlobReader, patch_bytes
from opencoti_build.series.git import Git
from opencoti_build.series.hunks import apply_at, parse_hunks, place, sections, split_lines
from opencoti_build.series.patch import Patch

_MARKER = re.compile(rb"^(<{7}|\|{7}|>{7}) ", re.M)


class Kind(Enum):
    """Why a file cannot be merged by itself."""

    NONE = "merged"
    BOTH_CHANGED = "both sides changed the same lines"
    BOTH_ADDED = "both sides added the file"
    DELETED_BELOW = "the file is gone from the base"
    CHANGED_BELOW = "the patch deletes a file that the base changed"
    NO_PRE_IMAGE = "the file that the patch was made on is not known"


@dataclass(frozen=True)
class Merged:
    """A file of the patch. ``data`` None means that it is gone; sides are None where absent."""

    path: str
    mode: str
    data: bytes | None
    kind: Kind = Kind.NONE
    base: bytes | None = None
    ours: bytes | None = None
    theirs: bytes | None = None

    @property
    def conflicts(self) -> bool:
        return self.kind is not Kind.NONE


def has_markers(data: bytes) -> bool:
    """Whether lines of a conflict are left in ``data``."""
    return _MARKER.search(data) is not None


def merge_patch(
    git: Git, tree: str, patch: Patch, onto: str, *, prefer_patch: bool = False
) -> list[Merged]:
    """Every file of ``patch`` merged into ``tree``; ``onto`` names that side in the markers.

    With ``prefer_patch`` the patch wins wherever both changed the same lines. Raises SeriesError
    ``git-failed``.
    """
    now: dict[str, tuple[str, str]] = {}
    for line in git.fields("ls-tree", "-z", tree, "--", *(file.path for file in patch.files)):
        head, _, path = line.partition("\t")
        now[path] = (head.split(" ")[0], head.split(" ")[2])
    blobs = BlobReader(git, [blob for _, blob in now.values()])
    blobs.fetch(file.old_blob for file in patch.files)
    merged: list[Merged] = []
    for file, section in zip(patch.files, sections(patch.diff), strict=True):
        mode, blob = now.get(file.path, ("", ZERO_ID))
        ours = blobs.get(blob) if mode else None
        base = blobs.get(file.old_blob) if file.old_mode else None
        labels = (onto, f"before {patch.name}", patch.name)
        merged.append(_merge(git, file, section, mode, ours, base, labels, prefer_patch))
    return merged


def merge_files(
    git: Git,
    ours: bytes,
    base: bytes,
    theirs: bytes,
    labels: tuple[str, str, str],
    *options: str,
) -> tuple[bytes, bool]:
    """The three-way merge of a file's text, and whether it is without conflict."""
    with tempfile.TemporaryDirectory(prefix="opencoti-merge-") as folder:
        paths = []
        for name, data in (("ours", ours), ("base", base), ("theirs", theirs)):
            path = Path(folder) / name
            path.write_bytes(data)
            paths.append(str(path))
        words = [word for label in labels for word in ("-L", label)]
        done = git.run("merge-file", "-p", "--diff3", *options, *words, *paths, check=False)
        return done.out, done.code == 0


def _merge(
    git: Git,
    file: FileChange,
    section: bytes,
    mode: str,
    ours: bytes | None,
    base: bytes | None,
    labels: tuple[str, str, str],
    prefer_patch: bool,
) -> Merged:
    options = ["--theirs"] if prefer_patch else []
    path, new_mode = file.path, file.new_mode
    if file.is_new:
        theirs = patch_bytes(b"", section)
        if ours is None or ours == theirs:
            return Merged(path, new_mode, theirs)
        data, _ = merge_files(git, ours, b"", theirs or b"", labels, *options)
        return Merged(path, new_mode, data, Kind.BOTH_ADDED, None, ours, theirs)
    if file.is_deleted:
        if ours is None or ours == base:
            return Merged(path, "", None)
        return Merged(path, mode, ours, Kind.CHANGED_BELOW, base, ours, None)
    theirs = base if file.old_blob == "" or base is None else patch_bytes(base, section)
    if ours is None:
        return Merged(path, new_mode, theirs, Kind.DELETED_BELOW, base, None, theirs)
    if file.old_blob == "":
        return Merged(path, new_mode, ours)
    if base is None or theirs is None:
        lines, hunks = split_lines(ours), parse_hunks(section)
        places = place(lines, hunks)
        if places is not None:
            return Merged(path, new_mode, apply_at(lines, hunks, places))
        return Merged(path, mode, ours, Kind.NO_PRE_IMAGE, None, ours, None)
    data, clean = merge_files(git, ours, base, theirs, labels, *options)
    kind = Kind.NONE if clean else Kind.BOTH_CHANGED
    return Merged(path, new_mode, data, kind, base, ours, theirs)
