"""How many compilers fit into the machine's memory, from what each file took before.

What a call took is learned: it is kept in the cache folder, by the name of its output. A call
that was never seen counts as a heavy one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.paths import Cache, write_atomic

HEAVY = 1 << 30
"""Bytes: calls that take more are counted one by one."""
UNKNOWN = 2500 << 20
"""Bytes of a call that was never seen."""
# Of the machine's memory; the rest is for the system, for ninja and for files.
_SHARE = 0.85
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_TABLE = "compiler-memory.json"


@dataclass(frozen=True)
class Limits:
    """``jobs`` at once in all, ``heavy`` at once of the calls that take more than HEAVY."""

    jobs: int
    heavy: int


def machine_memory() -> int:
    """Bytes that this process and its children may use: the machine's, or its container's."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _CGROUPS:
        with contextlib.suppress(OSError, ValueError):
            memory = min(memory, int(Path(name).read_text()))
    return memory


def find_limits(peaks: Iterable[int], jobs: int, memory: int) -> Limits:
    """The best number of calls at once for ``peaks`` (bytes) in ``memory`` bytes of a machine.

    At no time more than fits: the largest heavy call for each heavy one, the largest light call
    for each other one. Of the pairs that fit, the one that keeps both kinds going is taken; time
    is taken to grow with memory.
    """
    known = list(peaks)
    room = int(memory * _SHARE)
    light = max((peak for peak in known if peak <= HEAVY), default=0)
    large = max((peak for peak in known if peak > HEAVY), default=0)
    if not large:
        count = jobs if not light else max(1, min(jobs, room // light))
        return Limits(count, count)
    if not light:
        count = max(1, min(jobs, room // large))
        return Limits(count, count)
    total, heavy = sum(known), sum(peak for peak in known if peak > HEAVY)
    best, best_time = Limits(1, 1), float("inf")
    for count in range(1, jobs + 1):
        left = room - count * light
        at_once = min(count, left // (large - light)) if left > 0 else 0
        if at_once < 1:
            break
        time = max(total / count, heavy / at_once)
        if time <= best_time:
            best, best_time = Limits(count, at_once), time
    return best


def known_peaks(cache: Cache) -> dict[str, int]:
    """What calls took (bytes), by the name of their output."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        items = json.loads((cache.root / _TABLE).read_text()).items()
        return {str(name): int(value) for name, value in items}
    return {}


def learn_peaks(cache: Cache, folder: Path, outputs: Mapping[str, str]) -> None:
    """Add what the calls in ``folder`` took (``build.measure`` wrote it) to the table.

    ``outputs``: the output of each call and the name that the table has for it.
    """
    table = known_peaks(cache)
    before = dict(table)
    for output, name in outputs.items():
        with contextlib.suppress(OSError, ValueError):
            peak = int((folder / f"{output}.peak").read_text()) << 10
            table[name] = max(peak, table.get(name, 0))
    if table != before:
        write_atomic(cache.root / _TABLE, json.dumps(table, indent=0, sort_keys=True).encode())
