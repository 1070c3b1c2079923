"""Every way in which a patch can fail, all of them in one pass."""

from __future__ import annotations

import pytest

from opencoti_build.series import plan as plan_module
from opencoti_build.series.check import check_series
from opencoti_build.series.git import Git
from opencoti_build.series.outcome import DoesNotApplyError, Outcome
from tests.lib.series import PatchMaker, make_store, write_tree
from tests.unit.series.conftest import BASE, UI, Bench, text

TAIL = b"/* $Id$ */\n"


def other_base(bench: Bench, **edits: bytes) -> str:
    """A tree like the base with some files changed (``src_a`` names ``src/a.c``)."""
    names = {f"src/{key[-1]}.c": data for key, data in edits.items()}
    return write_tree(bench.objects, bench.tree, names, bench.root / "scratch-index")


def test_offset(bench: Bench) -> None:
    shifted = other_base(bench, src_b=b"first\nsecond\n" + text(40))
    bench.maker.add(40, "x", {"src/b.c": text(40, l20="twenty")})
    bench.tree = shifted
    assert bench.outcomes() == [Outcome.APPLIED_OFFSET]
    bench.apply()
    result = (bench.workspace / "src/b.c").read_bytes()
    assert result == b"first\nsecond\n" + text(40, l20="twenty")


def test_three_way(bench: Bench) -> None:
    """A context line changed: no direct apply, but merging from the pre-image works."""
    moved = other_base(bench, src_b=text(40, l18="eighteen"))
    bench.maker.add(40, "x", {"src/b.c": text(40, l20="twenty")})
    bench.tree = moved
    assert bench.outcomes() == [Outcome.THREE_WAY]
    bench.apply()
    assert (bench.workspace / "src/b.c").read_bytes() == text(40, l18="eighteen", l20="twenty")


def test_already_applied(bench: Bench) -> None:
    after = text(40, l20="twenty")
    bench.maker.add(40, "x", {"src/b.c": after})
    bench.maker.add(41, "y", {"src/a.c": text(40, l2="two") + TAIL})
    bench.tree = other_base(bench, src_b=after)
    assert bench.outcomes() == [Outcome.ALREADY_APPLIED, Outcome.APPLIED]
    # also where the file went on changing since
    bench.tree = other_base(bench, src_b=text(40, l20="twenty", l35="later"))
    assert bench.outcomes() == [Outcome.ALREADY_APPLIED, Outcome.APPLIED]


def test_does_not_apply_names_the_hunk(bench: Bench) -> None:
    bench.maker.add(40, "x", {"src/b.c": text(40, l20="twenty")})
    bench.tree = other_base(bench, src_b=text(40, l20="zwanzig"))
    assert bench.outcomes() == [Outcome.DOES_NOT_APPLY]
    (status,) = check_series(bench.series, bench.tree, bench.objects, UI)
    assert [(item.path, item.line) for item in status.conflicts] == [("src/b.c", 17)]
    assert "src/b.c:17" in str(DoesNotApplyError([status]).context)


def test_missing_pre_image(bench: Bench) -> None:
    """Made on a base of which the store has never heard."""
    store, tree = make_store(bench.root / "far", {**BASE, "src/b.c": text(40, l22="far")})
    PatchMaker(store, tree, bench.patches).add(
        40, "x", {"src/b.c": text(40, l20="twenty", l22="far")}
    )
    assert bench.outcomes() == [Outcome.MISSING_PRE_IMAGE]


def test_all_patches_are_tried(bench: Bench) -> None:
    maker = bench.maker
    maker.add(40, "fails", {"src/b.c": text(40, l20="twenty")})
    maker.add(41, "same-file", {"src/b.c": text(40, l20="XX")})
    maker.add(42, "other-file", {"src/a.c": text(40, l2="two") + TAIL})
    maker.add(43, "says-so", {"src/c.c": b"c\n"}, trailers={"Depends": "0040"})
    maker.add(44, "through-it", {"src/d.c": b"d\n"}, trailers={"Depends": "0042, 0043"})
    maker.add(45, "new-file", {"src/e.c": b"e\n"})
    bench.tree = other_base(bench, src_b=text(40, l20="zwanzig"))
    related = Outcome.DEPENDS_ON_FAILED
    assert bench.outcomes() == [
        Outcome.DOES_NOT_APPLY,
        related,
        Outcome.APPLIED,
        related,
        related,
        Outcome.APPLIED,
    ]


def test_new_file_is_there_already(bench: Bench) -> None:
    bench.maker.add(40, "x", {"src/c.c": b"ours\n"})
    bench.tree = other_base(bench, src_c=b"theirs\n")
    assert bench.outcomes() == [Outcome.DOES_NOT_APPLY]
    bench.tree = other_base(bench, src_c=b"ours\n")
    assert bench.outcomes() == [Outcome.ALREADY_APPLIED]


def test_index_line_that_lies_about_the_result(bench: Bench) -> None:
    path = bench.maker.add(40, "x", {"src/b.c": text(40, l20="twenty")})
    path.write_bytes(path.read_bytes().replace(b"+twenty", b"+TWENTY"))
    bench.maker.add(41, "y", {"src/c.c": b"c\n"})
    assert bench.outcomes() == [Outcome.WRONG_RESULT, Outcome.APPLIED]


def test_hunks_that_do_not_fit_their_own_pre_image(bench: Bench) -> None:
    path = bench.maker.add(40, "x", {"src/b.c": text(40, l20="twenty")})
    path.write_bytes(path.read_bytes().replace(b" line 19", b" LINE 19"))
    assert bench.outcomes() == [Outcome.MALFORMED]


def test_apply_that_changes_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As inside an enclosing repository: exit status 0, and nothing happened."""
    bench.maker.add(40, "x", {"src/b.c": text(40, l20="twenty")})
    real = Git.run

    def fake(self: Git, *args: str, **options: object) -> object:
        return real(self, "version") if args[0] == "apply" else real(self, *args, **options)

    monkeypatch.setattr(Git, "run", fake)
    monkeypatch.setattr(plan_module, "exact_files", lambda *_: None)
    assert bench.outcomes() == [Outcome.WRONG_RESULT]


def test_mode_change(bench: Bench) -> None:
    path = bench.maker.add(40, "x", {"src/b.c": text(40, l20="twenty")})
    head, _, _ = path.read_bytes().partition(b"diff --git")
    path.write_bytes(head + b"diff --git a/run.sh b/run.sh\nold mode 100755\nnew mode 100644\n")
    assert bench.outcomes() == [Outcome.APPLIED]
    assert not (bench.apply() and (bench.workspace / "run.sh").stat().st_mode & 0o100)


def test_check_leaves_nothing_behind(bench: Bench) -> None:
    bench.add_three()
    before = sorted(path for path in bench.root.rglob("*"))
    assert bench.outcomes() == [Outcome.APPLIED] * 3
    assert sorted(path for path in bench.root.rglob("*")) == before
