"""Work on one patch: open it, make a new one, take edits in, and write all of it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from opencoti_build.errors import SeriesError
from opencoti_build.series.bench import Bench, Done
from opencoti_build.series.export import check_stale, read_commits, read_diff, slug_of
from opencoti_build.series.git import Git
from opencoti_build.series.patch import Patch, parse_name
from opencoti_build.series.plan import make_plan
from opencoti_build.series.replay import rewrite, squash
from opencoti_build.series.resolve import Stop
from opencoti_build.series.rework import with_trailer
from opencoti_build.series.series import Series, make_series
from opencoti_build.series.trailers import NAME_TRAILER, REQUIRED, split_message
from opencoti_build.series.workspace import Stamp, Workspace

__all__ = ["NewPatch", "Opened", "edit", "export", "new", "refresh"]


@dataclass(frozen=True)
class NewPatch:
    """What ``new`` is told: subject, reason and trailers; author as ``Name <email>``."""

    title: str
    why: str
    number: int
    trailers: dict[str, str]
    author: str

    @property
    def name(self) -> str:
        return f"{self.number:04d}-{slug_of(self.title)}"

    @property
    def message(self) -> str:
        trailers = "\n".join(f"{key}: {self.trailers[key]}".rstrip() for key in REQUIRED)
        return f"{self.title}\n\n{self.why}\n\n{trailers}\n{NAME_TRAILER}: {self.name}\n"


@dataclass(frozen=True)
class Opened:
    """A workspace that stands at ``name`` (None: at the base), with ``above`` patches not in it."""

    name: str | None
    above: int
    rewritten_files: int


def edit(bench: Bench, number: int | None) -> Opened:
    """Open the workspace at a patch, or at the top.

    Raises SeriesError ``patch-unknown``, ``workspace-dirty`` and ``workspace-has-commits``
    (export or apply first), and what ``apply_series`` raises.
    """
    series = bench.series()
    at = len(series.patches)
    if number is not None:
        at = series.patches.index(series.find(number)) + 1
    applied = bench.apply(series)
    with bench.hold() as space:
        rest = [patch.name for patch in series.patches[at:]]
        count = applied.rewritten_files
        if rest:
            commit = applied.commits[at - 1].commit if at else applied.base_commit
            count = space.go(commit, rest)
        return Opened(series.patches[at - 1].name if at else None, len(rest), count)


def new(bench: Bench, wanted: NewPatch) -> Done | Stop | None:
    """Make a commit of the edits in the workspace a new patch above the one that is open.

    Without edits the new patch is empty, stays in the workspace and waits for ``refresh``
    (None is returned). Raises SeriesError ``workspace-missing``, ``number-taken``,
    ``patch-bad-number``, ``patch-no-reason``, those of ``split_message``, and those of
    ``export``.
    """
    parse_name(f"{wanted.name}.patch")
    if not wanted.why.strip():
        raise SeriesError(
            "patch-no-reason",
            "say why the patch is needed",
            hint="--why 'because …', or --why - to read it from standard input",
        )
    split_message(wanted.message.partition("\n\n")[2].rpartition(f"{NAME_TRAILER}: ")[0])
    if wanted.number in {patch.number for patch in bench.series().patches}:
        raise SeriesError("number-taken", f"the series has a patch {wanted.number:04d} already")
    with bench.hold() as space:
        stamp = _applied(space)
        before = bench.note(space)
        dirty = space.state().dirty
        tree = space.edited_tree() if dirty else space.git.text("rev-parse", "HEAD^{tree}")
        date = f"{int(datetime.now(timezone.utc).timestamp())} +0000"
        commit = _commit(space.git, tree, "HEAD", wanted.message, wanted.author, date)
        space.git.run("update-ref", "HEAD", commit)
        space.git.run("read-tree", commit)
        command = f"series new {wanted.name}"
        if not dirty:
            bench.journal.write(command, {}, before)
            return None
        return _export(bench, space, stamp, command, before)


def refresh(bench: Bench, number: int | None) -> Done | Stop:
    """Take the edits of the workspace into the patch that is open, or into another one.

    Raises SeriesError ``workspace-missing``, ``refresh-nothing`` and those of ``export``.
    """
    with bench.hold() as space:
        stamp = _applied(space)
        if not space.state().dirty:
            raise SeriesError("refresh-nothing", "the workspace has no edits")
        before = bench.note(space)
        head = space.git.text("rev-parse", "HEAD")
        if head == stamp.base_commit:
            raise SeriesError("refresh-nothing", "no patch is open", hint="use 'series new'")
        tree = space.edited_tree()
        if number is None:
            _amend(space, tree)
            return _export(bench, space, stamp, "series refresh", before)
        command = f"series refresh {number:04d}"
        patches = read_commits(space.git, stamp.base_commit, bench.patches)
        target = make_series(bench.patches, patches).find(number)
        diff = read_diff(space.git, head, tree).decode("utf-8")

        def change(git: Git, series: Series) -> Sequence[Patch]:
            everything = [*patches, *_rest(space, series)]
            extra = _as_patch(patches[-1], diff)
            joined = squash(git, bench.base_tree, everything, target, [extra], bench.ui)
            return [joined if patch is target else patch for patch in everything]

        return bench.commit_changes(space, command, before, change)


def export(bench: Bench, numbers: Sequence[int] = (), *, force: bool = False) -> Done | Stop:
    """Write the commits of the workspace back; the patches above the open one follow.

    ``numbers`` name the new commits, oldest first; commits may stand in another order than their
    numbers as long as the same tree comes out. ``force`` overwrites patch files that changed since
    the workspace was made. Raises SeriesError ``workspace-missing``, ``workspace-dirty``,
    ``export-stale``, ``export-changes-tree`` and those of ``read_commits``; nothing is written in
    any of these cases.
    """
    with bench.hold() as space:
        stamp = _applied(space)
        state = space.state()
        if state.dirty:
            raise SeriesError(
                "workspace-dirty",
                "the workspace has edits that are not committed",
                context={"files": ", ".join(state.dirty[:10])},
                hint="'series refresh' takes them into the open patch; or commit them",
            )
        before = bench.note(space)
        return _export(bench, space, stamp, "series export", before, numbers, force=force)


def _export(
    bench: Bench,
    space: Workspace,
    stamp: Stamp,
    command: str,
    before: dict[str, object],
    numbers: Sequence[int] = (),
    *,
    force: bool = False,
) -> Done | Stop:
    patches = read_commits(space.git, stamp.base_commit, bench.patches, numbers)
    top = space.git.text("rev-parse", "HEAD^{tree}")
    current = bench.series()
    same = {patch.name: patch.data for patch in (*patches, *_rest(space, current))}
    if same == {patch.name: patch.data for patch in current.patches}:
        return Done((), (), bench.apply(current, force=True))

    def change(git: Git, series: Series) -> Sequence[Patch]:
        wanted = [*patches, *_rest(space, series)]
        if not force:
            old = {patch.path.name: patch.data for patch in series.patches}
            check_stale(space, old, {patch.path.name: patch.data for patch in wanted})
        in_order = [patch.number for patch in patches] == sorted(p.number for p in patches)
        if not in_order:
            _require_tree(bench, git, patches, top)
        return wanted

    return bench.commit_changes(space, command, before, change)


def _require_tree(bench: Bench, git: Git, patches: Sequence[Patch], tree: str) -> None:
    """Commits in another order than their numbers have to give the same tree in either order."""
    plan = make_plan(make_series(bench.patches, patches), bench.base_tree, git, bench.ui)
    if plan.good and plan.tree != tree:
        raise SeriesError(
            "export-changes-tree",
            "in the order of their numbers the patches give another tree",
            context={"workspace": tree, "patches": plan.tree},
            hint="reorder the commits, or choose other numbers",
        )


def _rest(space: Workspace, series: Series) -> list[Patch]:
    names = {*space.rest()}
    return [patch for patch in series.patches if patch.name in names]


def _as_patch(like: Patch, diff: str) -> Patch:
    """Edits as a patch of their own, with a name that no patch of the series has."""
    mail = replace(with_trailer(like, "Depends", "").mail(), diff=diff)
    return rewrite(like, mail, "0199-edits-of-the-workspace")


def _applied(space: Workspace) -> Stamp:
    stamp = space.stamp() if space.git_dir.is_dir() else None
    if stamp is None:
        raise SeriesError(
            "workspace-missing",
            f"{space.root} holds no applied series",
            hint="run 'opencoti-build series edit'",
        )
    return stamp


def _amend(space: Workspace, tree: str) -> None:
    """HEAD with another tree; message, author and date stay."""
    raw = space.git.run("cat-file", "commit", "HEAD").out.decode("utf-8")
    head, _, message = raw.partition("\n\n")
    author = next(line for line in head.split("\n") if line.startswith("author "))[7:]
    name, date = author.rpartition("> ")[0] + ">", author.rpartition("> ")[2]
    commit = _commit(space.git, tree, "HEAD^", message, name, date)
    space.git.run("update-ref", "HEAD", commit)
    space.git.run("read-tree", commit)


def _commit(git: Git, tree: str, parent: str, message: str, author: str, date: str) -> str:
    name, _, email = author.rstrip(">").rpartition(" <")
    env = {
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_AUTHOR_DATE": f"@{date}",
        "GIT_COMMITTER_DATE": f"@{date}",
    }
    above = git.text("rev-parse", parent)
    return git.text("commit-tree", tree, "-p", above, "-F", "-", data=message.encode(), env=env)
