"""The usual case, fast: patches that meet the very files they were made on.

A patch names the blob of each file before and after. Where the blob before is in the tree, its
hunks are applied here, without any search, and the blob that results must have the id that the
patch names: that proves the result, so that git only has to store it, all patches in one go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opencoti_build.series.diff import ZERO_ID
from opencoti_build.series.git import IDENTITY_EMAIL, IDENTITY_NAME, Git
from opencoti_build.series.hunks import apply_at, parse_hunks, place, sections, split_lines
from opencoti_build.series.patch import Patch

_REF = "refs/opencoti/plan"


@dataclass(frozen=True)
class NewFile:
    """A file as a patch leaves it; ``mode`` is empty when it is gone."""

    path: str
    mode: str
    blob: str
    data: bytes | None


@dataclass(frozen=True)
class NewCommit:
    """A commit to be stored."""

    author: str
    date: str
    message: str
    files: tuple[NewFile, ...]


class BlobReader:
    """File contents by blob id, fetched from git in batches and kept."""

    def __init__(self, git: Git, wanted: Sequence[str] = ()) -> None:
        self._git = git
        self._known: dict[str, bytes] = {}
        self.fetch(wanted)

    def fetch(self, blobs: Iterable[str]) -> None:
        """Read those that are not known yet; blobs that are not in the store are left out."""
        wanted = sorted({*blobs} - self._known.keys() - {ZERO_ID, ""})
        if not wanted:
            return
        lines = "".join(f"{blob}\n" for blob in wanted).encode()
        out = self._git.run("cat-file", "--batch", data=lines).out
        at = 0
        for blob in wanted:
            end = out.index(b"\n", at)
            words = out[at:end].split()
            at = end + 1
            if len(words) == 3 and words[1] == b"blob":
                size = int(words[2])
                self._known[blob] = out[at : at + size]
                at += size + 1

    def get(self, blob: str) -> bytes | None:
        return b"" if blob == ZERO_ID else self._known.get(blob)

    def add(self, blob: str, data: bytes) -> None:
        self._known[blob] = data


def exact_files(patch: Patch, blobs: BlobReader) -> tuple[NewFile, ...] | None:
    """What ``patch`` makes of its own pre-images; None unless it is exactly what it says."""
    files: list[NewFile] = []
    for file, section in zip(patch.files, sections(patch.diff), strict=True):
        if file.old_blob == "":
            return None  # only the mode changes: leave it to git
        old = blobs.get(file.old_blob)
        new = None if old is None else patch_bytes(old, section)
        if new is None:
            return None
        if file.is_deleted:
            if new:
                return None
            files.append(NewFile(file.path, "", ZERO_ID, None))
            continue
        if blob_id(new) != file.new_blob:
            return None
        blobs.add(file.new_blob, new)
        files.append(NewFile(file.path, file.new_mode, file.new_blob, new))
    return tuple(files)


def patch_bytes(old: bytes, section: bytes, *, moved: bool = False) -> bytes | None:
    """``old`` with the hunks of one file's diff; None if one does not fit.

    Each hunk has to fit at its own line, or with ``moved`` in one place of the file alone.
    """
    lines, hunks = split_lines(old), parse_hunks(section)
    places = place(lines, hunks, exact=not moved, unique=moved)
    return None if places is None else apply_at(lines, hunks, places)


def moved_files(
    patch: Patch, blobs: BlobReader, now: Mapping[str, tuple[str, str]]
) -> tuple[NewFile, ...] | None:
    """What ``patch`` makes of files that have moved on; None unless there is only one way.

    ``now`` gives mode and blob id of the files as they are. Anything but a change of the text of
    a file that is there, or a new file, is left to git.
    """
    files: list[NewFile] = []
    for file, section in zip(patch.files, sections(patch.diff), strict=True):
        mode, blob = now.get(file.path, ("", ZERO_ID))
        if file.old_mode != mode or file.is_deleted or file.old_blob == "":
            return None
        old = blobs.get(blob)
        new = None if old is None else patch_bytes(old, section, moved=blob != file.old_blob)
        if new is None or new == old:
            return None
        result = blob_id(new)
        if blob == file.old_blob and result != file.new_blob:
            return None
        blobs.add(result, new)
        files.append(NewFile(file.path, file.new_mode, result, new))
    return tuple(files)


def blob_id(data: bytes) -> str:
    """The git id of a file content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def store_commits(git: Git, parent: str, commits: Sequence[NewCommit]) -> list[tuple[str, str]]:
    """Store a chain of commits on ``parent``; returns commit and tree id of each.

    Raises SeriesError ``git-failed``.
    """
    stream: list[bytes] = []
    origin = parent
    for mark, commit in enumerate(commits, 1):
        for file in commit.files:
            if file.data is not None:
                stream.append(b"blob\ndata %d\n%b\n" % (len(file.data), file.data))
        message = commit.message.encode()
        stream.append(
            f"commit {_REF}\nmark :{mark}\nauthor {commit.author} {commit.date}\n"
            f"committer {IDENTITY_NAME} <{IDENTITY_EMAIL}> {commit.date}\n"
            f"data {len(message)}\n".encode()
        )
        stream.append(message + f"\nfrom {origin}\n".encode())
        for file in commit.files:
            line = f"M {file.mode} {file.blob} {file.path}\n" if file.mode else f"D {file.path}\n"
            stream.append(line.encode())
        origin = f":{mark}"
    git.run("fast-import", "--quiet", "--force", data=b"".join(stream))
    lines = git.text("log", "--reverse", "--format=%H %T", f"{parent}..{_REF}").splitlines()
    git.run("update-ref", "-d", _REF)
    return [(line[:40], line[41:]) for line in lines]
