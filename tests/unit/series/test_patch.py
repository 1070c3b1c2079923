"""Patch files: a library of inputs, each with the exact reasons that are expected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opencoti_build.errors import SeriesError
from opencoti_build.series.git import Git
from opencoti_build.series.mail import render_mail
from opencoti_build.series.patch import parse_patch
from opencoti_build.series.series import InvalidSeriesError, load_series, make_series
from opencoti_build.series.stat import series_stats
from opencoti_build.series.trailers import Klass

DATA = Path(__file__).resolve().parents[2] / "data/series"
GOOD = DATA / "good/0040-kv-types.patch"


def case_series(case: Path, folder: Path) -> Path:
    """The patch files of a case, in a folder of their own."""
    folder.mkdir()
    for path in case.iterdir():
        if path.name != "expected.json":
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.mark.parametrize("case", sorted(DATA.iterdir()), ids=lambda case: case.name)
def test_case(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_git(*_: object, **__: object) -> None:
        raise AssertionError("git was called")

    monkeypatch.setattr(Git, "run", no_git)
    folder = case_series(case, tmp_path / "patches")
    expected = json.loads((case / "expected.json").read_text())
    found: dict[str, list[str]] = {}
    try:
        load_series(folder)
    except InvalidSeriesError as error:
        assert error.reason == "series-invalid"
        for problem in error.problems:
            found.setdefault(problem.patch_name, []).append(problem.reason)
    assert {name: " ".join(sorted(reasons)) for name, reasons in found.items()} == expected


def test_parse_patch_fields() -> None:
    patch = parse_patch(GOOD)
    assert (patch.number, patch.slug, patch.name) == (40, "kv-types", "0040-kv-types")
    assert (patch.subject, patch.why) == ("Kv types", "Because the engine needs it.")
    assert patch.author == "Ada Example <ada@example.org>"
    assert patch.date.isoformat() == "2024-02-03T04:05:06+00:00"
    assert (patch.feature, patch.gate, patch.klass) == (
        "kv-turbo",
        "flag --kv-turbo",
        Klass.CAPACITY,
    )
    assert (patch.depends, patch.upstream) == ((), "none")
    assert list(patch.trailers) == ["Feature", "Gate", "Class", "Depends", "Upstream"]
    edit, new = patch.files
    assert (edit.path, edit.added, edit.deleted, edit.is_new) == ("src/a.c", 1, 1, False)
    assert (new.path, new.added, new.deleted, new.is_new) == ("src/opencoti-kv.h", 1, 0, True)
    assert len(edit.old_blob) == 40 and new.old_blob == "0" * 40


@pytest.mark.parametrize("case", ["good", "good-ordinary-format-patch"])
def test_render_is_canonical(case: str) -> None:
    patch = parse_patch(DATA / case / "0040-kv-types.patch")
    assert render_mail(patch.mail()) == GOOD.read_bytes()


def test_parse_patch_raises_the_reason_itself() -> None:
    with pytest.raises(SeriesError) as caught:
        parse_patch(DATA / "crlf/0040-kv-types.patch")
    assert (caught.value.reason, caught.value.exit_code) == ("patch-crlf", 4)


def test_a_link_is_not_a_patch(tmp_path: Path) -> None:
    (tmp_path / GOOD.name).symlink_to(GOOD)
    with pytest.raises(InvalidSeriesError) as caught:
        load_series(tmp_path)
    assert [problem.reason for problem in caught.value.problems] == ["patch-unreadable"]


def test_empty_missing_and_ignored(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("about\n")
    (tmp_path / ".gitkeep").write_text("")
    assert load_series(tmp_path).patches == ()
    with pytest.raises(SeriesError) as caught:
        load_series(tmp_path / "none")
    assert caught.value.reason == "series-missing"


def test_series_digest_is_golden(tmp_path: Path) -> None:
    """The digest is part of content keys: a change here rebuilds every user's workspace."""
    patch = parse_patch(GOOD)
    series = make_series(tmp_path, [patch])
    assert series.digest == GOLDEN
    assert make_series(tmp_path / "elsewhere", [patch]).digest == GOLDEN
    assert make_series(tmp_path, []).digest != GOLDEN


def test_stats() -> None:
    (stat,) = series_stats(make_series(DATA, [parse_patch(GOOD)]))
    assert (stat.files, stat.own_files, stat.own_lines, stat.upstream_lines) == (2, 1, 1, 2)


GOLDEN = "89d49653d268b43d86d749078e36e29e589774829d1d9e2b4b6dc6e65f317112"
