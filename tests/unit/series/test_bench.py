"""The workbench: every command that changes the series, undone and done again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from opencoti_build.series import editing, journal, rework
from opencoti_build.series import workspace as workspace_module
from opencoti_build.series.bench import Bench as Workbench
from opencoti_build.series.bench import Done
from opencoti_build.series.editing import NewPatch
from opencoti_build.series.git import Git
from opencoti_build.series.patch import Patch, parse_patch
from opencoti_build.series.resolve import Stop
from opencoti_build.series.series import Series
from tests.unit.series.conftest import UI, Bench, reason_of, text
from tests.unit.series.test_kill import counted, in_child

TRAILERS = {
    "Feature": "x",
    "Gate": "flag --x",
    "Class": "memory",
    "Depends": "",
    "Upstream": "none",
}
ENDING = b"/* $Id$ */\n"


@pytest.fixture
def work(bench: Bench) -> Workbench:
    """The three patches, with a workspace at the top."""
    bench.add_three()
    made = Workbench(bench.root, bench.tree, bench.objects, bench.workspace, UI)
    made.apply(made.series())
    return made


def images(work: Workbench) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(work.patches.glob("*.patch"))}


def git_of(work: Workbench) -> Git:
    return Git(work.workspace / ".git", work_tree=work.workspace)


def head(work: Workbench) -> str:
    return git_of(work).text("log", "-1", "--format=%s")


def clean(work: Workbench) -> bool:
    return git_of(work).text("status", "--porcelain") == ""


def done(result: Done | Stop | None) -> Done:
    assert isinstance(result, Done)
    return result


def in_step(work: Workbench) -> None:
    """The workspace is the series, and export has nothing to write."""
    applied = work.apply(work.series())
    assert applied.rewritten_files == 0 and clean(work)
    before = images(work)
    assert done(editing.export(work)).written == ()
    assert images(work) == before


def new_patch(number: int = 50, title: str = "Count to: Seven!") -> NewPatch:
    return NewPatch(title, "Why not.", number, dict(TRAILERS), "Ada <ada@example.org>")


def test_edit_refresh_and_undo(work: Workbench) -> None:
    before = images(work)
    opened = editing.edit(work, 20)
    assert (opened.name, opened.above) == ("0020-params", 2)
    assert head(work) == "Params" and not (work.workspace / "src/new.c").exists()
    (work.workspace / "src/a.c").write_bytes(text(40, l10="TEN") + ENDING)
    result = done(editing.refresh(work, None))
    # the patches above meet other files: they are written anew too
    assert result.written == ("0020-params.patch", "0040-types.patch")
    assert head(work) == "Kernels"
    assert b"TEN\n" in (work.workspace / "src/a.c").read_bytes()
    old = parse_patch(work.patches / "0040-types.patch")
    assert old.why.startswith("Because Jürgen") and old.gate == "flag --kv-turbo"
    after = images(work)
    in_step(work)
    assert work.undo().command == "series refresh"
    assert images(work) == before
    assert head(work) == "Params"  # and the edit is back in the work tree
    assert b"TEN\n" in (work.workspace / "src/a.c").read_bytes() and not clean(work)
    assert work.undo(redo=True).command == "series refresh"
    assert images(work) == after
    in_step(work)


def test_edit_at_the_top_and_at_unknown(work: Workbench) -> None:
    assert editing.edit(work, None).name == "0120-kernels"
    assert reason_of(lambda: editing.edit(work, 41)) == "patch-unknown"
    editing.edit(work, 20)
    assert editing.edit(work, 40).above == 1  # straight from one to the other
    assert head(work) == "Types"
    (work.workspace / "src/b.c").write_text("mine\n")
    assert reason_of(lambda: editing.edit(work, 20)) == "workspace-dirty"
    assert (work.workspace / "src/b.c").read_text() == "mine\n"


def test_commits_while_editing_are_not_lost(work: Workbench) -> None:
    editing.edit(work, 20)
    (work.workspace / "src/b.c").write_bytes(text(40, l5="five"))
    git_of(work).run("commit", "-q", "-a", "--amend", "--no-edit")
    for call in (
        lambda: editing.edit(work, 40),
        lambda: work.apply(work.series()),
        lambda: work.change("x", lambda _, series: series.patches),
    ):
        assert reason_of(call) == "workspace-has-commits"
    assert done(editing.export(work)).written == ("0020-params.patch",)
    assert (work.workspace / "src/b.c").read_bytes() == text(40, l5="five")
    in_step(work)


def test_refresh_into_another_patch(work: Workbench) -> None:
    (work.workspace / "src/b.c").write_bytes(text(40, l5="five"))
    (work.workspace / "src/more.c").write_bytes(b"more\n")
    result = done(editing.refresh(work, 20))
    assert result.written == ("0020-params.patch",)
    patch = parse_patch(work.patches / "0020-params.patch")
    assert [file.path for file in patch.files] == ["src/a.c", "src/b.c", "src/more.c"]
    in_step(work)
    work.undo()
    assert (work.workspace / "src/more.c").read_bytes() == b"more\n" and not clean(work)


def test_refresh_without_edits(work: Workbench) -> None:
    assert reason_of(lambda: editing.refresh(work, None)) == "refresh-nothing"


def test_new_from_edits_in_the_middle(work: Workbench) -> None:
    editing.edit(work, 40)
    (work.workspace / "src/b.c").write_bytes(text(40, l7="seven"))
    assert done(editing.new(work, new_patch())).written == ("0050-count-to-seven.patch",)
    patch = parse_patch(work.patches / "0050-count-to-seven.patch")
    assert (patch.why, patch.feature, patch.author) == ("Why not.", "x", "Ada <ada@example.org>")
    assert head(work) == "Kernels"
    in_step(work)
    work.undo()
    assert head(work) == "Types" and not clean(work)


def test_new_empty_then_refresh(work: Workbench) -> None:
    before = images(work)
    assert editing.new(work, new_patch(121)) is None
    assert images(work) == before and head(work) == "Count to: Seven!"
    assert reason_of(lambda: editing.export(work)) == "series-invalid"
    (work.workspace / "src/b.c").write_bytes(text(40, l7="seven"))
    assert done(editing.refresh(work, None)).written == ("0121-count-to-seven.patch",)
    in_step(work)
    work.undo()
    assert images(work) == before


@pytest.mark.parametrize(
    ("number", "why", "trailers", "reason"),
    [
        (40, "Why.", {}, "number-taken"),
        (5, "Why.", {}, "patch-bad-number"),
        (50, " ", {}, "patch-no-reason"),
        (50, "Why.", {"Class": "magic"}, "patch-trailer-bad-value"),
    ],
)
def test_new_refused(
    work: Workbench, number: int, why: str, trailers: dict[str, str], reason: str
) -> None:
    wanted = NewPatch("Title", why, number, {**TRAILERS, **trailers}, "Ada <ada@example.org>")
    top = git_of(work).text("rev-parse", "HEAD")
    assert reason_of(lambda: editing.new(work, wanted)) == reason
    assert git_of(work).text("rev-parse", "HEAD") == top


def test_rename_and_renumber(work: Workbench) -> None:
    before, tree = images(work), work.apply(work.series()).tree
    work.change("rename", lambda _, series: rework.rename(series, 20, "Better params"))
    work.change("renumber", lambda _, series: rework.renumber(series, 40, 45))
    names = [patch.name for patch in work.series().patches]
    assert names == ["0020-better-params", "0045-types", "0120-kernels"]
    assert work.series().find(120).depends == (45,)
    assert work.apply(work.series()).tree == tree
    in_step(work)
    work.undo()
    work.undo()
    assert images(work) == before
    assert reason_of(work.undo) == "undo-nothing"
    in_step(work)
    work.undo(redo=True)
    work.undo(redo=True)
    assert [patch.name for patch in work.series().patches] == names
    assert reason_of(lambda: work.undo(redo=True)) == "redo-nothing"


def test_renumber_refused(work: Workbench) -> None:
    def to(number: int, target: int) -> object:
        return work.change("x", lambda _, series: rework.renumber(series, number, target))

    before = images(work)
    assert reason_of(lambda: to(20, 40)) == "number-taken"
    assert reason_of(lambda: to(40, 121)) == "series-invalid"  # 0120 depends on it
    assert reason_of(lambda: to(40, 300)) == "patch-bad-number"
    assert images(work) == before and not work.session.root.exists()


def test_drop(work: Workbench) -> None:
    before = images(work)
    assert reason_of(lambda: work.change("x", lambda _, s: rework.drop(s, 40))) == "patch-needed"
    result = done(work.change("drop", lambda _, series: rework.drop(series, 20)))
    assert result.removed == ("0020-params.patch",) and result.written == ("0040-types.patch",)
    in_step(work)
    work.undo()
    assert images(work) == before


def test_fold_and_split(work: Workbench) -> None:
    before, tree = images(work), work.apply(work.series()).tree

    def fold(git: Git, series: Series) -> Sequence[Patch]:
        return rework.fold(git, work.base_tree, series, 40, [120], UI)

    result = done(work.change("fold", fold))
    assert (result.written, result.removed) == (("0040-types.patch",), ("0120-kernels.patch",))
    joined = work.series().find(40)
    assert joined.why.endswith("And more.\n\nBecause the engine needs it.")
    assert work.apply(work.series()).tree == tree
    in_step(work)
    files = ["src/new.c", "blank.c"]
    work.change("split", lambda _, s: rework.split(s, 40, files, 60, "New files", None))
    assert [patch.name for patch in work.series().patches] == [
        "0020-params",
        "0040-types",
        "0060-new-files",
    ]
    assert work.series().find(60).depends == (40,)
    assert work.series().find(60).trailers["Feature"] == joined.feature
    assert work.apply(work.series()).tree == tree
    in_step(work)
    work.undo()
    work.undo()
    assert images(work) == before
    work.change("split", lambda _, s: rework.split(s, 40, files, 60, "New files", None))
    assert work.series().find(120).depends == (40, 60)  # it changes src/new.c


def test_split_refused(work: Workbench) -> None:
    def split(paths: list[str], target: int = 60) -> object:
        return work.change("x", lambda _, s: rework.split(s, 40, paths, target, "T", None))

    assert reason_of(lambda: split(["src/b.c"])) == "split-no-file"
    assert reason_of(lambda: split(["src/new.c"], 120)) == "number-taken"
    every = [file.path for file in work.series().find(40).files]
    assert reason_of(lambda: split(every)) == "split-all"


def test_without_a_workspace(bench: Bench) -> None:
    bench.add_three()
    work = Workbench(bench.root, bench.tree, bench.objects, bench.root / "none", UI)
    result = done(work.change("drop", lambda _, series: rework.drop(series, 120)))
    assert (result.removed, result.space) == (("0120-kernels.patch",), None)
    assert reason_of(lambda: editing.export(work)) == "workspace-missing"
    work.undo()
    assert len(images(work)) == 3 and not (bench.root / "none").exists()


def test_undo_of_files_that_changed(work: Workbench) -> None:
    work.change("drop", lambda _, series: rework.drop(series, 120))
    path = work.patches / "0120-kernels.patch"
    path.write_text("mine\n")
    assert reason_of(work.undo) == "undo-changed"
    assert path.read_text() == "mine\n"
    work.undo(force=True)
    assert len(work.series().patches) == 3


def test_a_new_operation_ends_what_can_be_redone(work: Workbench) -> None:
    work.change("one", lambda _, series: rework.rename(series, 20, "One"))
    work.change("two", lambda _, series: rework.rename(series, 20, "Two"))
    work.undo()
    work.undo()
    work.change("three", lambda _, series: rework.rename(series, 20, "Three"))
    assert reason_of(lambda: work.undo(redo=True)) == "redo-nothing"
    assert [entry.command for entry in work.journal.entries()] == ["three"]


@pytest.mark.parametrize("what", ["writes", "git calls"])
def test_killed_on_the_way(work: Workbench, what: str) -> None:
    """Killed at each write or call in turn: before, or after, or completed by the next run."""
    before = images(work)
    number, killed = 1, True
    while killed:

        def child(number: int = number) -> None:
            if what == "writes":
                for module in (journal, workspace_module):
                    module.write_atomic = counted(module.write_atomic, number)  # type: ignore
            else:
                Git.run = counted(Git.run, number)  # type: ignore[method-assign,assignment]
            work.change("drop", lambda _, series: rework.drop(series, 20))

        killed = in_child(child)
        with work.hold():
            pass
        names = [patch.name for patch in work.series().patches]
        work.apply(work.series())
        assert clean(work)
        if names == ["0040-types", "0120-kernels"]:
            work.undo()
        assert images(work) == before
        number += 2 if what == "writes" else 11
    assert number > 5


def test_foreign_resolve_folder_is_left_alone(work: Workbench, tmp_path: Path) -> None:
    work.session.root.mkdir()
    (work.session.root / "thesis.txt").write_text("mine\n")
    call = lambda: work.change("x", lambda _, series: series.patches)  # noqa: E731
    assert reason_of(call) == "workspace-foreign"
    assert (work.session.root / "thesis.txt").read_text() == "mine\n"
