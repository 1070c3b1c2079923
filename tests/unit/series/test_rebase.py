"""Moving to another base: the table, stops, resolutions, the proof, and kills on the way."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from opencoti_build.errors import CheckError
from opencoti_build.series import journal, rework, session
from opencoti_build.series import resolve as resolve_module
from opencoti_build.series.bench import Bench as Workbench
from opencoti_build.series.bench import Done
from opencoti_build.series.check import check_series
from opencoti_build.series.git import Git
from opencoti_build.series.proof import Edit, Proof
from opencoti_build.series.resolve import Stop
from tests.lib.series import write_tree
from tests.unit.series.conftest import UI, Bench, reason_of, text
from tests.unit.series.test_kill import counted, in_child

END = b"/* $Id$ */\n"
# Line 10 of a.c is what 0020 changes: a conflict; b.c is what no patch touches.
MOVED: dict[str, bytes | None] = {
    "src/a.c": b"top\n" + text(40, l10="TEN of upstream", l35="35") + END,
    "src/b.c": text(40, l2="two"),
}


@pytest.fixture
def work(bench: Bench) -> Workbench:
    bench.add_three()
    return Workbench(bench.root, bench.tree, bench.objects, bench.workspace, UI)


def moved(bench: Bench, edits: Mapping[str, bytes | None]) -> str:
    return write_tree(bench.objects, bench.tree, edits, bench.root / "scratch-index")


def words(step: Done | Stop, work: Workbench) -> list[str]:
    state = step.finished.state if isinstance(step, Done) and step.finished else work.session.load()
    return [row.word for row in state.rows]


def start(work: Workbench, tree: str, *, remembered: bool = False) -> Done | Stop:
    files = {"vendor/sources/llama.cpp.toml": "the new pin\n"}
    return work.start("series rebase --onto next", tree, files, remembered=remembered)


def resolve(work: Workbench, data: bytes) -> None:
    (work.session.root / "src/a.c").write_bytes(data)


RESOLVED = b"top\n" + text(40, l10="ten of ours", l35="35") + END


def test_clean_and_offset(work: Workbench, bench: Bench) -> None:
    tree = moved(bench, {"src/a.c": b"top\n" + text(40, l35="35") + END, "src/b.c": b"b\n"})
    step = start(work, tree)
    assert isinstance(step, Done) and step.finished
    assert words(step, work) == ["offset", "offset", "clean"]
    assert step.finished.proof == Proof(2, ())
    assert step.written == ("0020-params.patch", "0040-types.patch", "llama.cpp.toml")
    assert (bench.root / "vendor/sources/llama.cpp.toml").read_text() == "the new pin\n"
    statuses = check_series(bench.series, tree, bench.objects, UI)
    assert {status.outcome.value for status in statuses} == {"applied"}
    assert not work.session.root.exists()
    work.undo()
    assert not (bench.root / "vendor/sources/llama.cpp.toml").exists()
    assert bench.outcomes()[0].value == "applied"


def test_already_upstream_is_left_out_and_forgotten(work: Workbench, bench: Bench) -> None:
    gone = {"src/a.c": text(40, l10="ten") + END}
    bench.maker.add(121, "user", {"src/b.c": b"b\n"}, trailers={"Depends": "0020"})
    step = start(work, moved(bench, gone))
    assert isinstance(step, Done) and step.finished
    assert words(step, work) == ["already upstream", "clean", "clean", "clean"]
    assert step.finished.state.gone == {"0020-params": "already upstream"}
    assert step.removed == ("0020-params.patch",)
    assert bench.series.find(121).depends == ()


def test_conflict_continue_and_proof(work: Workbench, bench: Bench) -> None:
    before = {path.name: path.read_bytes() for path in bench.patches.glob("*.patch")}
    tree = moved(bench, MOVED)
    step = start(work, tree)
    assert isinstance(step, Stop)
    assert (step.name, [file.path for file in step.files]) == ("0020-params", ["src/a.c"])
    assert words(step, work)[0] == "conflict" and len(words(step, work)) == 3
    root = work.session.root
    data = (root / "src/a.c").read_bytes()
    assert all(part in data for part in (b"TEN of upstream\n", b"line 10\n", b"\nten\n"))
    git = Git(root / ".git", work_tree=root)
    assert git.text("status", "--porcelain") == "UU src/a.c"
    assert reason_of(lambda: work.resume("continue")) == "conflict-markers-left"
    assert reason_of(lambda: start(work, tree)) == "session-open"
    assert reason_of(lambda: work.change("x", lambda _, s: s.patches)) == "session-open"
    resolve(work, RESOLVED)
    (root / "src/a.c.orig").write_bytes(b"left by a merge tool\n")
    (root / "src/b.c").write_bytes(text(40, l2="two", l3="elsewhere"))
    step = work.resume("continue")
    assert isinstance(step, Done) and step.finished
    assert step.finished.state.resolved == ("0020-params",)
    edits = step.finished.proof.edits
    assert edits == (Edit("src/a.c", ("0020-params",)), Edit("src/b.c", ("0020-params",)))
    changed = [file.path for file in bench.series.find(20).files]
    assert changed == ["src/a.c", "src/b.c"]
    assert {path.name for path in bench.patches.glob("*.patch")} == before.keys()
    statuses = check_series(bench.series, tree, bench.objects, UI)
    assert {status.outcome.value for status in statuses} == {"applied"}
    final = bench.series.find(20)
    assert b"+ten of ours" in final.data and final.trailers["Gate"] == "flag --kv-turbo"


def test_resolution_is_remembered_where_the_file_moved_on(work: Workbench, bench: Bench) -> None:
    start(work, moved(bench, MOVED))
    resolve(work, RESOLVED)
    assert isinstance(work.resume("continue"), Done)
    work.undo()
    later = {**MOVED, "src/a.c": b"new\n" + (MOVED["src/a.c"] or b"")}
    step = start(work, moved(bench, later))
    assert isinstance(step, Stop) and step.known == ("src/a.c",)
    assert (work.session.root / "src/a.c").read_bytes() == b"new\n" + RESOLVED
    assert isinstance(work.resume("continue"), Done)
    work.undo()
    step = start(work, moved(bench, later), remembered=True)
    assert isinstance(step, Done) and step.finished and step.finished.state.resolved


def test_skip_and_abort(work: Workbench, bench: Bench) -> None:
    before = {path.name: path.read_bytes() for path in bench.patches.glob("*.patch")}
    tree = moved(bench, MOVED)
    start(work, tree)
    assert work.abort().stopped == "0020-params"
    assert not work.session.root.exists()
    assert {path.name: path.read_bytes() for path in bench.patches.glob("*.patch")} == before
    assert reason_of(lambda: work.resume("continue")) == "session-none"
    start(work, tree)
    step = work.resume("skip")
    assert isinstance(step, Done) and step.removed == ("0020-params.patch",)


def test_resolution_that_leaves_nothing(work: Workbench, bench: Bench) -> None:
    start(work, moved(bench, MOVED))
    resolve(work, MOVED["src/a.c"] or b"")
    assert reason_of(lambda: work.resume("continue")) == "resolution-empty"
    assert isinstance(work.resume("skip"), Done)


def test_file_gone_from_the_base(work: Workbench, bench: Bench) -> None:
    step = start(work, moved(bench, {"unix.txt": None, "src/old.c": b"changed\n"}))
    assert isinstance(step, Stop) and step.name == "0040-types"
    assert {file.path: file.kind.name for file in step.files} == {
        "unix.txt": "DELETED_BELOW",
        "src/old.c": "CHANGED_BELOW",
    }
    assert (work.session.root / "unix.txt").read_bytes() == b"one\n2\n"
    (work.session.root / "unix.txt").unlink()
    (work.session.root / "src/old.c").unlink()
    assert isinstance(work.resume("continue"), Done)
    assert "unix.txt" not in [file.path for file in bench.series.find(40).files]


def test_series_changed_while_a_session_was_open(work: Workbench, bench: Bench) -> None:
    start(work, moved(bench, MOVED))
    (bench.patches / "0120-kernels.patch").unlink()
    resolve(work, RESOLVED)
    assert reason_of(lambda: work.resume("continue")) == "session-stale"
    assert work.session.open


def test_unproved_result_is_refused(
    work: Workbench, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    wild = Proof(0, (Edit("src/a.c", ()),))
    monkeypatch.setattr(resolve_module, "prove", lambda *_: wild)
    with pytest.raises(CheckError) as caught:
        start(work, moved(bench, {"src/b.c": b"b\n"}))
    assert caught.value.reason == "rebase-unproved"
    assert bench.outcomes()[0].value == "applied"


def test_conflict_of_another_command(work: Workbench, bench: Bench) -> None:
    """Dropping a patch whose lines a later one changes stops in a session too."""
    changed = text(40, l10="ten and more", l30="thirty") + END
    bench.maker.add(121, "more", {"src/a.c": changed})
    work.apply(work.series())
    step = work.change("series drop 0020", lambda _, s: rework.drop(s, 20))
    assert isinstance(step, Stop) and step.name == "0121-more"
    resolve(work, text(40, l10="only more", l30="thirty") + END)
    step = work.resume("continue")
    assert isinstance(step, Done) and step.removed == ("0020-params.patch",)
    assert step.space and b"only more" in (work.workspace / "src/a.c").read_bytes()
    work.undo()
    assert work.series().find(20)


@pytest.mark.parametrize("what", ["writes", "git calls"])
def test_killed_on_the_way(work: Workbench, bench: Bench, what: str) -> None:
    """Killed at each write or call in turn, and always run again: the same end, nothing lost."""
    tree = moved(bench, MOVED)

    def go() -> None:
        if not work.session.open:
            start(work, tree)
        elif work.resolver().stop() is None:
            work.resume("continue")
        else:
            resolve(work, RESOLVED)
            work.resume("continue")

    def child(number: int) -> None:
        if what == "writes":
            for module in (journal, session):
                module.write_atomic = counted(module.write_atomic, number)  # type: ignore
        else:
            Git.run = counted(Git.run, number)  # type: ignore[method-assign,assignment]
        go()

    step = 1 if what == "writes" else 7
    killed = 0
    while in_child(partial(child, 1 + killed * step)):
        killed += 1
    assert killed > 3
    while work.session.open:
        go()
    work.journal.recover()
    assert len(bench.series.patches) == 3
    statuses = check_series(bench.series, tree, bench.objects, UI)
    assert {status.outcome.value for status in statuses} == {"applied"}
    assert (bench.root / "vendor/sources/llama.cpp.toml").read_text() == "the new pin\n"
