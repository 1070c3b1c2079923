"""``engine/<target>/INDEX``: the list of an engine's files that the launcher unpacks by.

Text, LF: ``opencoti-index 1 <version> <tag>``, then ``<sha256> <size> <mode> <name>`` for each
file (size in bytes, mode in octal). The first file is the engine. Its sha256 names the folder
that the engine is unpacked into.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from opencoti_build.digest import sha256_bytes
from opencoti_build.errors import PackError
from opencoti_build.pack.header import check_word

MAX_FILES = 128
_NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+-]{0,127}")
_LINE = re.compile(r"([0-9a-f]{64}) (0|[1-9][0-9]{0,17}) (644|755) (\S+)")
_HEAD = re.compile(r"opencoti-index 1 (\S+) (\S+)")


@dataclass(frozen=True)
class IndexFile:
    """One file of an engine: its name without folder, sha256 (hex), size and permission bits."""

    name: str
    sha256: str
    size: int
    mode: int


@dataclass(frozen=True)
class Index:
    """A parsed INDEX and the content id that follows from its bytes."""

    version: str
    tag: str
    files: tuple[IndexFile, ...]
    content_id: str


def render_index(version: str, tag: str, files: Sequence[IndexFile]) -> bytes:
    """The INDEX of ``files``, the engine first. Raises PackError ``pack-bad-index``."""
    lines = [f"opencoti-index 1 {check_word(version, 'version')} {check_word(tag, 'tag')}"]
    lines += [f"{file.sha256} {file.size} {file.mode:o} {file.name}" for file in files]
    data = ("\n".join(lines) + "\n").encode("utf-8")
    parse_index(data)
    return data


def parse_index(data: bytes) -> Index:
    """Parse an INDEX as strictly as the launcher does. Raises PackError ``pack-bad-index``."""
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        raise _bad("it is not ASCII") from None
    if not text.endswith("\n"):
        raise _bad("its last line does not end")
    head, *lines = text[:-1].split("\n")
    first = _HEAD.fullmatch(head)
    if not first:
        raise _bad("its first line is wrong")
    files = []
    for line in lines:
        match = _LINE.fullmatch(line)
        if not match or not _NAME.fullmatch(match[4]):
            raise _bad(f"line {line!r} is wrong")
        files.append(IndexFile(match[4], match[1], int(match[2]), int(match[3], 8)))
    if not files or len(files) > MAX_FILES or files[0].mode != 0o755:
        raise _bad("it has no engine, or too many files")
    if len({file.name.lower() for file in files}) != len(files):
        raise _bad("it names a file twice")
    version, tag = check_word(first[1], "version"), check_word(first[2], "tag")
    return Index(version, tag, tuple(files), sha256_bytes(data)[:32])


def _bad(why: str) -> PackError:
    return PackError("pack-bad-index", f"an engine's INDEX is damaged: {why}")
