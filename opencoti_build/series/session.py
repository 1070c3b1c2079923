"""A replay that stops at conflicts: everything it knows is on disk, so it survives a reboot.

It has a workspace folder of its own, so that the project and the ordinary workspace stay as they
are until the end. ``.git/opencoti-session/`` holds the wanted patches and ``state.json``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from opencoti_build.errors import SeriesError
from opencoti_build.paths import write_atomic
from opencoti_build.series.git import Git, write_repository
from opencoti_build.series.outcome import Outcome
from opencoti_build.series.patch import Patch, patch_from_bytes
from opencoti_build.series.plan import PatchResult
from opencoti_build.series.series import Series

FORMAT = 1

_FOLDER = "opencoti-session"
_STATE = "state.json"
_MARK = "opencoti-resolve"  # the folder is ours to remove


@dataclass(frozen=True)
class Row:
    """One line of the table: a patch, what became of it when it was tried first, and why."""

    name: str
    word: str
    detail: str = ""


@dataclass(frozen=True)
class State:
    """Where a session is. ``results`` are the commits so far; ``gone`` maps dropped patches to why.

    ``old`` and ``new`` are base trees; ``old_top`` is the tree of the old series; ``start`` is the
    digest of the project's series at the start; ``files`` are further project files to write at
    the end. ``stopped`` names the patch whose conflict lies in the work tree. ``space`` says how
    the ordinary workspace was at the start.
    """

    command: str
    old: str
    old_top: str
    new: str
    start: str
    names: tuple[str, ...]
    rows: tuple[Row, ...] = ()
    results: tuple[PatchResult, ...] = ()
    gone: Mapping[str, str] = field(default_factory=dict)
    resolved: tuple[str, ...] = ()
    stopped: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    space: Mapping[str, object] = field(default_factory=dict)

    @property
    def top(self) -> str:
        """The last good commit; empty at the base."""
        return self.results[-1].commit if self.results else ""

    @property
    def tree(self) -> str:
        return self.results[-1].tree if self.results else self.new


class SessionFolder:
    """The folder of a session: its repository and its files."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.git_dir = self.root / ".git"
        self.git = Git(self.git_dir, work_tree=self.root)
        self.index_git = Git(self.git_dir, index=self.git_dir / "opencoti-index")

    @property
    def open(self) -> bool:
        """Whether a session waits here."""
        return (self.git_dir / _FOLDER / _STATE).is_file()

    def create(self, objects: Path, more: Path | None = None) -> None:
        """Make the repository anew. Raises SeriesError ``session-open`` and ``workspace-foreign``.

        Objects come from the store ``objects`` and, where it is there, the git folder ``more``.
        """
        if self.open:
            raise SeriesError(
                "session-open",
                f"'{self.load().command}' is not finished",
                hint="run 'opencoti-build series continue', or 'series continue --abort'",
                context={"workspace": self.root},
            )
        mark = self.git_dir / _MARK
        if self.root.exists():
            if any(self.root.iterdir()) and not mark.is_file():
                raise SeriesError(
                    "workspace-foreign", f"{self.root} is not a folder of ours", hint="move it away"
                )
            shutil.rmtree(self.root)
        write_atomic(mark, b"")
        write_repository(self.git_dir, objects)
        if more is not None and (more / "objects").is_dir():
            with (self.git_dir / "objects/info/alternates").open("a", encoding="utf-8") as file:
                file.write(f"{(more / 'objects').resolve().as_posix()}\n")

    def begin(self, state: State, patches: Sequence[Patch]) -> None:
        """Keep the wanted patches and the state: from here on the session is open."""
        for patch in patches:
            write_atomic(self.git_dir / _FOLDER / patch.path.name, patch.data)
        self.save(state)

    def save(self, state: State) -> None:
        """Keep the state."""
        data = {"format": FORMAT, **asdict(state)}
        text = json.dumps(data, indent=1, default=lambda outcome: outcome.value)
        write_atomic(self.git_dir / _FOLDER / _STATE, text.encode())

    def load(self) -> State:
        """The state. Raises SeriesError ``session-none``."""
        try:
            data = json.loads((self.git_dir / _FOLDER / _STATE).read_bytes())
        except OSError as error:
            raise SeriesError("session-none", "nothing waits to be continued") from error
        if data.pop("format") != FORMAT:
            raise SeriesError(
                "session-format",
                "another version of this program left that session",
                hint="abort it",
            )
        data["rows"] = tuple(Row(**row) for row in data["rows"])
        data["results"] = tuple(
            PatchResult(**{**item, "outcome": Outcome(item["outcome"])}) for item in data["results"]
        )
        data["names"], data["resolved"] = tuple(data["names"]), tuple(data["resolved"])
        return State(**data)

    def patches(self, state: State) -> Series:
        """The wanted patches that are not gone, in order."""
        folder = self.git_dir / _FOLDER
        found = []
        for name in state.names:
            if name not in state.gone:
                path = folder / f"{name}.patch"
                found.append(patch_from_bytes(path, path.read_bytes()))
        return Series(folder, tuple(found))

    def remove(self) -> None:
        """End the session; the folder goes away."""
        state = self.git_dir / _FOLDER / _STATE
        state.unlink(missing_ok=True)
        if self.root.exists():
            shutil.rmtree(self.root)


def drop_patch(state: State, name: str, why: str) -> State:
    """``state`` without a patch."""
    return replace(state, gone={**state.gone, name: why}, stopped="")
