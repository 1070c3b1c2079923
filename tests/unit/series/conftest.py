"""A small base with a series of three patches."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from opencoti_build.cli.main import main
from opencoti_build.errors import SeriesError
from opencoti_build.series.apply import Applied, apply_series
from opencoti_build.series.check import check_series
from opencoti_build.series.outcome import DoesNotApplyError, Outcome
from opencoti_build.series.series import Series, load_series
from opencoti_build.ui import Ui
from tests.lib.series import PatchMaker, make_store

UI = Ui(quiet=True)
Run = Callable[..., tuple[int, str, str]]


def text(count: int, **changes: str) -> bytes:
    """Numbered lines; ``l5="x"`` replaces line 5."""
    lines = [changes.get(f"l{n}", f"line {n}") for n in range(1, count + 1)]
    return "".join(f"{line}\n" for line in lines).encode()


BASE = {
    ".gitattributes": b"*.txt text eol=crlf\n*.c ident diff=cpp\n",
    "dos.txt": b"one\r\ntwo\r\n",
    "unix.txt": b"one\ntwo\n",
    "src/a.c": text(40) + b"/* $Id$ */\n",
    "src/b.c": text(40),
    "src/old.c": b"old\n",
    "run.sh": b"#!/bin/sh\n",
    "empty": b"",
    "no-newline": b"tail",
    "a name.txt": b"x\n",
}


@dataclass
class Bench:
    """Store, base tree, patch folder and workspace of one test."""

    root: Path
    objects: Path
    tree: str
    maker: PatchMaker
    workspace: Path
    three: Path

    @property
    def patches(self) -> Path:
        return self.maker.folder

    @property
    def series(self) -> Series:
        return load_series(self.patches)

    def apply(self, *, force: bool = False, workspace: Path | None = None) -> Applied:
        space = workspace or self.workspace
        return apply_series(self.series, self.tree, self.objects, space, UI, force=force)

    def outcomes(self) -> list[Outcome]:
        """Of ``check``; a failing apply has to say the same and to raise one known error."""
        statuses = check_series(self.series, self.tree, self.objects, UI)
        if not all(status.outcome.good for status in statuses):
            with pytest.raises(DoesNotApplyError) as caught:
                self.apply()
            assert (caught.value.reason, caught.value.exit_code) == ("series-does-not-apply", 4)
            assert list(caught.value.statuses) == statuses
        return [status.outcome for status in statuses]

    def add_three(self) -> None:
        """The three patches of ``_write_three`` (made once, copied here)."""
        shutil.copytree(self.three, self.patches, dirs_exist_ok=True)
        self.maker.tree = (self.three.parent / "tree-of-three").read_text()


def _write_three(maker: PatchMaker) -> None:
    maker.add(20, "params", {"src/a.c": text(40, l10="ten") + b"/* $Id$ */\n"})
    maker.add(
        40,
        "types",
        {
            "src/a.c": text(40, l10="ten", l30="thirty") + b"/* $Id$ */\n",
            "src/new.c": b"new\n",
            "src/old.c": None,
            "unix.txt": b"one\n2\n",
            "no-newline": b"tail, longer",
            "empty": b"full\n",
            "a name.txt": b"y\n",
            "blank.c": b"",
        },
        author="Jürgen Q. Example <j@example.org>",
        why="Because Jürgen\nneeds it.\n\nAnd more.",
    )
    maker.add(120, "kernels", {"src/new.c": b"new\nnewer\n"}, trailers={"Depends": "0040"})


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Store and patches, built once."""
    root = tmp_path_factory.mktemp("series")
    objects, tree = make_store(root / "store", BASE)
    maker = PatchMaker(objects, tree, root / "three")
    _write_three(maker)
    (root / "tree").write_text(tree)
    (root / "tree-of-three").write_text(maker.tree)
    return root


@pytest.fixture
def bench(tmp_path: Path, template: Path) -> Bench:
    shutil.copytree(template / "store", tmp_path / "store")
    objects, tree = tmp_path / "store/objects.git", (template / "tree").read_text()
    maker = PatchMaker(objects, tree, tmp_path / "patches")
    return Bench(tmp_path, objects, tree, maker, tmp_path / "space", template / "three")


def reason_of(call: Callable[[], object]) -> str:
    """The reason of the SeriesError that ``call`` raises."""
    with pytest.raises(SeriesError) as caught:
        call()
    return caught.value.reason


PIN = """\
format = 1
name = "{name}"
kind = "source"
version = "1"
license = "MIT"
tree = "{tree}"

[[transports]]
kind = "archive"
url = "https://example.invalid/x.tar.gz"
filename = "x.tar.gz"
sha256 = "{zero}"
size = 1
member = "x"
"""


def pin(bench: Bench, name: str, tree: str) -> None:
    """Write a pin for ``tree``, which the object store then knows as fetched."""
    folder = bench.root / "vendor/sources"
    folder.mkdir(parents=True, exist_ok=True)
    zero = "0" * 64
    (folder / f"{name}.toml").write_text(PIN.format(name=name, tree=tree, zero=zero))
    known = bench.objects / "refs/trees" / tree
    known.parent.mkdir(exist_ok=True)
    known.write_text(f"{tree}\n")


@pytest.fixture
def run(bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``opencoti-build series ARGS`` with a real pin and cache; exit code, stdout, stderr."""
    cache = bench.root / "cache"
    cache.mkdir()
    bench.objects.rename(cache / "objects.git")
    bench.objects = bench.maker.objects = cache / "objects.git"
    bench.workspace = cache / "workspaces/llama.cpp"
    (bench.root / "recipes").mkdir()
    monkeypatch.setenv("OPENCOTI_BUILD_PROJECT", str(bench.root))
    monkeypatch.setenv("OPENCOTI_BUILD_CACHE", str(cache))
    pin(bench, "llama.cpp", bench.tree)

    def call(*args: str) -> tuple[int, str, str]:
        code = 0
        try:
            main(["series", *args])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return call
