from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "OPENCOTI_BUILD_PROJECT": str(project),
        "OPENCOTI_BUILD_CACHE": str(project.parent / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [sys.executable, "-m", "opencoti_build.cli.main", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=project.parent,
    )


def test_default_then_present(project: Path) -> None:
    done = run(project, "fetch")
    assert done.returncode == 0, done.stderr
    row = done.stdout.splitlines()[1]
    assert "llama.cpp" in row and TREE_ID in row and row.endswith("fetched")
    assert "models are optional" in done.stderr
    done = run(project, "fetch", "--offline", "--quiet", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["status"] for row in json.loads(done.stdout)] == ["present"]


def test_all_and_list(project: Path) -> None:
    done = run(project, "fetch", "--all", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert {name: row["status"] for name, row in rows.items()} == {
        "llama.cpp": "fetched",
        "mod": "fetched",
        "unlocked": "not locked",
    }
    assert Path(rows["mod"]["where"]).read_bytes() == MODEL
    listed = run(project, "sources", "list", "--json")
    states = [row["status"] for row in json.loads(listed.stdout)]
    assert states == ["present", "present", "not locked"]
    table = run(project, "sources", "list").stdout.splitlines()
    assert table[0].startswith("name") and len(table) == 4


def test_offline_names_all(project: Path) -> None:
    done = run(project, "fetch", "llama.cpp", "mod", "--offline")
    assert done.returncode == 3
    assert "[offline-missing]" in done.stderr
    assert "pkg-1.0.tar.gz" in done.stderr and "m-1.0.whl" in done.stderr
    assert done.stdout.count("failed") == 2


def test_refusals(project: Path) -> None:
    done = run(project, "fetch", "unlocked")
    assert (done.returncode, "[pin-not-locked]" in done.stderr) == (3, True)
    done = run(project, "fetch", "nope")
    assert (done.returncode, "[unknown-pin]" in done.stderr) == (2, True)
    assert run(project, "fetch", "mod", "--all").returncode == 2
    assert run(project, "fetch", "--mirror", "nowhere").returncode == 2


def test_several_failures(project: Path, server: FileServer) -> None:
    server.files.clear()
    done = run(project, "fetch", "llama.cpp", "mod")
    assert done.returncode == 3
    assert "[fetch-failed]" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.network
def test_real_llama_cpp(tmp_path: Path) -> None:
    from opencoti_build.sources.fetch import ensure_tree
    from opencoti_build.sources.pins import load_pins
    from tests.lib.source_pins import context

    pin = load_pins(ROOT / "vendor")["llama.cpp"]
    assert ensure_tree(pin, context(tmp_path)) == pin.tree
