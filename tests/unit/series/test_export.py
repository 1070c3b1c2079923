"""Export: without churn, with names that survive, and never over someone's work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opencoti_build.errors import SeriesError
from opencoti_build.series import editing
from opencoti_build.series.bench import Bench as Workbench
from opencoti_build.series.bench import Done
from opencoti_build.series.export import slug_of
from opencoti_build.series.git import Git
from opencoti_build.series.resolve import Stop
from opencoti_build.series.series import InvalidSeriesError
from tests.unit.series.conftest import UI, Bench, reason_of, text

TRAILERS = "Feature: x\nGate: flag --x\nClass: memory\nDepends:\nUpstream: none\n"


class Editor:
    """An applied workspace, used with ordinary git."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.work = Workbench(bench.root, bench.tree, bench.objects, bench.workspace, UI)
        self.base = self.work.apply(self.work.series()).base_commit
        self.git = Git(bench.workspace / ".git", work_tree=bench.workspace)

    def commit(self, path: str, data: bytes, message: str, *options: str) -> None:
        (self.bench.workspace / path).write_bytes(data)
        self.git.run("add", "-A")
        env = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
        self.git.run("commit", "-q", "-F", "-", *options, data=message.encode(), env=env)

    def export(self, *numbers: int, force: bool = False) -> Done:
        done = editing.export(self.work, numbers, force=force)
        assert isinstance(done, Done)
        return done


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.fixture
def editor(bench: Bench) -> Editor:
    bench.add_three()
    return Editor(bench)


def test_export_after_apply_changes_nothing(editor: Editor) -> None:
    before = files(editor.bench.patches)
    done = editor.export()
    assert (done.written, done.removed) == ((), ())
    assert files(editor.bench.patches) == before


def test_same_bytes_as_format_patch(editor: Editor) -> None:
    """Our form is what git itself writes with the right options."""
    git = editor.git
    out = git.run(
        *("format-patch", "--stdout", "--zero-commit", "--full-index", "--no-stat"),
        *("--no-signature", "--no-renames", "--no-encode-email-headers", f"{editor.base}.."),
    ).out
    ours = b"".join(path.read_bytes() for path in sorted(editor.bench.patches.glob("*.patch")))
    names = [path.stem for path in sorted(editor.bench.patches.glob("*.patch"))]
    for number, name in enumerate(names, 1):
        out = out.replace(f"Patch: {name}\n".encode(), b"")
        out = out.replace(f"[PATCH {number}/3]".encode(), b"[PATCH]")
    assert out.replace(b"\n\nFrom 000", b"\nFrom 000").rstrip(b"\n") + b"\n" == ours


def test_new_commit_needs_a_number(editor: Editor) -> None:
    editor.commit("src/b.c", text(40, l7="seven"), f"Count to: Seven!\n\nWhy not.\n\n{TRAILERS}")
    before = files(editor.bench.patches)
    assert reason_of(editor.export) == "export-unnamed"
    assert reason_of(lambda: editor.export(121, 122)) == "export-numbers"
    assert files(editor.bench.patches) == before
    done = editor.export(121)
    assert done.written == ("0121-count-to-seven.patch",)
    after = files(editor.bench.patches)
    assert {name: after[name] for name in before} == before
    # the workspace is taken over by the next apply, and nothing has to be written
    assert editor.bench.apply().rewritten_files == 0
    assert editor.export().written == ()
    assert files(editor.bench.patches) == after


def test_number_below_others_is_replayed_in_order(editor: Editor) -> None:
    editor.commit("src/b.c", text(40, l7="seven"), f"Seven\n\nWhy not.\n\n{TRAILERS}")
    assert editor.export(30).written == ("0030-seven.patch",)
    assert editor.bench.apply().rewritten_files == 0


def test_order_that_gives_another_tree(editor: Editor) -> None:
    editor.commit("src/new.c", b"new\nnewest\n", f"Newest\n\nWhy not.\n\n{TRAILERS}")
    before = files(editor.bench.patches)
    assert isinstance(editing.export(editor.work, [30]), Stop)
    assert files(editor.bench.patches) == before


def test_amended_and_dropped(editor: Editor) -> None:
    message = editor.git.text("log", "-1", "--format=%B") + "\n"
    editor.commit("src/new.c", b"new\nnewer still\n", message, "--amend")
    assert editor.export().written == ("0120-kernels.patch",)
    editor.git.run("reset", "-q", "--hard", "HEAD^")
    done = editor.export()
    assert (done.written, done.removed) == ((), ("0120-kernels.patch",))


def test_message_that_is_not_complete(editor: Editor) -> None:
    editor.commit("src/b.c", b"x\n", "Just so\n")
    with pytest.raises(InvalidSeriesError) as caught:
        editor.export(121)
    assert [problem.reason for problem in caught.value.problems] == ["patch-trailer-missing"]


def test_two_names(editor: Editor) -> None:
    message = editor.git.text("log", "-1", "--format=%B") + "\nPatch: 0041-other\n"
    editor.commit("src/b.c", b"x\n", message, "--amend")
    assert reason_of(editor.export) == "export-ambiguous"


def test_stale_files_are_not_overwritten(editor: Editor) -> None:
    path = editor.bench.patches / "0020-params.patch"
    changed = path.read_bytes().replace(b"Because the engine", b"Since the engine")
    path.write_bytes(changed)
    assert reason_of(editor.export) == "export-stale"
    assert path.read_bytes() == changed
    done = editor.export(force=True)
    assert (done.written, done.removed) == (("0020-params.patch",), ())
    assert path.read_bytes() != changed


def test_dirty_merge_and_unrelated(editor: Editor) -> None:
    (editor.bench.workspace / "src/b.c").write_text("mine\n")
    assert reason_of(editor.export) == "workspace-dirty"
    editor.git.run("checkout", "-q", "--", ".")
    git, tree = editor.git, editor.git.text("rev-parse", "HEAD^{tree}")
    env = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@example.org"}
    parents = ("-p", "HEAD", "-p", "HEAD~2")
    merge = git.text("commit-tree", tree, *parents, "-m", "merge", env=env)
    alone = git.text("commit-tree", tree, "-m", "alone", env=env)
    git.run("reset", "-q", "--hard", merge)
    assert reason_of(editor.export) == "export-merge"
    git.run("reset", "-q", "--hard", alone)
    assert reason_of(editor.export) == "export-unrelated"


def test_ordinary_format_patch_becomes_canonical(editor: Editor) -> None:
    path = editor.bench.patches / "0120-kernels.patch"
    data = path.read_bytes()
    loose = data.replace(b"From 000", b"From abc").replace(b"[PATCH]", b"[PATCH 3/3]")
    path.write_bytes(loose + b"-- \n2.39.5\n\n")
    editor.bench.apply()
    assert editor.export().written == (path.name,)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("subject", "slug"),
    [("KV: turbo types", "kv-turbo-types"), ("ä", "patch"), ("word " * 30, ("word-" * 12)[:-1])],
)
def test_slug_of(subject: str, slug: str) -> None:
    assert slug_of(subject) == slug


def test_errors_are_series_errors(editor: Editor) -> None:
    call: Callable[[], object] = editor.export
    editor.git.run("reset", "-q", "--soft", "HEAD^")
    with pytest.raises(SeriesError) as caught:
        call()
    assert caught.value.exit_code == 4
