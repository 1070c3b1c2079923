"""The workbench: every command that changes the series, each as one operation that can be undone.

A command works out the new series in a repository of its own, writes the patch files through the
journal, and then brings the workspace along. What does not apply becomes a session (``resolve``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.errors import SeriesError
from opencoti_build.series.apply import Applied, apply_series
from opencoti_build.series.git import Git
from opencoti_build.series.journal import Entry, Journal
from opencoti_build.series.outcome import DoesNotApplyError
from opencoti_build.series.patch import Patch
from opencoti_build.series.plan import make_plan
from opencoti_build.series.replay import Replayed, ReplayStoppedError, replay
from opencoti_build.series.resolve import Finished, Resolver, Stop
from opencoti_build.series.series import Series, load_series
from opencoti_build.series.session import SessionFolder, State
from opencoti_build.series.workspace import Workspace
from opencoti_build.ui import Ui

LOG_REFS = "refs/opencoti/log"

# Gives the wanted patches; the repository holds the objects of the planned series.
Change = Callable[[Git, Series], Sequence[Patch]]


@dataclass(frozen=True)
class Done:
    """What a command did, as file names. ``space`` is None where there is no workspace."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    space: Applied | None = None
    finished: Finished | None = None


@dataclass(frozen=True)
class Bench:
    """The project, the base and the folders that the commands work on."""

    project: Path
    base_tree: str
    objects: Path
    workspace: Path
    ui: Ui

    @property
    def patches(self) -> Path:
        return self.project / "patches"

    @property
    def journal(self) -> Journal:
        return Journal(self.project)

    @property
    def session(self) -> SessionFolder:
        return SessionFolder(self.workspace.with_name(f"{self.workspace.name}-resolve"))

    def series(self) -> Series:
        """The series of the project. Raises as ``load_series`` does."""
        return load_series(self.patches)

    @contextlib.contextmanager
    def hold(self) -> Iterator[Workspace]:
        """Keep others out and complete what was cut off; gives the workspace."""
        space = Workspace(self.workspace)
        with self.journal.hold(), space.hold():
            self.journal.recover()
            if space.git_dir.is_dir() and space.interrupted:
                space.recover()
            yield space

    def change(self, command: str, change: Change) -> Done | Stop:
        """Change the series as a whole.

        Raises SeriesError ``workspace-dirty`` and ``workspace-has-commits`` (nothing is lost, but
        export first), ``session-open``, and what ``change`` raises.
        """
        with self.hold() as space:
            self._require_unedited(space)
            return self._change(space, command, change)

    def commit_changes(
        self, space: Workspace, command: str, before: Mapping[str, object], change: Change
    ) -> Done | Stop:
        """As ``change``, for a workspace whose commits are part of the change."""
        return self._change(space, command, change, before)

    def undo(self, *, redo: bool = False, force: bool = False) -> Entry:
        """Undo the last operation, or redo the one undone last; see ``journal``."""
        with self.hold() as space:
            entry = self.journal.redo(force=force) if redo else self.journal.undo(force=force)
            if space.git_dir.is_dir() and space.stamp() is not None:
                self._follow(space, entry, redo)
            return entry

    def resume(self, how: str, *, remembered: bool = False) -> Done | Stop:
        """Go on with the session: ``how`` is ``continue`` or ``skip``.

        Raises SeriesError ``session-none``, ``session-stale`` (the series changed meanwhile),
        ``conflict-markers-left``, ``resolution-empty``, and CheckError ``rebase-unproved``.
        """
        with self.hold() as space:
            resolver = self.resolver(remembered=remembered)
            step = resolver.skip() if how == "skip" else resolver.resume()
            return self._after(space, step)

    def abort(self) -> State:
        """End the session without a trace in the project. Raises SeriesError ``session-none``."""
        with self.hold():
            state = self.session.load()
            self.session.remove()
            return state

    def start(
        self, command: str, new_base: str, files: Mapping[str, str], *, remembered: bool = False
    ) -> Done | Stop:
        """Move the series to another base, with ``files`` (project path, text) written at the end.

        Raises as ``change`` and ``resume`` do.
        """
        with self.hold() as space:
            self._require_unedited(space)
            series = self.series()
            _, top = self._begin(series)
            names = tuple(patch.name for patch in series.patches)
            state = State(
                command,
                self.base_tree,
                top,
                new_base,
                series.digest,
                names,
                files=dict(files),
                space=self.note(space),
            )
            self.session.begin(state, series.patches)
            return self._after(space, self.resolver(remembered=remembered).advance())

    def resolver(self, *, remembered: bool = False) -> Resolver:
        """The steps of the open session."""
        return Resolver(self.session, self.patches, self.ui, remembered=remembered)

    def apply(self, series: Series, *, force: bool = False) -> Applied:
        """Bring the workspace to the series. Raises as ``apply_series`` does."""
        return apply_series(
            series, self.base_tree, self.objects, self.workspace, self.ui, force=force
        )

    def _change(
        self,
        space: Workspace,
        command: str,
        change: Change,
        before: Mapping[str, object] | None = None,
    ) -> Done | Stop:
        series = self.series()
        git, top = self._begin(series)
        try:
            done = self._replay(git, change(git, series))
        except ReplayStoppedError as error:
            names = tuple(patch.name for patch in error.wanted.patches)
            state = State(
                command,
                self.base_tree,
                top,
                self.base_tree,
                series.digest,
                names,
                space=before or self.note(space),
            )
            self.session.begin(state, error.wanted.patches)
            return self._after(space, self.resolver().advance())
        except BaseException:
            self.session.remove()
            raise
        self.session.remove()
        result = self._write(command, done.series, {}, before)
        return self._bring(space, result, done.series)

    def _replay(self, git: Git, wanted: Sequence[Patch]) -> Replayed:
        return replay(git, self.base_tree, wanted, self.patches, self.ui)

    def _begin(self, series: Series) -> tuple[Git, str]:
        """A fresh repository that holds what the series made; and its tree."""
        folder = self.session
        folder.create(self.objects, self.workspace / ".git")
        plan = make_plan(series, self.base_tree, folder.index_git, self.ui)
        if not plan.good:
            folder.remove()
            raise DoesNotApplyError(plan.statuses)
        return folder.index_git, plan.tree

    def _after(self, space: Workspace, step: Stop | Finished) -> Done | Stop:
        if isinstance(step, Stop):
            return step
        now = self.series().digest
        if now not in (step.state.start, step.series.digest):
            raise SeriesError(
                "session-stale",
                "the patches changed while the session was open",
                hint="put them back, or abort with 'opencoti-build series continue --abort'",
            )
        files = {name: text.encode() for name, text in step.state.files.items()}
        moved = step.state.new != self.base_tree
        done = self._write(step.state.command, step.series, files, step.state.space)
        self.session.remove()
        if not moved and self.note(space) == step.state.space:
            done = self._bring(space, done, step.series)
        elif not moved:
            self.ui.warn("the workspace was edited meanwhile and stays as it is")
        return Done(done.written, done.removed, done.space, step)

    def _write(
        self,
        command: str,
        new: Series,
        more: Mapping[str, bytes],
        space: Mapping[str, object] | None,
    ) -> Done:
        files: dict[str, bytes | None] = {
            f"patches/{path.name}": None for path in sorted(self.patches.glob("*.patch"))
        }
        files.update({f"patches/{patch.path.name}": patch.data for patch in new.patches})
        entry = self.journal.write(command, {**files, **more}, space)
        after = entry.after if entry else {}
        names = {name.rpartition("/")[2]: image for name, image in after.items()}
        return Done(
            tuple(sorted(name for name, image in names.items() if image)),
            tuple(sorted(name for name, image in names.items() if not image)),
        )

    def _bring(self, space: Workspace, done: Done, series: Series) -> Done:
        """Bring an existing workspace to the new series; its commits stay under a backup ref."""
        if not space.git_dir.is_dir() or space.stamp() is None:
            return done
        applied = apply_series(
            series, self.base_tree, self.objects, self.workspace, self.ui, force=True
        )
        return Done(done.written, done.removed, applied)

    def _require_unedited(self, space: Workspace) -> None:
        """A workspace that is not there will do; one with work in it will not."""
        stamp = space.stamp() if space.git_dir.is_dir() else None
        if stamp is None:
            return
        state = space.state()
        if state.dirty:
            raise SeriesError(
                "workspace-dirty",
                "the workspace has edits",
                hint="'series refresh' or commit and 'series export', then try again",
                context={"files": ", ".join(state.dirty[:10])},
            )
        known = {stamp.base_commit, *(result.commit for result in stamp.commits)}
        if state.head not in known and (space.rest() or state.tree != stamp.tree):
            raise SeriesError(
                "workspace-has-commits",
                "the workspace has commits that the series does not hold",
                hint="run 'opencoti-build series export' first",
            )

    def note(self, space: Workspace) -> dict[str, object]:
        """How the workspace is, for the journal: HEAD, patches above it, and uncommitted edits."""
        if not space.git_dir.is_dir() or space.stamp() is None:
            return {}
        head = space.git.text("rev-parse", "HEAD")
        edits = space.edited_tree() if space.state().dirty else ""
        keep = edits or head
        space.git.run("update-ref", f"{LOG_REFS}/{keep[:16]}", keep)
        if edits:
            space.git.run("update-ref", f"{LOG_REFS}/{head[:16]}", head)
        return {"head": head, "rest": list(space.rest()), "edits": edits}

    def _follow(self, space: Workspace, entry: Entry, redo: bool) -> None:
        """Bring the workspace to where it was before the operation, or after it when redone."""
        state = space.state()
        as_noted = redo and self.note(space) == entry.space  # the operation holds those edits
        if state.dirty and not as_noted:
            self.ui.warn("the workspace has edits and stays as it is; only patch files changed")
            return
        base_changed = any(not name.startswith("patches/") for name in entry.after)
        if not base_changed:
            self.apply(self.series(), force=True)
        head = str(entry.space.get("head", ""))
        if head and not redo and not base_changed:
            rest = entry.space.get("rest", [])
            names = [str(name) for name in rest] if isinstance(rest, list) else []
            space.go(head, names, edits=str(entry.space.get("edits") or "") or None)
