"""The steps of a session: go on to the next conflict, take a resolution, skip, finish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opencoti_build.errors import SeriesError
from opencoti_build.series.conflict import Merged, has_markers, merge_patch
from opencoti_build.series.exact import blob_id
from opencoti_build.series.forecast import forecast
from opencoti_build.series.outcome import Outcome
from opencoti_build.series.patch import Patch
from opencoti_build.series.plan import PatchResult, Plan, commit_patch, make_plan
from opencoti_build.series.proof import Proof, prove
from opencoti_build.series.replay import canonical
from opencoti_build.series.resolutions import Resolutions
from opencoti_build.series.rework import forget
from opencoti_build.series.series import Series, make_series
from opencoti_build.series.session import Row, SessionFolder, State, drop_patch
from opencoti_build.series.workspace import BRANCH
from opencoti_build.ui import Ui


@dataclass(frozen=True)
class Stop:
    """A conflict that waits in the work tree. ``known`` files were resolved as remembered."""

    name: str
    files: tuple[Merged, ...]
    known: tuple[str, ...]

    @property
    def open_files(self) -> tuple[Merged, ...]:
        return tuple(file for file in self.files if file.path not in self.known)


@dataclass(frozen=True)
class Finished:
    """The end of a session: the new series and why it can be trusted."""

    state: State
    series: Series
    tree: str
    proof: Proof


class Resolver:
    """Moves one session on. ``remembered`` takes known resolutions without a stop."""

    def __init__(
        self, folder: SessionFolder, patches: Path, ui: Ui, *, remembered: bool = False
    ) -> None:
        self.folder, self.ui, self.remembered = folder, ui, remembered
        self.patches = patches
        self.resolutions = Resolutions(patches)

    def advance(self) -> Stop | Finished:
        """Go on to the next conflict or to the end.

        Raises SeriesError ``git-failed`` and CheckError ``rebase-unproved``.
        """
        state = self.folder.load()
        while True:
            series = self.folder.patches(state)
            plan = self._plan(series, state)
            state, failed = self._take(state, plan)
            self.folder.save(state)
            if failed is None:
                return self._finish(state)
            stop = self._stop(state, series.find(int(failed[:4])))
            if stop.open_files or not self.remembered:
                return stop
            state = self._record(state, series.find(int(failed[:4])))

    def resume(self) -> Stop | Finished:
        """Take the work tree as the resolution of the conflict, and go on.

        Raises SeriesError ``session-none``, ``conflict-markers-left`` and ``resolution-empty``.
        """
        state = self.folder.load()
        if state.stopped:
            patch = self.folder.patches(state).find(int(state.stopped[:4]))
            self._check_markers(patch)
            self._record(state, patch)
        return self.advance()

    def skip(self) -> Stop | Finished:
        """Leave the patch out, and go on. Raises SeriesError ``session-none``."""
        state = self.folder.load()
        if state.stopped:
            self.folder.save(drop_patch(state, state.stopped, "skipped"))
        return self.advance()

    def stop(self) -> Stop | None:
        """The conflict that waits, without touching the work tree."""
        state = self.folder.load()
        if not state.stopped:
            return None
        patch = self.folder.patches(state).find(int(state.stopped[:4]))
        files = [file for file in self._merge(state, patch) if file.conflicts]
        known = [file.path for file in files if self.resolutions.recall(self.folder.git, file)[0]]
        return Stop(patch.name, tuple(files), tuple(known))

    def _plan(self, series: Series, state: State) -> Plan:
        git = self.folder.index_git
        assert git.index is not None
        git.index.unlink(missing_ok=True)
        return make_plan(series, state.new, git, self.ui, state.results, first_failure=True)

    def _take(self, state: State, plan: Plan) -> tuple[State, str | None]:
        """What the plan gives up to the first patch that needs a hand."""
        results = {result.name: result for result in plan.commits}
        good: list[PatchResult] = []
        failed = None
        for status in plan.statuses:
            if status.name in results:
                good.append(results[status.name])
            elif status.outcome is Outcome.ALREADY_APPLIED:
                state = drop_patch(state, status.name, "already upstream")
            else:
                failed = status.name
                break
        if not state.rows:
            series = self.folder.patches(replace(state, gone={}))
            statuses = forecast(series, state.new, self.folder.index_git, Ui(quiet=True))
            rows = tuple(Row(s.name, s.outcome.word, s.describe()) for s in statuses)
            state = replace(state, rows=rows)
        return replace(state, results=tuple(good), stopped=""), failed

    def _merge(self, state: State, patch: Patch) -> list[Merged]:
        return merge_patch(self.folder.git, state.tree, patch, "so far")

    def _stop(self, state: State, patch: Patch) -> Stop:
        """Lay the conflict out in the work tree, with what is remembered already in place."""
        git = self.folder.git
        top = state.top or self._base_commit(state)
        self._unlock()
        git.run("read-tree", "--reset", "-u", state.tree)
        git.run("update-ref", "--no-deref", BRANCH, top)
        git.run("symbolic-ref", "HEAD", BRANCH)
        known: list[str] = []
        conflicts: list[Merged] = []
        lines: list[str] = []
        for file in self._merge(state, patch):
            data = file.data
            if file.conflicts:
                conflicts.append(file)
                found, resolved = self.resolutions.recall(git, file)
                if found:
                    known.append(file.path)
                    data = resolved
            lines += self._index_lines(file, data, file.conflicts and file.path not in known)
            self._write(file.path, file.mode, data)
        git.run("update-index", "--index-info", data="".join(lines).encode())
        self.folder.save(replace(state, stopped=patch.name))
        return Stop(patch.name, tuple(conflicts), tuple(known))

    def _index_lines(self, file: Merged, data: bytes | None, unmerged: bool) -> list[str]:
        git = self.folder.git
        mode = file.mode or "100644"
        lines = [f"0 {'0' * 40}\t{file.path}\n"]
        if not unmerged:
            if data is not None:
                blob = git.text("hash-object", "-w", "--stdin", data=data)
                lines.append(f"{mode} {blob}\t{file.path}\n")
            return lines
        for stage, side in enumerate((file.base, file.ours, file.theirs), 1):
            if side is not None:
                blob = git.text("hash-object", "-w", "--stdin", data=side)
                assert blob == blob_id(side)
                lines.append(f"{mode} {blob} {stage}\t{file.path}\n")
        return lines

    def _write(self, name: str, mode: str, data: bytes | None) -> None:
        path = self.folder.root / name
        if data is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if mode == "100755" else 0o644)

    def _check_markers(self, patch: Patch) -> None:
        left = []
        for file in patch.files:
            path = self.folder.root / file.path
            if path.is_file() and has_markers(path.read_bytes()):
                left.append(file.path)
        if left:
            raise SeriesError(
                "conflict-markers-left",
                f"{len(left)} files still hold conflict markers",
                hint=f"edit them in {self.folder.root}, then 'opencoti-build series continue'",
                context={"files": ", ".join(left)},
            )

    def _record(self, state: State, patch: Patch) -> State:
        """Make the work tree the commit of ``patch`` and remember how it was resolved.

        Changed files count wherever they are; new files that the patch does not name count only
        when they were added to the index.
        """
        git = self.folder.git
        self._unlock()
        git.run("add", "-u")
        present = [f.path for f in patch.files if (self.folder.root / f.path).exists()]
        if present:  # other new files count when they were added
            git.run("add", "-f", "--", *present)
        tree = git.text("write-tree")
        if tree == state.tree:
            raise SeriesError(
                "resolution-empty",
                f"nothing of {patch.name} is left",
                hint="leave it out with 'opencoti-build series continue --skip'",
            )
        for file in self._merge(state, patch):
            if file.conflicts:
                path = self.folder.root / file.path
                self.resolutions.remember(file, path.read_bytes() if path.is_file() else None)
        top = state.top or self._base_commit(state)
        commit = commit_patch(self.folder.git, patch, tree, top)
        result = PatchResult(patch.number, patch.name, patch.sha256, commit, tree, Outcome.RESOLVED)
        state = replace(
            state,
            results=(*state.results, result),
            resolved=(*state.resolved, patch.name),
            stopped="",
        )
        self.folder.save(state)
        return state

    def _unlock(self) -> None:
        """Remove what a killed git left."""
        (self.folder.git_dir / "index.lock").unlink(missing_ok=True)

    def _base_commit(self, state: State) -> str:
        empty = Series(self.folder.git_dir, ())
        return make_plan(empty, state.new, self.folder.index_git, Ui(quiet=True)).base_commit

    def _finish(self, state: State) -> Finished:
        wanted = self.folder.patches(state)
        plan = self._plan(wanted, state)
        patches = forget(self._placed(canonical(self.folder.git, plan, wanted)), state.gone)
        series = make_series(self.patches, patches)
        self._check_same(series, plan)
        edited: dict[str, set[str]] = {}
        for patch in (*self.folder.patches(replace(state, gone={})).patches, *series.patches):
            if patch.name in state.gone or self._was_edited(state, patch.name):
                edited.setdefault(patch.name, set()).update(file.path for file in patch.files)
        old, new = (state.old, state.old_top), (state.new, plan.tree)
        proof = prove(self.folder.git, old, new, edited)
        proof.require()
        return Finished(state, series, plan.tree, proof)

    def _was_edited(self, state: State, name: str) -> bool:
        outcomes = {result.name: result.outcome for result in state.results}
        return outcomes.get(name) in (Outcome.RESOLVED, Outcome.THREE_WAY)

    def _placed(self, series: Series) -> Sequence[Patch]:
        """The patches with paths in the project."""
        return [replace(patch, path=self.patches / patch.path.name) for patch in series.patches]

    def _check_same(self, series: Series, plan: Plan) -> None:
        """Applied from its files the new series gives the very tree, without any search."""
        again = make_plan(
            series,
            self.folder.git.text("rev-parse", f"{plan.base_commit}^{{tree}}"),
            self.folder.index_git,
            self.ui,
        )
        exact = all(result.outcome is Outcome.APPLIED for result in again.commits)
        if not (again.good and exact and again.tree == plan.tree):
            raise SeriesError(
                "replay-changes-tree",
                "the patches as files do not give the tree of the session",
                context={"session": plan.tree, "files": again.tree},
                hint="please report this; nothing was written",
            )
