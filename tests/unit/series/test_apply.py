"""Applying: what comes out, and that nothing of the machine gets in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from opencoti_build.series import plan as plan_module
from opencoti_build.series import workspace as workspace_module
from opencoti_build.series.git import Git
from opencoti_build.series.outcome import Outcome
from opencoti_build.series.workspace import Workspace
from tests.lib.series import snapshot, write_tree
from tests.unit.series.conftest import Bench, reason_of, text

A = Outcome.APPLIED


def git_out(folder: Path, *args: str) -> str:
    return subprocess.run(
        ["git", *args], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_apply_gives_one_commit_a_patch(bench: Bench) -> None:
    bench.add_three()
    done = bench.apply()
    assert done.tree == bench.maker.tree
    assert [item.name for item in done.commits] == ["0020-params", "0040-types", "0120-kernels"]
    assert {item.outcome for item in done.commits} == {A}
    assert git_out(bench.workspace, "rev-parse", "HEAD") == done.commits[-1].commit
    assert git_out(bench.workspace, "status", "--porcelain") == ""
    assert git_out(bench.workspace, "log", "--format=%s") == "Kernels\nTypes\nParams\nbase"
    assert (bench.workspace / "dos.txt").read_bytes() == b"one\r\ntwo\r\n"
    assert (bench.workspace / "unix.txt").read_bytes() == b"one\n2\n"
    assert b"$Id$" in (bench.workspace / "src/a.c").read_bytes()
    assert not (bench.workspace / "src/old.c").exists()
    assert os.access(bench.workspace / "run.sh", os.X_OK)


def test_ids_are_golden(bench: Bench) -> None:
    """Commit ids depend on base and patches alone: not on time, folder, user or machine."""
    bench.add_three()
    done = bench.apply()
    assert done.base_commit == GOLDEN_BASE
    assert done.commits[-1].commit == GOLDEN_TOP
    assert bench.apply(workspace=bench.root / "other place").commits == done.commits


def test_fast_path_and_git_agree(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add_three()
    fast = bench.apply()
    monkeypatch.setattr(plan_module, "exact_files", lambda *_: None)
    slow = bench.apply(workspace=bench.root / "slow")
    assert slow == fast


def test_git_am_alone_gives_the_same_tree(bench: Bench) -> None:
    bench.add_three()
    done = bench.apply()
    plain = bench.root / "plain"
    bench.apply(workspace=plain)
    git = Git(plain / ".git", work_tree=plain)
    git.run("reset", "-q", "--hard", done.base_commit)
    git.run("am", "-q", "--3way", *map(str, sorted(bench.patches.glob("*.patch"))))
    assert git.text("rev-parse", "HEAD^{tree}") == done.tree


def test_empty_series(bench: Bench) -> None:
    done = bench.apply()
    assert (done.tree, done.commits) == (bench.tree, ())


def test_no_op_touches_nothing(bench: Bench) -> None:
    bench.add_three()
    first = bench.apply()
    before = snapshot(bench.workspace)
    again = bench.apply()
    assert again.rewritten_files == 0 < first.rewritten_files
    assert again.commits == first.commits
    assert snapshot(bench.workspace) == before


def test_only_changed_files_are_written(bench: Bench) -> None:
    bench.add_three()
    bench.apply()
    before = snapshot(bench.workspace)
    for name in ("0120-kernels", "0020-params"):
        (bench.patches / f"{name}.patch").unlink()
    bench.maker.tree = bench.tree
    bench.maker.add(40, "types", {"src/new.c": b"new\n", "unix.txt": b"one\n2\n"})
    done = bench.apply()
    after = snapshot(bench.workspace)
    touched = {name for name in after if after[name] != before.get(name)}
    assert touched == {"src/a.c", "src/old.c", "src/new.c", "no-newline", "empty", "a name.txt"}
    assert done.rewritten_files == len(touched) + 1  # blank.c is gone
    assert done.tree == bench.maker.tree


def test_edited_workspace_is_refused_and_restored_by_force(bench: Bench) -> None:
    bench.add_three()
    tree = bench.apply().tree
    before = snapshot(bench.workspace)
    (bench.workspace / "src/a.c").write_text("mine\n")
    (bench.workspace / "extra.c").write_text("mine\n")
    (bench.workspace / "src/b.c").unlink()
    assert reason_of(bench.apply) == "workspace-dirty"
    done = bench.apply(force=True)
    assert (done.tree, done.rewritten_files) == (tree, 2)
    after = snapshot(bench.workspace)
    assert after.keys() == before.keys()
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"src/a.c", "src/b.c"}


def test_touched_file_is_not_an_edit(bench: Bench) -> None:
    bench.apply()
    os.utime(bench.workspace / "src/a.c", (1, 1))
    assert bench.apply().rewritten_files == 0


def test_commits_by_hand_are_kept(bench: Bench) -> None:
    bench.add_three()
    bench.apply()
    git = Git(bench.workspace / ".git", work_tree=bench.workspace)
    (bench.workspace / "src/b.c").write_text("mine\n")
    env = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@example.org"}
    git.run("commit", "-q", "-a", "-m", "mine", env=env)
    mine = git.text("rev-parse", "HEAD")
    assert reason_of(bench.apply) == "workspace-has-commits"
    assert bench.apply(force=True).tree == bench.maker.tree
    assert git.text("rev-parse", f"refs/opencoti/backup/{mine[:12]}") == mine


def test_failed_apply_leaves_the_workspace(bench: Bench) -> None:
    bench.add_three()
    bench.apply()
    before = snapshot(bench.workspace)
    head = git_out(bench.workspace, "rev-parse", "HEAD")
    (bench.patches / "0040-types.patch").unlink()
    (bench.patches / "0120-kernels.patch").write_bytes(
        (bench.patches / "0120-kernels.patch").read_bytes().replace(b": 0040", b":")
    )
    assert bench.outcomes() == [A, Outcome.DOES_NOT_APPLY]
    assert snapshot(bench.workspace) == before
    assert git_out(bench.workspace, "rev-parse", "HEAD") == head


def test_foreign_folder_and_missing_base(bench: Bench) -> None:
    bench.workspace.mkdir()
    (bench.workspace / "thesis.txt").write_text("mine\n")
    assert reason_of(lambda: bench.apply(force=True)) == "workspace-foreign"
    git_out(bench.workspace, "init", "-q")
    assert reason_of(lambda: bench.apply(force=True)) == "workspace-foreign"
    bench.workspace = bench.root / "fresh"
    bench.tree = "1" * 40
    assert reason_of(bench.apply) == "base-missing"


def test_git_missing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bench.root))
    assert reason_of(bench.apply) == "git-missing"


def test_git_too_old(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    old = bench.root / "git"
    old.write_text("#!/bin/sh\necho git version 2.25.1\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(bench.root))
    assert reason_of(bench.apply) == "git-too-old"


def test_many_packs_are_joined(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_module, "_MAX_PACKS", 0)
    bench.maker.add(40, "many", {f"many/{n}.c": text(2, l1=str(n)) for n in range(150)})
    bench.apply()
    bench.maker.add(41, "more", {f"more/{n}.c": text(3, l1=str(n)) for n in range(150)})
    assert bench.apply().tree == bench.maker.tree
    assert len(list((bench.workspace / ".git/objects/pack").glob("*.pack"))) == 1
    assert git_out(bench.workspace, "fsck", "--full", "--no-dangling") == ""


def test_enclosing_dirty_repository_is_untouched(bench: Bench) -> None:
    outer = bench.root / "outer"
    outer.mkdir()
    git_out(outer, "init", "-q")
    (outer / "src").mkdir()
    (outer / "src/a.c").write_text("outer\n")
    git_out(outer, "add", ".")
    (outer / "src/a.c").write_text("dirty\n")
    bench.add_three()

    def state() -> dict[str, bytes]:
        return {
            path.relative_to(outer).as_posix(): path.read_bytes()
            for path in outer.rglob("*")
            if path.is_file() and "space" not in path.name and outer / "space" not in path.parents
        }

    before = state()
    assert bench.apply(workspace=outer / "space").tree == bench.maker.tree
    elsewhere = write_tree(
        bench.objects, bench.tree, {"src/b.c": b"other\n"}, bench.root / "scratch-index"
    )
    bench.maker.add(121, "bad", {"src/b.c": b"another\n"}, base=elsewhere)
    assert reason_of(lambda: bench.apply(workspace=outer / "space")) == "series-does-not-apply"
    assert state() == before


def test_hostile_configuration_changes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add_three()
    expected = bench.apply()
    home = bench.root / "home"
    hooks = home / "template/hooks"
    hooks.mkdir(parents=True)
    for name in ("applypatch-msg", "post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {home}/hook-ran\nexit 1\n")
        (hooks / name).chmod(0o755)
    (home / "attributes").write_text("* text eol=crlf filter=x ident\n")
    (home / "ignore").write_text("*\n")
    (home / ".gitconfig").write_text(
        f"[user]\nname = Eve\nemail = eve@example.org\n[commit]\ngpgsign = true\n"
        f"[core]\nautocrlf = true\neol = crlf\nhooksPath = {hooks}\nfilemode = false\n"
        f"attributesFile = {home}/attributes\nexcludesFile = {home}/ignore\n"
        f"[diff]\nnoprefix = true\nalgorithm = patience\n[apply]\nwhitespace = error\n"
        f"[init]\ntemplateDir = {home}/template\ndefaultBranch = x\n[rerere]\nenabled = true\n"
        f"[i18n]\ncommitEncoding = ISO-8859-1\n[fsck]\nx = y\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_DIR", str(home / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(home / "index"))
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-01-01T00:00:00")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Eve")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    got = bench.apply(workspace=bench.root / "hostile")
    assert got == expected
    assert snapshot(bench.root / "hostile").keys() == snapshot(bench.workspace).keys()
    assert not (home / "hook-ran").exists()
    assert not list((bench.root / "hostile/.git").glob("hooks/*"))


def test_prefix_of_an_earlier_apply_is_used_again(bench: Bench) -> None:
    bench.add_three()
    bench.apply()
    stamp = Workspace(bench.workspace).stamp()
    bench.maker.add(121, "more", {"src/b.c": text(40, l3="three")})
    done = bench.apply()
    assert stamp is not None and done.commits[:3] == stamp.commits
    assert done.rewritten_files == 1


GOLDEN_BASE = "658ad9c1210a202c941236b510a99fc516b9dd58"
GOLDEN_TOP = "1a77841576f65095d7fb59d242a8a7ea3c918b35"
