"""The usual case, fast: patches that meet the very files they were made on.

A patch names the blob of each file before and after. Where the blob before is in the tree, its
hunks are applied here, without any search, and the blob that results must have the id that the
patch names: that proves the result, so that git only has to store it, all patches in one go.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from opencoti_build.series.diff import ZERO_ID
from opencoti_build.series.git import IDENTITY_EMAIL, IDENTITY_NAME, Git
from opencoti_build.series.patch import Patch

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+")
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
    """File contents by blob id, fetched from git in one batch and kept."""

    def __init__(self, git: Git, wanted: Sequence[str]) -> None:
        self._known: dict[str, bytes] = {}
        out = git.run("cat-file", "--batch", data="".join(f"{w}\n" for w in wanted).encode()).out
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
    sections = re.split(rb"^(?=diff --git )", patch.diff, flags=re.M)[1:]
    files: list[NewFile] = []
    for file, section in zip(patch.files, sections, strict=True):
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


def patch_bytes(old: bytes, section: bytes) -> bytes | None:
    """``old`` with the hunks of one file's diff, each at its own line; None if one does not fit."""
    lines = _lines(old)
    out: list[bytes] = []
    at = 0
    body = re.split(rb"^(?=@@ )", section, maxsplit=1, flags=re.M)[1:]
    if not body:
        return old  # an empty file comes or goes
    diff = body[0].split(b"\n")
    for line, after in zip(diff, [*diff[1:], b""], strict=True):
        kind = line[:1]
        if found := _HUNK.match(line):
            start = int(found[1]) - (0 if found[2] == b"0" else 1)
            if start < at or start > len(lines):
                return None
            out += lines[at:start]
            at = start
        elif kind in (b" ", b"-", b"+"):
            text = line[1:] + (b"" if after.startswith(b"\\ ") else b"\n")
            if kind != b"+":
                if at >= len(lines) or lines[at] != text:
                    return None
                at += 1
            if kind != b"-":
                out.append(text)
    return b"".join(out + lines[at:])


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


def _lines(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
