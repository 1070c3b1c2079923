"""How many compilers fit into memory."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from opencoti_build.build import measure, memory
from opencoti_build.build.memory import HEAVY, Limits, find_limits, known_peaks, learn_peaks
from opencoti_build.paths import Cache

GIB = 1 << 30


def test_without_need_nothing_is_limited() -> None:
    assert find_limits([100 << 20] * 50 + [2 * GIB] * 5, 16, 128 * GIB) == Limits(16, 16)
    assert find_limits([], 8, GIB) == Limits(8, 8)


def test_there_is_always_one() -> None:
    assert find_limits([3 * GIB], 8, GIB) == Limits(1, 1)
    assert find_limits([3 * GIB, 100 << 20], 8, GIB) == Limits(1, 1)
    assert find_limits([900 << 20], 8, GIB >> 1) == Limits(1, 1)


def test_a_few_heavy_calls_do_not_hold_up_the_others() -> None:
    few = find_limits([300 << 20] * 200 + [3 * GIB] * 4, 8, 8 * GIB)
    many = find_limits([300 << 20] * 4 + [3 * GIB] * 200, 8, 8 * GIB)
    assert few.jobs > 6 and few.heavy == 1
    assert many.heavy == 2


def test_it_always_fits() -> None:
    chance = random.Random(5)
    for _ in range(500):
        peaks = [int(chance.lognormvariate(20.5, 0.8)) for _ in range(chance.randrange(1, 40))]
        jobs, room = chance.randrange(1, 33), chance.randrange(1, 64) * GIB
        limits = find_limits(peaks, jobs, room)
        assert 1 <= limits.heavy <= limits.jobs <= jobs
        heavy = sorted((p for p in peaks if p > HEAVY), reverse=True)[: limits.heavy]
        light = sorted((p for p in peaks if p <= HEAVY), reverse=True)[: limits.jobs - len(heavy)]
        assert limits.jobs == 1 or sum(heavy) + sum(light) <= room


def test_a_container_limits_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = memory.machine_memory()
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CGROUPS", (str(limit), str(tmp_path / "missing")))
    limit.write_text("max\n")
    assert memory.machine_memory() >= whole
    limit.write_text("1000000\n")
    assert memory.machine_memory() == 1000000


def run(output: Path, code: str) -> int:
    command = [sys.executable, "-I", "-S", str(measure.__file__), str(output)]
    return subprocess.run([*command, sys.executable, "-c", code]).returncode


def test_the_largest_process_is_measured(tmp_path: Path) -> None:
    peak = tmp_path / "o.peak"
    grandchild = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {!r}]))"
    assert run(peak, grandchild.format("x = bytearray(200 << 20)")) == 0
    assert 200 << 10 < int(peak.read_text()) < 300 << 10
    assert run(peak, "pass") == 0  # as when ccache answers
    assert int(peak.read_text()) > 200 << 10
    assert run(peak, "raise SystemExit(3)") == 3
    assert run(peak, "import os; os.kill(os.getpid(), 9)") == 137
    assert run(tmp_path / "no folder" / "x", "pass") == 0

    cache = Cache(tmp_path / "cache")
    learn_peaks(cache, tmp_path, {"o": "sm_90/o", "none": "none"})
    assert list(known_peaks(cache)) == ["sm_90/o"] and known_peaks(cache)["sm_90/o"] > 200 << 20
    peak.write_text("1000\n")
    learn_peaks(cache, tmp_path, {"o": "sm_90/o"})
    assert known_peaks(cache)["sm_90/o"] > 200 << 20
    (cache.root / "compiler-memory.json").write_text("[]")
    assert known_peaks(cache) == {}
