"""Killed anywhere, run again: always the same result, and never an edit blamed on the user."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opencoti_build.series import workspace as workspace_module
from opencoti_build.series.git import Git
from opencoti_build.series.workspace import Workspace
from tests.lib.series import snapshot
from tests.unit.series.conftest import Bench, reason_of, text

Content = dict[str, tuple[int, bytes]]


def content(root: Path) -> Content:
    return {name: (mode, data) for name, (_, mode, data) in snapshot(root).items()}


def in_child(work: Callable[[], object], kill_after: float | None = None) -> bool:
    """Run ``work`` in a child with a process group of its own; True when it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            work()
            code = 0
        finally:
            os._exit(code)
    if kill_after is not None:
        time.sleep(kill_after)
        for target in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                target(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def counted(
    real: Callable[..., object], number: int | list[int], *, after: bool = False
) -> Callable[..., object]:
    """``real``, until call ``number`` of the process, which dies before it (or after it)."""
    left = number if isinstance(number, list) else [number]  # a list counts for several

    def call(*args: object, **options: object) -> object:
        left[0] -= 1
        last = not left[0]
        if last and not after:
            die()
        result = real(*args, **options)
        if last and after:
            die()
        return result

    return call


def killed_at_call(bench: Bench, number: int, *, after: bool) -> bool:
    """Apply in a child that dies before or after its git call or stamp write ``number``."""

    def work() -> None:
        left = [number]
        Git.run = counted(Git.run, left, after=after)  # type: ignore[method-assign,assignment]
        workspace_module.write_atomic = counted(  # type: ignore[assignment]
            workspace_module.write_atomic, left, after=after
        )
        bench.apply()

    return in_child(work)


@pytest.fixture
def expected(bench: Bench) -> tuple[Content, Content]:
    """The content of a workspace with the first two patches, and with all three."""
    bench.add_three()
    third = bench.patches / "0120-kernels.patch"
    data = third.read_bytes()
    third.unlink()
    bench.apply(workspace=bench.root / "two")
    third.write_bytes(data)
    bench.apply(workspace=bench.root / "three")
    return content(bench.root / "two"), content(bench.root / "three")


def test_killed_at_any_call_of_the_first_apply(
    bench: Bench, expected: tuple[Content, Content]
) -> None:
    for number in range(1, 40, 2):
        bench.workspace = bench.root / f"space-{number}"
        if not killed_at_call(bench, number, after=False):
            break
        assert bench.apply().tree == bench.maker.tree
        assert content(bench.workspace) == expected[1]
        assert bench.apply().rewritten_files == 0
    assert number > 8


def test_killed_at_any_call_of_an_update_then_another_target(
    bench: Bench, expected: tuple[Content, Content]
) -> None:
    """Killed on the way from two patches to three; then two are wanted again."""
    third = bench.patches / "0120-kernels.patch"
    data = third.read_bytes()
    for number in range(1, 40, 2):
        third.unlink(missing_ok=True)
        bench.apply()
        before = snapshot(bench.workspace)
        third.write_bytes(data)
        killed = killed_at_call(bench, number, after=True)
        third.unlink()
        bench.apply()
        assert content(bench.workspace) == expected[0]
        after_again = snapshot(bench.workspace)
        changed = {name for name in before if before[name] != after_again[name]}
        assert changed <= {"src/new.c"}
        if not killed:
            break
    assert number > 6


def test_killed_at_random_times(bench: Bench) -> None:
    bench.maker.add(20, "many", {f"many/{n}.c": text(300, l1=str(n)) for n in range(150)})
    bench.apply(workspace=bench.root / "whole")
    whole = content(bench.root / "whole")
    for step in range(6):
        bench.workspace = bench.root / f"space-{step % 2}"
        in_child(bench.apply, kill_after=0.02 * step)
    for step in range(2):
        bench.workspace = bench.root / f"space-{step}"
        assert bench.apply().tree == bench.maker.tree
        assert content(bench.workspace) == whole


def test_half_written_work_tree_and_leftovers(
    bench: Bench, expected: tuple[Content, Content]
) -> None:
    def work() -> None:
        real = Git.run

        def run(self: Git, *args: str, **options: object) -> object:
            if args[:2] == ("read-tree", "--reset"):
                (bench.workspace / "src").mkdir(parents=True)
                (bench.workspace / "src/a.c").write_text("half")
                (bench.workspace / "src/new.c").write_text("")
                (bench.workspace / ".git/index.lock").write_text("")
                (bench.workspace / ".git/rebase-apply").mkdir()
                die()
            return real(self, *args, **options)  # type: ignore[arg-type]

        Git.run = run  # type: ignore[method-assign,assignment]
        bench.apply()

    assert in_child(work)
    bench.apply()
    assert content(bench.workspace) == expected[1]
    assert not (bench.workspace / ".git/rebase-apply").exists()


def test_killed_move_is_completed_before_a_series_that_fails(bench: Bench) -> None:
    bench.apply()
    bench.add_three()
    assert killed_at_call(bench, 12, after=True)
    assert (bench.workspace / ".git/opencoti-moving.json").exists()
    path = bench.patches / "0120-kernels.patch"
    path.write_bytes(path.read_bytes().replace(b"+newer", b"+NEWER"))
    assert reason_of(bench.apply) == "series-does-not-apply"
    state = Workspace(bench.workspace).state()
    assert (state.tree, state.dirty) == (bench.maker.tree, ())


def test_leftover_lock_of_a_finished_workspace(bench: Bench) -> None:
    bench.apply()
    bench.add_three()
    (bench.workspace / ".git/index.lock").write_text("")
    assert bench.apply().tree == bench.maker.tree


@pytest.mark.parametrize("damage", ["not json", "{}", '{"format": 99}', ""])
def test_broken_stamp_is_not_trusted(bench: Bench, damage: str) -> None:
    bench.add_three()
    bench.apply()
    (bench.workspace / ".git/opencoti-stamp.json").write_text(damage)
    before = snapshot(bench.workspace)
    assert bench.apply().tree == bench.maker.tree
    assert snapshot(bench.workspace) == before
    assert Workspace(bench.workspace).stamp() is not None


def test_broken_git_folder_of_an_interrupted_apply(bench: Bench) -> None:
    bench.add_three()
    bench.apply()
    before = content(bench.workspace)
    git_dir = bench.workspace / ".git"
    stamp = git_dir / "opencoti-stamp.json"
    lost = stamp.read_text().replace(bench.maker.tree, "2" * 40)
    (git_dir / "opencoti-moving.json").write_text(lost)
    stamp.unlink()
    (git_dir / "index").write_bytes(b"broken")
    (bench.workspace / "src/a.c").write_text("half")
    assert bench.apply().tree == bench.maker.tree
    assert content(bench.workspace) == before


def test_edits_after_a_kill_during_planning_are_still_the_users(bench: Bench) -> None:
    """Only a move of the work tree makes files ours; planning does not."""
    bench.apply()
    bench.add_three()
    assert killed_at_call(bench, 4, after=True)
    (bench.workspace / "src/b.c").write_text("mine\n")
    assert reason_of(bench.apply) == "workspace-dirty"


def test_two_at_once(bench: Bench) -> None:
    bench.add_three()
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if bench.apply().tree == bench.maker.tree else 2
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert bench.apply().rewritten_files == 0
