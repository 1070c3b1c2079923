"""Owners of lines, differences of series, statistics, and hunks in memory."""

from __future__ import annotations

import subprocess

import pytest

from opencoti_build.series.check import scratch_git
from opencoti_build.series.contents import Contents
from opencoti_build.series.hunks import parse_hunks, place, sections, split_lines
from opencoti_build.series.interdiff import Change, compare
from opencoti_build.series.owner import owned_lines, owner_of, shares
from opencoti_build.series.series import Series, load_series
from opencoti_build.series.snapshots import load_state
from opencoti_build.series.stat import build_order, feature_stats
from tests.unit.series.conftest import Bench, reason_of, text


@pytest.fixture
def three(bench: Bench) -> Bench:
    bench.add_three()
    return bench


def test_why(three: Bench) -> None:
    series = three.series
    with scratch_git(three.objects) as git:
        contents = Contents(git, three.tree, series.patches)
        lines = owned_lines(series, contents, "src/a.c")
        assert {(n, line.patch) for n, line in enumerate(lines, 1) if line.patch} == {
            (10, 20),
            (30, 40),
        }
        assert owner_of(series, contents, "src/a.c", 9).patch is None
        assert owner_of(series, contents, "src/new.c", 2).patch == 120
        assert owner_of(series, contents, "src/b.c", 1).text == "line 1"
        rows = shares(series, contents, "src/new.c")
        assert [(row.number, row.added, row.left) for row in rows] == [(40, 1, 1), (120, 1, 1)]
        assert reason_of(lambda: owner_of(series, contents, "src/a.c", 99)) == "why-no-line"
        for path in ("src/none.c", "src/old.c"):
            assert reason_of(lambda path=path: owned_lines(series, contents, path)) == (  # type: ignore[misc]
                "why-no-file"
            )


def test_why_agrees_with_blame(three: Bench) -> None:
    applied = three.apply()
    names = {result.commit: result.number for result in applied.commits}
    out = subprocess.run(
        ["git", "blame", "-l", "-s", "--root", "src/a.c"],
        cwd=three.workspace,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    blamed = [names.get(line[:40]) for line in out.splitlines()]
    with scratch_git(three.objects) as git:
        contents = Contents(git, three.tree, three.series.patches)
        owned = owned_lines(three.series, contents, "src/a.c")
    assert [line.patch for line in owned] == blamed


def test_diff_of_two_series(three: Bench) -> None:
    old = three.series
    first = three.patches / "0020-params.patch"
    first.write_bytes(first.read_bytes().replace(b"Because", b"Since"))
    second = three.patches / "0040-types.patch"
    second.write_bytes(second.read_bytes().replace(b"+thirty", b"+30"))
    (three.patches / "0120-kernels.patch").rename(three.patches / "0121-kernels.patch")
    three.maker.add(122, "more", {"src/b.c": b"x\n"})
    changes = compare(old, three.series)
    assert [(change.new, change.change) for change in changes] == [
        ("0020-params", Change.MESSAGE),
        ("0040-types", Change.CHANGED),
        ("0121-kernels", Change.SAME),
        ("0122-more", Change.ADDED),
    ]
    assert "-Because the engine needs it." in changes[0].lines
    assert changes[2].renamed and changes[2].old == "0120-kernels"
    assert compare(three.series, Series(old.directory, ()))[0].change is Change.REMOVED


def test_a_moved_hunk_is_not_a_change(three: Bench) -> None:
    old = three.series
    path = three.patches / "0020-params.patch"
    path.write_bytes(path.read_bytes().replace(b"@@ -7,7 +7,7", b"@@ -9,7 +9,7"))
    change = compare(old, three.series)[0]
    assert (change.change, change.lines) == (Change.MOVED, ())


def test_states(three: Bench) -> None:
    def git(*args: str) -> None:
        subprocess.run(["git", *args], cwd=three.root, check=True, capture_output=True)

    git("init", "-q")
    git("add", "patches")
    git("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x")

    def inner() -> dict[str, bytes]:
        files = (three.root / ".git").rglob("*")
        return {str(path): path.read_bytes() for path in files if path.is_file()}

    before = inner()
    (three.patches / "0120-kernels.patch").unlink()
    state = load_state("HEAD", three.root)
    assert [patch.name for patch in state.patches][-1] == "0120-kernels"
    assert load_state(str(three.patches), three.root).digest == three.series.digest
    assert load_state(str(three.root), three.root).digest == three.series.digest
    assert reason_of(lambda: load_state("v9", three.root)) == "diff-unknown"
    assert inner() == before
    assert reason_of(lambda: load_state("HEAD", three.patches.parent.parent)) == "diff-unknown"


def test_features_and_build_order(three: Bench) -> None:
    series = load_series(three.patches)
    (feature,) = feature_stats(series)
    assert (feature.feature, feature.numbers) == ("kv-turbo", (20, 40, 120))
    assert build_order(series) == ((20, 40), (120,))
    assert build_order(Series(three.patches, ())) == ()


@pytest.mark.parametrize(
    ("change", "unique", "expected"),
    [
        (lambda lines: lines, True, [16]),
        (lambda lines: [b"top\n", *lines], True, [17]),
        (lambda lines: lines[5:], True, [11]),
        (lambda lines: lines + lines, True, [16]),  # at its own line: no search
        (lambda lines: [b"top\n", *lines, *lines], True, None),  # two places
        (lambda lines: [b"top\n", *lines, *lines], False, [17]),  # the nearer one
        (lambda lines: lines[:18], False, None),
    ],
)
def test_place(three: Bench, change: object, unique: bool, expected: list[int] | None) -> None:
    three.maker.add(121, "x", {"src/b.c": text(40, l20="twenty")})
    (section,) = sections(three.series.find(121).diff)
    lines = change(split_lines(text(40)))  # type: ignore[operator]
    assert place(lines, parse_hunks(section), unique=unique) == expected


def test_hunks_at_the_ends_stay_there(three: Bench) -> None:
    three.maker.add(121, "x", {"src/b.c": b"top\n" + text(40) + b"end\n"})
    (section,) = sections(three.series.find(121).diff)
    hunks, lines = parse_hunks(section), split_lines(text(40))
    assert place(lines, hunks) == [0, 37]
    assert place([b"x\n", *lines], hunks[:1]) is None
    assert place([*lines, b"x\n"], hunks[1:]) is None
    assert place([b"x\n", *lines], hunks[1:]) == [38]
