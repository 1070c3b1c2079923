"""Sizes of the cache's parts, and making them smaller."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from opencoti_build.build.cache_parts import PRUNED, parse_age, parse_size, parts, prune
from opencoti_build.build.steps import Step, StepStore
from opencoti_build.errors import UsageError
from opencoti_build.paths import Cache
from opencoti_build.toolchains.tools import tool

DAY = 86400


def age(path: Path, seconds: int) -> None:
    when = time.time() - seconds
    os.utime(path, (when, when))


def finished(cache: Cache, name: str, size: int, days: int) -> Step:
    step = Step(name, {})
    folder = StepStore(cache).run(step, lambda out: void((out / "file").write_bytes(bytes(size))))
    age(folder / "step.json", days * DAY)
    return step


def void(_: object) -> None:
    """Its value is no matter."""


def test_sizes_and_ages_are_read() -> None:
    assert [parse_size(text) for text in ("0", "12", "5k", "5G", " 3MB")] == [
        0, 12, 5000, 5 * 10**9, 3 * 10**6
    ]  # fmt: skip
    assert [parse_age(text) for text in ("12h", "30d", "2w")] == [43200, 30 * DAY, 14 * DAY]
    for parse, reason in ((parse_size, "bad-size"), (parse_age, "bad-age")):
        for text in ("", "-1", "5X", "d", "1.5G"):
            with pytest.raises(UsageError) as caught:
                parse(text)
            assert caught.value.reason == reason


def test_every_part_is_measured(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert all((part.files, part.size) == (0, 0) for part in parts(cache))
    finished(cache, "engine", 1000, 0)
    sizes = {part.name: part.size for part in parts(cache)}
    assert sizes["steps"] > 1000 and sizes["builds"] == 0
    assert set(PRUNED) < set(sizes)


def test_old_steps_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    steps = [finished(cache, f"engine {n}", 100_000, n) for n in range(4)]
    store = StepStore(cache)
    assert prune(cache, ["steps"], older_than=10 * DAY) == {"steps": 0}
    assert prune(cache, ["steps"], older_than=2 * DAY + 3600)["steps"] > 100_000
    assert [bool(store.find(step)) for step in steps] == [True, True, True, False]
    prune(cache, ["steps"], max_size=250_000)
    assert [bool(store.find(step)) for step in steps] == [True, True, False, False]
    prune(cache, ["steps"], max_size=0)
    assert not any(store.find(step) for step in steps)
    assert store.state(steps[0]).changed == ()  # what a step was is still known


def test_build_folders_go_by_their_last_build(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for name, days in (("new", 1), ("old", 40)):
        folder = cache.builds / name
        folder.mkdir(parents=True)
        (folder / ".ninja_log").write_text("log")
        age(folder / ".ninja_log", days * DAY)
    prune(cache, ["builds"], older_than=30 * DAY)
    assert [path.name for path in cache.builds.iterdir()] == ["new"]


def test_objects_are_left_to_ccache(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    env = {"PATH": os.environ["PATH"], "CCACHE_DIR": str(cache.ccache_cuda),
           "CCACHE_CONFIGPATH": os.devnull}  # fmt: skip
    for number in range(3):
        source = tmp_path / f"{number}.c"
        source.write_text(f"int x{number};\n")
        command = [str(tool("ccache").path), "gcc", "-c", source, "-o", tmp_path / "x.o"]
        if subprocess.run(command, env=env).returncode:
            pytest.skip("no gcc on this machine")
    assert prune(cache, ["ccache", "ccache-cuda"], max_size=10**9, older_than=DAY) == {
        "ccache": 0, "ccache-cuda": 0
    }  # fmt: skip
    assert prune(cache, ["ccache-cuda"], max_size=0)["ccache-cuda"] > 0
