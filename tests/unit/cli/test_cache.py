"""``opencoti-build cache``: what its commands print, and how they fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opencoti_build.cli.main import main
from opencoti_build.paths import CACHE_ENV, Cache

ID = "ab" + "c" * 38


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "cache"))
    cache = Cache(tmp_path / "cache")
    path = cache.ccache_cuda / ID[0] / ID[1] / ID[2:]
    path.parent.mkdir(parents=True)
    path.write_bytes(b"an object")
    return cache


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["cache", *arguments])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def test_objects_go_out_and_come_in(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = str(tmp_path / "objects.tar.zst")
    assert run("export", file, "-q", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["objects"] == 1 and shown["size"] == Path(file).stat().st_size
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "other"))
    for present in (0, 1):
        assert run("import", file, "-q", "--json") == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown == {"objects": 1, "size": 9, "present": present}
    assert (tmp_path / "other/ccache-cuda/a/b" / ID[2:]).read_bytes() == b"an object"


def test_what_cannot_be_moved_is_said(
    cache: Cache, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("import", str(tmp_path / "missing"), "-q") == 2
    assert "[cache-archive-missing]" in capsys.readouterr().err
    for path in cache.ccache_cuda.rglob(ID[2:]):
        path.unlink()
    assert run("export", str(tmp_path / "out"), "-q") == 2
    assert "[cache-empty]" in capsys.readouterr().err
    assert run("prune") == 2 and run("prune", "--what", "downloads", "--max-size", "1G") == 2
    assert run("prune", "--max-size", "much") == 2
    assert "[bad-size]" in capsys.readouterr().err


def test_parts_are_shown_and_pruned(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    sizes = {part["name"]: part["size"] for part in shown["parts"]}
    assert sizes["ccache-cuda"] == 9 == shown["size"] and shown["folder"] == str(cache.root)
    (cache.builds / "old").mkdir(parents=True)
    assert run("prune", "--what", "builds", "--max-size", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"builds": 0}
    assert run("info") == 0 and "ccache-cuda" in capsys.readouterr().out
