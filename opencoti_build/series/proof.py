"""The proof of a rebase: the patched trees differ as the bases differ, but for named edits.

A file that changed from the old to the new patched tree has to have changed in the bases, from and
to the same contents. For a file that the series touches, the three-way merge of the two changes on
the old base (the whole series at once, the new base) has to give the new patched file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opencoti_build.errors import CheckError
from opencoti_build.series.conflict import merge_files
from opencoti_build.series.exact import BlobReader
from opencoti_build.series.git import Git

_LABELS = ("new base", "old base", "old series")


@dataclass(frozen=True)
class Edit:
    """A file whose change the bases do not explain, and the patches that do."""

    path: str
    patches: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path} ({', '.join(self.patches) or 'no patch'})"


@dataclass(frozen=True)
class Proof:
    """``same`` files changed as their base did; ``edits`` are the others."""

    same: int
    edits: tuple[Edit, ...]

    def require(self) -> None:
        """Raises CheckError ``rebase-unproved`` for a file that no named patch explains."""
        wild = [edit.path for edit in self.edits if not edit.patches]
        if wild:
            raise CheckError(
                "rebase-unproved",
                "files changed in a way that neither the bases nor a resolved patch explain",
                hint="'opencoti-build series continue --abort' leaves the series as it was; "
                "resolve the conflict again without changing these files",
                context={"files": ", ".join(wild)},
            )


def prove(
    git: Git, old: tuple[str, str], new: tuple[str, str], edited: Mapping[str, Iterable[str]]
) -> Proof:
    """Compare (base, patched) tree ids; ``edited`` names patches that were not taken as they are.

    ``edited`` maps a patch name to the files it touches. Raises SeriesError ``git-failed``.
    """
    by_base = _changes(git, old[0], new[0])
    by_series = _changes(git, old[1], new[1])
    suspects = sorted(
        path
        for path in by_base.keys() | by_series.keys()
        if by_base.get(path) != by_series.get(path)
    )
    sides = [_blobs(git, tree, suspects) for tree in (*old, *new)]
    reader = BlobReader(git, [blob for side in sides for blob in side.values()])
    edits: list[Edit] = []
    for path in suspects:
        texts = [reader.get(side[path]) if path in side else None for side in sides]
        if not _explained(git, texts):
            names = tuple(name for name, paths in edited.items() if path in {*paths})
            edits.append(Edit(path, names))
    total = len(by_base.keys() | by_series.keys())
    return Proof(total - len(edits), tuple(edits))


def _explained(git: Git, texts: Sequence[bytes | None]) -> bool:
    old_base, old_top, new_base, new_top = texts
    if (old_base, old_top) == (new_base, new_top):
        return True
    if old_base is None or new_base is None or old_top is None or new_top is None:
        return old_base == new_base and old_top == new_top
    merged, clean = merge_files(git, new_base, old_base, old_top, _LABELS)
    return clean and merged == new_top


def _changes(git: Git, old: str, new: str) -> dict[str, tuple[str, ...]]:
    fields = git.fields("diff-tree", "-r", "-z", "--no-renames", "--raw", old, new)
    return {
        path: tuple(head.split(" ")) for head, path in zip(fields[::2], fields[1::2], strict=True)
    }


def _blobs(git: Git, tree: str, paths: Sequence[str]) -> dict[str, str]:
    blobs = {}
    if paths:
        for line in git.fields("ls-tree", "-r", "-z", tree, "--", *paths):
            head, _, path = line.partition("\t")
            blobs[path] = head.split(" ")[2]
    return blobs
