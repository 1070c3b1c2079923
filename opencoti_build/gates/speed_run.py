"""Two engines in one run, in turns: how fast one is beside the other. Standard library only."""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.errors import CheckError
from opencoti_build.gates.server import Server, running
from opencoti_build.gates.stats import Ratio, paired_ratio
from opencoti_build.gates.subject import Subject
from opencoti_build.gates.texts import prose

# Pairs before the servers are started anew: where a process happens to lie in memory is worth a
# percent, and must not decide.
_ROUND = 6
_MIN_PAIRS = 18
_NARROW = 0.004
_PROMPT_CHARACTERS = 800
_DECODED = 32


@dataclass(frozen=True)
class Contender:
    """An engine with the arguments of its server."""

    subject: Subject
    args: tuple[str, ...]


@dataclass(frozen=True)
class Load:
    """What is asked: the phase (``prompt`` or ``decode``), from how many slots at once."""

    phase: str
    slots: int


@dataclass(frozen=True)
class Speed:
    """The speed of the second contender as a share of the first one's.

    ``wall`` counts the time that passed, ``cpu`` the time that the server's threads ran (None
    where the system does not tell): it moves less when others use the machine.
    """

    wall: Ratio
    cpu: Ratio | None
    seconds: float

    def __str__(self) -> str:
        cpu = f", by CPU time {self.cpu}" if self.cpu else ""
        return f"by the clock {self.wall}{cpu}"


def measure_speed(
    first: Contender,
    second: Contender,
    load: Load,
    scratch: Path,
    max_seconds: float,
    limit: float | None = None,
) -> Speed:
    """Ask both in turns until the interval is narrow or decides about ``limit``, or until
    ``max_seconds`` are over (one round is always measured). Raises CheckError."""
    wall: list[tuple[float, float]] = []
    cpu: list[tuple[float, float]] = []
    start = time.monotonic()
    number = 0
    while True:
        with _both(first, second, scratch, swapped=number % 2 == 1) as servers:
            for server in servers:
                _one(server, load, -1)  # warm caches are not what is measured
            for index in range(_ROUND):
                order = servers if index % 2 == 0 else servers[::-1]
                taken = {
                    server.subject.name + str(server.port): _one(server, load, number)
                    for server in order
                }
                (wall_a, cpu_a), (wall_b, cpu_b) = (
                    taken[server.subject.name + str(server.port)] for server in servers
                )
                wall.append((wall_a, wall_b))
                if cpu_a > 0 and cpu_b > 0:
                    cpu.append((cpu_a, cpu_b))
        number += 1
        speed = Speed(
            paired_ratio(wall),
            paired_ratio(cpu) if len(cpu) == len(wall) else None,
            time.monotonic() - start,
        )
        if speed.seconds >= max_seconds or (len(wall) >= _MIN_PAIRS and _enough(speed, limit)):
            return speed


def decide(ratio: Ratio, limit: float) -> bool | None:
    """Whether the whole interval is on one side of ``limit``: True at or above, None: no."""
    if ratio.low >= limit:
        return True
    return False if ratio.high < limit else None


def _enough(speed: Speed, limit: float | None) -> bool:
    if limit is not None and decide(speed.wall, limit) is not None:
        return True
    return speed.wall.half_width <= _NARROW


@contextlib.contextmanager
def _both(
    first: Contender, second: Contender, scratch: Path, swapped: bool
) -> Iterator[list[Server]]:
    with contextlib.ExitStack() as stack:
        started: dict[int, Server] = {}
        for index in (1, 0) if swapped else (0, 1):
            contender = (first, second)[index]
            log = scratch / f"speed-{index}.log"
            started[index] = stack.enter_context(running(contender.subject, contender.args, log))
        yield [started[0], started[1]]


def _one(server: Server, load: Load, round_number: int) -> tuple[float, float]:
    """Seconds by the clock and on CPUs of one measurement."""
    bodies = [_body(load, slot, round_number) for slot in range(load.slots)]
    cpu = server.cpu_seconds()
    start = time.perf_counter()
    if len(bodies) == 1:
        answers = [server.ask("/completion", bodies[0])]
    else:
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(pool.map(lambda body: server.ask("/completion", body), bodies))
    wall = time.perf_counter() - start
    for status, answer in answers:
        if status != 200:
            raise CheckError("gate-request-failed", f"status {status}: {str(answer)[:200]}")
    return wall, server.cpu_seconds() - cpu


def _body(load: Load, slot: int, round_number: int) -> dict[str, object]:
    text = prose(1000 + 10 * (round_number + 1) + slot, 20)
    prompting = load.phase == "prompt"
    return {
        "prompt": text[:_PROMPT_CHARACTERS] if prompting else text[:24],
        "n_predict": 1 if prompting else _DECODED,
        "temperature": 0,
        "cache_prompt": False,
        "ignore_eos": True,
        "id_slot": slot,
    }


def server_args(model: Path, slots: int, threads: int, more: Sequence[str] = ()) -> tuple[str, ...]:
    """The arguments of a server whose speed is measured."""
    args = ["-m", str(model), "-c", str(512 * slots), "-np", str(slots)]
    return (*args, "-t", str(threads), "-tb", str(threads), "--no-webui", *more)
