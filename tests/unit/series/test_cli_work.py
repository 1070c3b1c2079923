"""The commands that change the series, through the real program, real pins and a real cache."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.lib.series import write_tree
from tests.unit.series.conftest import Bench, Run, pin, text


@pytest.fixture
def run(bench: Bench, run: Run) -> Run:
    """As everywhere, with the three patches."""
    bench.add_three()
    return run


def files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_day_at_the_workbench(bench: Bench, run: Run) -> None:
    code, out, _ = run("edit", "20", "-q")
    assert code == 0 and "at 0020-params, 2 patches above it" in out
    (bench.workspace / "src/b.c").write_bytes(text(40, l3="three"))
    code, out, _ = run("refresh", "-q")
    assert code == 0 and "wrote 0020-params.patch" in out
    (bench.workspace / "src/b.c").write_bytes(text(40, l3="three", l33="33"))
    made = run(
        *("new", "Count further", "--number", "130", "--feature", "kv", "--gate", "flag --kv"),
        *("--class", "memory", "--why", "Because.", "--json", "-q"),
    )
    assert json.loads(made[1])["written"] == ["0130-count-further.patch"]
    assert run("rename", "130", "Count to 33", "-q")[0] == 0
    assert run("renumber", "130", "131", "-q")[0] == 0
    assert run("split", "40", "unix.txt", "--number", "45", "--title", "New", "-q")[0] == 0
    assert run("fold", "40", "45", "-q")[0] == 0
    assert run("drop", "131", "-q")[0] == 0
    code, out, _ = run("log", "--json")
    commands = [entry["command"] for entry in json.loads(out)["operations"]]
    assert [command.split()[1] for command in commands] == [
        *("refresh", "new", "rename", "renumber", "split", "fold", "drop")
    ]
    for _ in commands:
        assert run("undo", "-q")[0] == 0
    code, _, err = run("undo", "-q")
    assert code == 4 and "[undo-nothing]" in err
    assert (bench.patches / "0040-types.patch").read_bytes() == (
        bench.three / "0040-types.patch"
    ).read_bytes()
    for _ in commands:
        assert run("redo", "-q")[0] == 0
    assert json.loads(run("apply", "--json", "-q")[1])["rewritten_files"] == 0
    assert run("log")[1].count("\n") == len(commands)


def test_split_that_cannot_be_says_why_and_can_be_left(bench: Bench, run: Run) -> None:
    """0120 changes the file that would come with 0125 only."""
    code, out, err = run("split", "40", "src/new.c", "--number", "125", "--title", "New", "-q")
    assert code == 4 and "[series-conflict]" in err and "0120-kernels" in out
    assert run("edit", "-q")[0] == 0
    assert "[session-open]" in run("drop", "120", "-q")[2]
    assert run("continue", "--abort", "-q")[0] == 0
    assert run("drop", "120", "-q")[0] == 0


def test_rebase(bench: Bench, run: Run) -> None:
    edits: dict[str, bytes | None] = {"src/a.c": b"top\n" + text(40, l10="X") + b"/* $Id$ */\n"}
    tree = write_tree(bench.objects, bench.tree, edits, bench.root / "scratch-index")
    pin(bench, "next", tree)
    code, out, _ = run("rebase", "--onto", "next", "--dry-run", "-q")
    assert code == 4 and [line.split()[1] for line in out.splitlines()] == [
        *("conflict", "offset", "clean")
    ]
    code, out, err = run("rebase", "--onto", "next", "-q")
    assert code == 4 and "series continue" in err and "src/a.c: both sides" in err
    root = bench.workspace.with_name("llama.cpp-resolve")
    (root / "src/a.c").write_bytes(b"top\n" + text(40, l10="ten") + b"/* $Id$ */\n")
    code, out, _ = run("rebase", "--continue", "--json", "-q")
    data = json.loads(out)
    assert code == 0 and data["written"][-1] == "llama.cpp.toml"
    assert data["edits"] == [{"path": "src/a.c", "patches": ["0020-params"]}]
    assert data["table"][0]["word"] == "conflict"
    pinned = (bench.root / "vendor/sources/llama.cpp.toml").read_text()
    assert 'name = "llama.cpp"' in pinned and tree in pinned
    code, out, _ = run("apply", "--json", "-q")
    assert code == 0 and json.loads(out)["base_tree"] == tree
    assert run("rebase", "-q")[0] == 2
    code, _, err = run("rebase", "--onto", "none", "-q")
    assert code == 2 and "[unknown-pin]" in err


def test_looks(bench: Bench, run: Run) -> None:
    code, out, _ = run("why", "src/a.c:10", "-q")
    assert code == 0 and out.startswith("ten\n0020-params: Params")
    assert "upstream line" in run("why", "src/a.c:11", "-q")[1]
    assert json.loads(run("why", "src/a.c:10", "--json", "-q")[1])["patch"] == "0020-params"
    rows = json.loads(run("why", "src/new.c", "--json", "-q")[1])
    assert [(row["patch"], row["left"]) for row in rows] == [("0040-types", 1), ("0120-kernels", 1)]
    assert "0120-kernels" in run("why", "src/new.c", "-q")[1]
    assert "upstream file" in run("why", "src/b.c", "-q")[1]
    code, out, _ = run("stat")
    assert code == 0 and "kv-turbo" in out and out.endswith("  0020 0040\n  0120\n")
    assert json.loads(run("stat", "--json")[1])["build_order"] == [[20, 40], [120]]
    other = bench.root / "other"
    other.mkdir()
    code, out, _ = run("diff", str(other), "--full")
    assert code == 0 and out.count("added") == 3 and "0 unchanged" in out
    assert run("diff", str(bench.patches), "--json")[0] == 0
    code, _, err = run("diff", "no-such-revision")
    assert code == 4 and "[diff-unknown]" in err


def test_inside_a_dirty_repository(bench: Bench, run: Run, tmp_path: Path) -> None:
    """The project's own repository: refs, index and configuration stay byte for byte."""

    def git(*args: str) -> str:
        done = subprocess.run(
            ["git", *args], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout

    git("init", "-q")
    (tmp_path / ".gitignore").write_text("cache/\nstore/\n")
    git("add", ".gitignore", "patches", "vendor")
    git("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x")
    (tmp_path / "vendor/dirty").write_text("mine\n")
    before = files(tmp_path / ".git")
    for args in (
        ("edit", "20"),
        ("edit", "120"),
        ("rename", "20", "Other"),
        ("renumber", "20", "21"),
        ("undo",),
        ("drop", "120"),
        ("check",),
        ("diff", "HEAD"),
    ):
        run(*args, *(() if args[0] == "diff" else ("-q",)))
    (bench.workspace / "src/b.c").write_text("x\n")
    assert run("refresh", "40", "-q")[0] == 0
    assert files(tmp_path / ".git") == before
    status = git("status", "--porcelain").splitlines()
    assert "?? vendor/dirty" in status and not any(".opencoti" in line for line in status)
