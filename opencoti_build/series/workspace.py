"""The workspace of a series: its git folder, its stamp, and safe moves of its work tree.

Two files in ``.git`` say what we did. ``opencoti-stamp.json`` is written last and describes a
finished apply; ``opencoti-moving.json`` holds the next stamp while the work tree is being
changed, so that a killed run is completed by the next one and never taken for an edit by hand.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from opencoti_build.errors import SeriesError
from opencoti_build.paths import write_atomic
from opencoti_build.series.git import Git, borrow_objects, write_repository
from opencoti_build.series.outcome import Outcome
from opencoti_build.series.plan import PatchResult

FORMAT = 1
BRANCH = "refs/heads/series"
BASE_REF = "refs/opencoti/base"
BACKUP_REFS = "refs/opencoti/backup"

_MAX_PACKS = 30
_STAMP = "opencoti-stamp.json"
_MOVING = "opencoti-moving.json"
_EXPORTED = "opencoti-exported.json"
_EDIT = "opencoti-edit.json"
_INDEX = "opencoti-index"
_UNFINISHED = ("rebase-apply", "rebase-merge", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")


@dataclass(frozen=True)
class Stamp:
    """A finished apply."""

    base_tree: str
    base_commit: str
    series: str
    tree: str
    top: str
    commits: tuple[PatchResult, ...]


@dataclass(frozen=True)
class State:
    """What the work tree and HEAD are now. ``dirty`` are changed and unknown files."""

    head: str
    tree: str
    dirty: tuple[str, ...]


class Workspace:
    """One workspace folder. Use it only inside ``hold``."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.git_dir = self.root / ".git"
        self.git = Git(self.git_dir, work_tree=self.root)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other processes out while the block runs."""
        from filelock import FileLock

        self.root.parent.mkdir(parents=True, exist_ok=True)
        # One lock object for each file, so that a command may call another one inside.
        with FileLock(self.root.with_name(f".{self.root.name}.lock"), is_singleton=True):
            yield

    def prepare(self, objects: Path) -> None:
        """Make the git folder where there is none yet, and point it at the object store.

        Raises SeriesError ``workspace-foreign`` when the folder holds something that is not ours.
        """
        if self.root.is_dir():
            for left in self.root.glob(".git.new-*"):
                shutil.rmtree(left)
        if not self.git_dir.exists():
            if self.root.exists() and (not self.root.is_dir() or any(self.root.iterdir())):
                raise self._foreign()
            self.root.mkdir(parents=True, exist_ok=True)
            self._create(objects)
        if not self._file(_STAMP).is_file() and not self._file(_MOVING).is_file():
            raise self._foreign()
        borrow_objects(self.git_dir, objects)

    def planning_git(self) -> Git:
        """The repository with an index of its own, for planning."""
        for path in (self._file(_INDEX), self._file(f"{_INDEX}.lock")):
            path.unlink(missing_ok=True)
        return Git(self.git_dir, index=self._file(_INDEX))

    def stamp(self) -> Stamp | None:
        """The last finished apply, or None when there is none that can be trusted."""
        return _read_stamp(self._file(_STAMP))

    def state(self) -> State:
        """What HEAD and the work tree are now. Raises SeriesError ``git-failed``."""
        # This also refreshes the index, so that the next look does not read fresh files again.
        fields = self.git.fields("status", "--porcelain=v1", "-z", "--no-renames")
        dirty = tuple(field[3:] for field in fields)
        ids = self.git.run("log", "-1", "--format=%H %T", check=False).out.decode().split()
        head, tree = ids if len(ids) == 2 else ("", "")
        return State(head, tree, dirty)

    @property
    def interrupted(self) -> bool:
        """Whether a move of the work tree was begun and not finished."""
        return self._file(_MOVING).is_file()

    def recover(self) -> int:
        """Complete a move that was cut off; returns how many files were written or removed.

        A first apply that was cut off before its move leaves nothing to complete. Raises
        SeriesError ``git-failed``.
        """
        target = _read_stamp(self._file(_MOVING))
        return 0 if target is None else self.move(target)

    def move(self, stamp: Stamp, *, clean: bool = False) -> int:
        """Bring work tree, index and HEAD to ``stamp``; only files that differ are written.

        ``clean`` removes unknown files too. Returns how many files were written or removed.
        Raises SeriesError ``git-failed``.
        """
        self._drop_leftovers()
        write_atomic(self._file(_MOVING), _stamp_bytes(stamp))
        if clean:
            self.git.run("clean", "-f", "-f", "-d", "-q")
        count = self._reset(stamp.tree)
        self.git.run("update-ref", "--no-deref", BRANCH, stamp.top)
        self.git.run("update-ref", BASE_REF, stamp.base_commit)
        self.git.run("symbolic-ref", "HEAD", BRANCH)
        if len(list((self.git_dir / "objects/pack").glob("*.pack"))) > _MAX_PACKS:
            self.git.run("repack", "-q", "-a", "-d", "-l")
        write_atomic(self._file(_STAMP), _stamp_bytes(stamp))
        self._file(_EXPORTED).unlink(missing_ok=True)
        self._file(_EDIT).unlink(missing_ok=True)
        self._file(_MOVING).unlink(missing_ok=True)
        return count

    def go(self, commit: str, rest: Sequence[str] = (), *, edits: str | None = None) -> int:
        """Bring work tree and branch to ``commit``; returns how many files were written.

        ``rest`` names the patches that follow it and come back with the next export. ``edits`` is
        a tree whose differences to ``commit`` are left in the work tree as edits. Killed on the
        way, the next apply goes back to the last finished one. Raises SeriesError ``git-failed``.
        """
        stamp = self.stamp()
        self._drop_leftovers()
        if stamp is not None:
            write_atomic(self._file(_MOVING), _stamp_bytes(stamp))
        tree = self.git.text("rev-parse", f"{commit}^{{tree}}")
        count = self._reset(edits or tree)
        if edits:
            self.git.run("read-tree", "--reset", tree)
        self.git.run("update-ref", "--no-deref", BRANCH, commit)
        self.git.run("symbolic-ref", "HEAD", BRANCH)
        if rest:
            write_atomic(self._file(_EDIT), json.dumps([*rest]).encode())
        else:
            self._file(_EDIT).unlink(missing_ok=True)
        self._file(_MOVING).unlink(missing_ok=True)
        return count

    def rest(self) -> tuple[str, ...]:
        """The patches above the one that is open for editing."""
        try:
            return tuple(map(str, json.loads(self._file(_EDIT).read_bytes())))
        except (OSError, ValueError):
            return ()

    def edited_tree(self) -> str:
        """Store the work tree with all its edits and new files; returns the tree id."""
        git = self.planning_git()
        git = Git(self.git_dir, work_tree=self.root, index=git.index)
        git.run("read-tree", "HEAD")
        git.run("add", "-A")
        return git.text("write-tree")

    def exported(self) -> dict[str, str]:
        """Name and sha256 of the patch files that the last export wrote."""
        try:
            return {
                str(k): str(v) for k, v in json.loads(self._file(_EXPORTED).read_bytes()).items()
            }
        except (OSError, ValueError, AttributeError):
            return {}

    def note_export(self, files: dict[str, str]) -> None:
        """Remember what an export wrote, until the next apply."""
        write_atomic(self._file(_EXPORTED), json.dumps(files, indent=1).encode())

    def rebuild(self, objects: Path) -> None:
        """Throw a broken git folder away and start a new one; the files stay."""
        shutil.rmtree(self.git_dir)
        self._create(objects)

    def back_up(self, commit: str) -> str:
        """Keep ``commit`` under a ref of its own; returns the ref."""
        ref = f"{BACKUP_REFS}/{commit[:12]}"
        self.git.run("update-ref", ref, commit)
        return ref

    def _create(self, objects: Path) -> None:
        # Renamed into place whole, so that a git folder without our marks is never ours.
        temporary = self.root / f".git.new-{os.getpid()}"
        write_repository(temporary, objects)
        (temporary / _MOVING).write_text("{}\n", encoding="ascii")
        temporary.rename(self.git_dir)

    def _reset(self, tree: str) -> int:
        self.git.run("update-index", "-q", "--refresh", check=False)
        before = self.git.fields("diff-index", "-z", "--name-only", "--no-renames", tree)
        self.git.run("read-tree", "--reset", "-u", tree)
        return len(before)

    def _drop_leftovers(self) -> None:
        for name in ("index.lock", "HEAD.lock", f"{BRANCH}.lock", f"{BASE_REF}.lock"):
            self._file(name).unlink(missing_ok=True)
        for name in _UNFINISHED:
            path = self._file(name)
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self.git_dir / name

    def _foreign(self) -> SeriesError:
        return SeriesError(
            "workspace-foreign",
            f"{self.root} is not a workspace of ours",
            hint="name an empty or new folder with --workspace, or remove this one",
        )


def _read_stamp(path: Path) -> Stamp | None:
    try:
        data = json.loads(path.read_bytes())
        if data.pop("format") != FORMAT:
            return None
        commits = tuple(
            PatchResult(**{**item, "outcome": Outcome(item["outcome"])})
            for item in data.pop("commits")
        )
        return Stamp(**data, commits=commits)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _stamp_bytes(stamp: Stamp) -> bytes:
    data = {"format": FORMAT, **asdict(stamp)}
    return json.dumps(data, indent=1, default=lambda outcome: outcome.value).encode()
