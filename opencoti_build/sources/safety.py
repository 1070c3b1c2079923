"""Which names and links an archive may hold. Everything else is refused, never repaired."""

from __future__ import annotations

import re
import unicodedata

from opencoti_build.sources.tree import unsafe_archive

_DRIVE = re.compile(r"[A-Za-z]:")
# What Windows and macOS would take for ".git".
_GIT_ALIASES = re.compile(r"\.?git~[0-9]+|\.git[ .]*(:.*)?", re.IGNORECASE)
_IGNORED_BY_HFS = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u206a-\u206f\ufeff]")


def check_name(name: str) -> list[str]:
    """The parts of an entry's name; raises SourceError ``unsafe-archive``.

    ``.`` parts and a trailing slash are dropped. A part that is exactly ``.git`` passes: the
    import skips it.
    """
    if name.startswith("/") or _DRIVE.match(name):
        raise unsafe_archive(name, "the name is absolute")
    if "\\" in name or "\0" in name:
        raise unsafe_archive(name, "the name holds a backslash or a zero byte")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    for part in parts:
        if part == "..":
            raise unsafe_archive(name, "the name leaves the tree with '..'")
        if part != ".git" and _GIT_ALIASES.fullmatch(_IGNORED_BY_HFS.sub("", part)):
            raise unsafe_archive(name, "the name is another spelling of '.git'")
    return parts


def check_link(name: str, target: str) -> None:
    """Refuse a symbolic link at ``name`` whose target is absolute or outside the tree."""
    if not target or "\0" in target:
        raise unsafe_archive(name, "the link has no target")
    if target.startswith("/") or "\\" in target or _DRIVE.match(target):
        raise unsafe_archive(name, f"the link leaves the tree: its target {target!r} is absolute")
    parts = [part for part in target.split("/") if part not in ("", ".")]
    lead = next((i for i, part in enumerate(parts) if part != ".."), len(parts))
    # A part before a later ".." may itself be a link, so that ".." could lead anywhere.
    if lead > name.count("/") or ".." in parts[lead:]:
        raise unsafe_archive(name, f"the link leaves the tree: its target is {target!r}")


class NameGuard:
    """Remembers the names of one archive and refuses the second use of one."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, bool]] = {}  # folded path -> (path, is a folder)
        self._files: set[str] = set()

    def add(self, parts: list[str], *, folder: bool) -> None:
        """Take the name of the next entry; raises SourceError ``unsafe-archive``.

        Names that differ only in case or in Unicode form collide, because they are one file on
        macOS and Windows. A folder may be named again.
        """
        name = "/".join(parts)
        for end in range(1, len(parts) + 1):
            path = "/".join(parts[:end])
            is_folder = folder or end < len(parts)
            first, first_is_folder = self._seen.setdefault(_fold(path), (path, is_folder))
            if first != path:
                raise unsafe_archive(name, f"the name collides with {first!r}")
            if first_is_folder != is_folder:
                raise unsafe_archive(name, f"{path!r} is both a file and a folder")
        if not folder:
            if name in self._files:
                raise unsafe_archive(name, "the name occurs twice")
            self._files.add(name)


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
