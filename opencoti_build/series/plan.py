"""Turn a base tree and a series into commits, without touching any work tree.

Each patch is tried on an index of its own: first as it is, then by three-way merge from the
blobs that its index lines name. What came out is compared with what the patch says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from opencoti_build.errors import SeriesError
from opencoti_build.series.diff import ZERO_ID, FileChange
from opencoti_build.series.exact import (
    BlobReader,
    NewCommit,
    NewFile,
    exact_files,
    moved_files,
    store_commits,
)
from opencoti_build.series.git import IDENTITY_EMAIL, IDENTITY_NAME, Git
from opencoti_build.series.outcome import Conflict, Outcome, PatchStatus
from opencoti_build.series.patch import Patch
from opencoti_build.series.series import Series
from opencoti_build.series.trailers import NAME_TRAILER
from opencoti_build.ui import Ui

BASE_DATE = "@1500000000 +0000"

_FAILED_AT = re.compile(r"error: patch failed: (.+):(\d+)")
_FAILED_FILE = re.compile(r"error: (?!patch failed)(.+): (.+)")


@dataclass(frozen=True)
class PatchResult:
    """One applied patch: its commit, and the tree after it."""

    number: int
    name: str
    sha256: str
    commit: str
    tree: str
    outcome: Outcome


@dataclass(frozen=True)
class Plan:
    """All patches tried. ``tree`` and ``commits`` are the good ones; ``statuses`` are all."""

    base_commit: str
    tree: str
    commits: tuple[PatchResult, ...]
    statuses: tuple[PatchStatus, ...]

    @property
    def top(self) -> str:
        return self.commits[-1].commit if self.commits else self.base_commit

    @property
    def good(self) -> bool:
        return all(status.outcome.good for status in self.statuses)


def make_plan(
    series: Series,
    base_tree: str,
    git: Git,
    ui: Ui,
    known: Sequence[PatchResult] = (),
    *,
    first_failure: bool = False,
) -> Plan:
    """Try every patch of ``series`` on ``base_tree``; ``git`` has an index that it may ruin.

    ``known`` are results of an earlier run on the same base: those of unchanged patches at the
    start of the series are used again. With ``first_failure`` patches after the first one that
    fails (other than those that the tree holds already) are not tried. Raises SeriesError
    ``base-missing``, ``git-missing`` and ``git-failed``; patches that fail are not errors here.
    """
    if git.run("cat-file", "-e", f"{base_tree}^{{tree}}", check=False).code != 0:
        raise SeriesError(
            "base-missing",
            f"the base tree {base_tree} is not in the object store",
            hint="run 'opencoti-build fetch'",
        )
    base_author = f"{IDENTITY_NAME} <{IDENTITY_EMAIL}>"
    base_commit = _commit(git, base_tree, None, "base\n", base_author, BASE_DATE)
    planner = _Planner(git, base_tree, base_commit)
    start = 0
    for patch, result in zip(series.patches, known, strict=False):
        if (patch.name, patch.sha256) != (result.name, result.sha256):
            break
        planner.reuse(result)
        start += 1
    with ui.task("applying patches", total=len(series.patches)) as task:
        task.update(done=start)
        planner.read_entries()
        planner.read_blobs(series.patches[start:])
        while start < len(series.patches):
            taken = planner.take_easy(series.patches[start:])
            start += taken
            task.update(done=start)
            if start < len(series.patches) and not taken:
                planner.take(series.patches[start])
                start += 1
                task.update(done=start)
            if first_failure and planner.failed:
                break
    return Plan(base_commit, planner.tree, tuple(planner.commits), tuple(planner.statuses))


@dataclass(frozen=True)
class _Entry:
    mode: str
    blob: str


_ABSENT = _Entry("", ZERO_ID)


class _Planner:
    def __init__(self, git: Git, base_tree: str, base_commit: str) -> None:
        self.git, self.tree, self.top = git, base_tree, base_commit
        self.commits: list[PatchResult] = []
        self.statuses: list[PatchStatus] = []
        self._entries: dict[str, _Entry] = {}
        self._failed: list[Patch] = []
        self._blobs = BlobReader(git)
        self._indexed = ""

    @property
    def failed(self) -> bool:
        return bool(self._failed)

    def reuse(self, result: PatchResult) -> None:
        self.commits.append(result)
        self.statuses.append(PatchStatus(result.number, result.name, result.outcome))
        self.tree, self.top = result.tree, result.commit

    def read_entries(self) -> None:
        """Read which files the tree holds so far."""
        for line in self.git.fields("ls-tree", "-r", "-z", self.tree):
            head, _, path = line.partition("\t")
            mode, _, blob = head.split(" ")
            self._entries[path] = _Entry(mode, blob)

    def read_blobs(self, patches: Sequence[Patch]) -> None:
        """Read the files that the patches change, in one go."""
        files = [file for patch in patches for file in patch.files]
        self._blobs.fetch(file.old_blob for file in files)
        self._blobs.fetch(self._now(file).blob for file in files)

    def take_easy(self, patches: Sequence[Patch]) -> int:
        """Take the patches at the start that fit in one way only; returns how many.

        They meet exactly their pre-images, or each of their hunks fits in one place alone.
        """
        commits: list[NewCommit] = []
        outcomes: list[Outcome] = []
        for patch in patches:
            outcome, files = self._easy(patch)
            if files is None:
                break
            commits.append(NewCommit(patch.author, _date(patch), _message(patch), files))
            outcomes.append(outcome)
            self._entries.update({file.path: _Entry(file.mode, file.blob) for file in files})
        if not commits:
            return 0
        stored = store_commits(self.git, self.top, commits)
        for patch, outcome, (commit, tree) in zip(patches, outcomes, stored, strict=False):
            self._good(patch, outcome, commit, tree)
        return len(stored)

    def _easy(self, patch: Patch) -> tuple[Outcome, tuple[NewFile, ...] | None]:
        if self._after_failed(patch):
            return Outcome.DEPENDS_ON_FAILED, None
        if all(_was(self._now(file), file) for file in patch.files):
            return Outcome.APPLIED, exact_files(patch, self._blobs)
        if all(_became(self._now(file), file) for file in patch.files):
            return Outcome.ALREADY_APPLIED, None
        now = {file.path: (self._now(file).mode, self._now(file).blob) for file in patch.files}
        self._blobs.fetch(blob for _, blob in now.values())
        return Outcome.APPLIED_OFFSET, moved_files(patch, self._blobs, now)

    def _after_failed(self, patch: Patch) -> list[int]:
        return sorted({failed.number for failed in self._failed}.intersection(patch.depends))

    def take(self, patch: Patch) -> None:
        """Let git try it, on the index."""
        if self._indexed != self.tree:
            self.git.run("read-tree", self.tree)
        status, changed, tree = self._try(patch)
        self._indexed = tree
        if not status.outcome.good:
            if status.outcome is not Outcome.ALREADY_APPLIED:
                self._failed.append(patch)
            self.statuses.append(status)
            return
        commit = commit_patch(self.git, patch, tree, self.top)
        self._entries.update(changed)
        self._good(patch, status.outcome, commit, tree)

    def _good(self, patch: Patch, outcome: Outcome, commit: str, tree: str) -> None:
        self.tree, self.top = tree, commit
        self.statuses.append(PatchStatus(patch.number, patch.name, outcome))
        self.commits.append(
            PatchResult(patch.number, patch.name, patch.sha256, commit, tree, outcome)
        )

    def _try(self, patch: Patch) -> tuple[PatchStatus, dict[str, _Entry], str]:
        if missing := self._after_failed(patch):
            names = ", ".join(f"{number:04d}" for number in missing)
            return self._bad(patch, Outcome.DEPENDS_ON_FAILED, f"needs {names}, which failed")
        if all(_became(self._now(file), file) for file in patch.files):
            return self._bad(patch, Outcome.ALREADY_APPLIED, "the tree holds all of it already")
        exact = all(_was(self._now(file), file) for file in patch.files)
        direct = self.git.run("apply", "--cached", "-", data=patch.diff, check=False)
        if direct.code == 0:
            outcome = Outcome.APPLIED if exact else Outcome.APPLIED_OFFSET
            return self._accept(patch, outcome)
        if exact:
            return self._bad(
                patch, Outcome.MALFORMED, "it does not fit the very files it names", direct.err
            )
        merged = self.git.run("apply", "--cached", "--3way", "-", data=patch.diff, check=False)
        if merged.code == 0:
            return self._accept(patch, Outcome.THREE_WAY)
        self.git.run("read-tree", self.tree)
        return self._explain(patch, direct.err)

    def _accept(self, patch: Patch, outcome: Outcome) -> tuple[PatchStatus, dict[str, _Entry], str]:
        """The post-condition: the tree changed, and exactly as the patch says."""
        tree = self.git.text("write-tree")
        changed = self._changes(tree)
        wrong = self._wrong(patch, outcome, changed)
        if not wrong:
            return PatchStatus(patch.number, patch.name, outcome), changed, tree
        self.git.run("read-tree", self.tree)
        if outcome is Outcome.THREE_WAY and not changed:
            return self._bad(patch, Outcome.ALREADY_APPLIED, "merging it changes nothing")
        status = PatchStatus(
            patch.number,
            patch.name,
            Outcome.WRONG_RESULT,
            "the tree did not change as the patch says",
            tuple(Conflict(path, None, detail) for path, detail in wrong.items()),
        )
        return status, {}, self.tree

    def _wrong(self, patch: Patch, outcome: Outcome, changed: dict[str, _Entry]) -> dict[str, str]:
        said = {file.path: file for file in patch.files}
        wrong = {path: "changed, but not by the patch" for path in changed if path not in said}
        for path, file in said.items():
            if path not in changed:
                if outcome is not Outcome.THREE_WAY or not changed:
                    wrong[path] = "did not change"
            elif outcome is Outcome.APPLIED and not _became(changed[path], file):
                wrong[path] = f"became {changed[path].blob}, not {file.new_blob}"
            elif bool(changed[path].mode) == file.is_deleted:
                wrong[path] = "should be gone" if file.is_deleted else "is gone"
        return wrong

    def _changes(self, tree: str) -> dict[str, _Entry]:
        fields = self.git.fields("diff-tree", "-r", "-z", "--no-renames", "--raw", self.tree, tree)
        changed: dict[str, _Entry] = {}
        for head, path in zip(fields[::2], fields[1::2], strict=True):
            _, mode, _, blob, kind = head.split(" ")
            changed[path] = _ABSENT if kind == "D" else _Entry(mode, blob)
        return changed

    def _explain(self, patch: Patch, err: str) -> tuple[PatchStatus, dict[str, _Entry], str]:
        """Why a patch applies neither as it is nor by merging."""
        paths = {file.path for file in patch.files}
        for other in reversed(self._failed):
            if shared := sorted(paths.intersection(file.path for file in other.files)):
                text = f"{shared[0]} is also changed by {other.name}, which failed"
                return self._bad(patch, Outcome.DEPENDS_ON_FAILED, text, err)
        reverse = self.git.run(
            "apply", "--cached", "--check", "-R", "-", data=patch.diff, check=False
        )
        if reverse.code == 0:
            return self._bad(patch, Outcome.ALREADY_APPLIED, "the tree holds all of it already")
        if "corrupt patch" in err or "patch fragment without header" in err:
            return self._bad(patch, Outcome.MALFORMED, "git cannot read it", err)
        if missing := self._missing_blobs(patch):
            text = f"blob {missing[0].old_blob} of {missing[0].path} is not in the object store"
            return self._bad(patch, Outcome.MISSING_PRE_IMAGE, text, err)
        return self._bad(patch, Outcome.DOES_NOT_APPLY, "", err)

    def _missing_blobs(self, patch: Patch) -> list[FileChange]:
        changed = [
            file
            for file in patch.files
            if file.old_blob not in ("", ZERO_ID) and not _was(self._now(file), file)
        ]
        ids = "".join(f"{file.old_blob}\n" for file in changed).encode()
        lines = self.git.text("cat-file", "--batch-check", data=ids).splitlines()
        return [
            file for file, line in zip(changed, lines, strict=True) if line.endswith(" missing")
        ]

    def _bad(
        self, patch: Patch, outcome: Outcome, message: str, err: str = ""
    ) -> tuple[PatchStatus, dict[str, _Entry], str]:
        status = PatchStatus(patch.number, patch.name, outcome, message, read_conflicts(err))
        return status, {}, self.tree

    def _now(self, file: FileChange) -> _Entry:
        return self._entries.get(file.path, _ABSENT)


def commit_patch(git: Git, patch: Patch, tree: str, parent: str) -> str:
    """Store ``tree`` as the commit of ``patch``. Raises SeriesError ``git-failed``."""
    return _commit(git, tree, parent, _message(patch), patch.author, f"@{_date(patch)}")


def read_conflicts(err: str) -> tuple[Conflict, ...]:
    """The places that ``git apply`` complains about."""
    found: dict[str, Conflict] = {}
    for line in err.splitlines():
        if at := _FAILED_AT.fullmatch(line):
            found[at[1]] = Conflict(at[1], int(at[2]), "this hunk does not fit")
        elif (file := _FAILED_FILE.fullmatch(line)) and file[1] not in found:
            found[file[1]] = Conflict(file[1], None, file[2])
    return tuple(found.values())


def _was(entry: _Entry, file: FileChange) -> bool:
    """Whether ``entry`` is the pre-image of ``file``. A change of the mode alone has no blobs."""
    return entry.mode == file.old_mode and file.old_blob in ("", entry.blob)


def _became(entry: _Entry, file: FileChange) -> bool:
    return entry.mode == file.new_mode and file.new_blob in ("", entry.blob)


def _message(patch: Patch) -> str:
    return f"{patch.message}{NAME_TRAILER}: {patch.name}\n"


def _date(patch: Patch) -> str:
    return f"{int(patch.date.timestamp())} {patch.date:%z}"


def _commit(git: Git, tree: str, parent: str | None, message: str, author: str, date: str) -> str:
    """Write a commit whose id depends on the arguments only."""
    name, _, email = author.rstrip(">").rpartition(" <")
    env = {
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_DATE": date,
    }
    parents = ["-p", parent] if parent else []
    return git.text("commit-tree", tree, *parents, "-F", "-", data=message.encode(), env=env)
