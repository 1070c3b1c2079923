"""Files as chosen patches leave them, in memory: no index, no work tree, no git but for reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from opencoti_build.series.diff import FileChange
from opencoti_build.series.exact import BlobReader
from opencoti_build.series.git import Git
from opencoti_build.series.hunks import Hunk, apply_at, parse_hunks, place, sections, split_lines
from opencoti_build.series.patch import Patch


class DoesNotFitError(Exception):
    """A patch does not apply after the chosen ones. Stays inside the package."""

    def __init__(self, number: int, path: str) -> None:
        super().__init__(f"{number:04d} does not fit {path}")
        self.number, self.path = number, path


class Contents:
    """Contents by path and by the numbers of the patches that were applied, each made once."""

    def __init__(self, git: Git, base_tree: str, patches: Sequence[Patch]) -> None:
        self._patches = {patch.number: patch for patch in patches}
        self._touching: dict[str, list[int]] = {}
        self._changes: dict[tuple[int, str], tuple[FileChange, tuple[Hunk, ...]]] = {}
        self._made: dict[tuple[str, tuple[int, ...]], bytes | DoesNotFitError | None] = {}
        for patch in patches:
            for file, section in zip(patch.files, sections(patch.diff), strict=True):
                self._touching.setdefault(file.path, []).append(patch.number)
                self._changes[patch.number, file.path] = (file, parse_hunks(section))
        self.base = _read_entries(git, base_tree)
        self._blobs = BlobReader(git, [self.base[path] for path in self.base.keys() & self.paths])

    @property
    def paths(self) -> frozenset[str]:
        """Every file that a patch touches."""
        return frozenset(self._touching)

    def touching(self, path: str) -> Sequence[int]:
        """The numbers of the patches that touch ``path``, lowest first."""
        return self._touching.get(path, [])

    def change(self, number: int, path: str) -> tuple[FileChange, tuple[Hunk, ...]]:
        """What one patch does to one file."""
        return self._changes[number, path]

    def read_base(self, path: str) -> bytes | None:
        """The file in the base, or None."""
        blob = self.base.get(path)
        if blob is None:
            return None
        self._blobs.fetch([blob])
        return self._blobs.get(blob)

    def read(self, path: str, numbers: Iterable[int]) -> bytes | None:
        """The file after those of ``numbers`` that touch it; None when there is none.

        Raises DoesNotFitError.
        """
        chosen = {*numbers}
        return self._read(path, tuple(n for n in self.touching(path) if n in chosen))

    def final(self, path: str) -> bytes | None:
        """The file after all patches. Raises DoesNotFitError."""
        return self._read(path, tuple(self.touching(path)))

    def fits(self, number: int, after: Iterable[int]) -> bool:
        """Whether the patch applies after those of ``after``, and no others."""
        chosen = {*after, number}
        try:
            for file in self._patches[number].files:
                self.read(file.path, (n for n in chosen if n <= number))
        except DoesNotFitError:
            return False
        return True

    def _read(self, path: str, numbers: tuple[int, ...]) -> bytes | None:
        if not numbers:
            return self.read_base(path)
        if (path, numbers) not in self._made:
            try:
                before = self._read(path, numbers[:-1])
                self._made[path, numbers] = self._after(before, numbers[-1], path)
            except DoesNotFitError as error:
                self._made[path, numbers] = error
        result = self._made[path, numbers]
        if isinstance(result, DoesNotFitError):
            raise result
        return result

    def _after(self, before: bytes | None, number: int, path: str) -> bytes | None:
        file, hunks = self._changes[number, path]
        if file.is_new != (before is None):
            raise DoesNotFitError(number, path)
        lines = split_lines(before or b"")
        places = place(lines, hunks)
        if places is None:
            raise DoesNotFitError(number, path)
        after = apply_at(lines, hunks, places)
        if file.is_deleted:
            if after:
                raise DoesNotFitError(number, path)
            return None
        return after


def _read_entries(git: Git, tree: str) -> Mapping[str, str]:
    entries = {}
    for line in git.fields("ls-tree", "-r", "-z", tree):
        head, _, path = line.partition("\t")
        entries[path] = head.split(" ")[2]
    return entries
