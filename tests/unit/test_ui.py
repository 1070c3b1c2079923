"""Progress on a terminal, as lines, and not at all."""

from __future__ import annotations

import pytest

from opencoti_build.ui import Ui


def test_rows_of_a_board_are_labels_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    ui = Ui(bars=False)
    with ui.board(["a", "b"]) as end:
        with ui.task("compile", row="a") as task:
            task.update(done=1, total=4)
        end("a", "built")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "compile a ..."
    assert lines[1].startswith("compile a: done in ")
    assert lines[2] == "a: built"


def test_a_board_shows_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    ui = Ui(bars=True)
    with ui.board(["first", "second", "third"]) as end:
        with ui.task("compile", row="first") as task:
            task.update(done=3, total=4)
        end("first", "built")
        with ui.task("pack") as task:  # not of the board: a bar of its own must not collide
            task.advance()
        end("second", "failed: why")
    shown = capsys.readouterr().err
    for text in ("first: built", "second: failed: why", "third: waiting"):
        assert text in shown
    assert "compile first" not in shown


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    ui = Ui(quiet=True, bars=True)
    with ui.board(["a"]) as end:
        with ui.task("compile", row="a") as task:
            task.advance()
        end("a", "built")
    assert capsys.readouterr().err == ""
