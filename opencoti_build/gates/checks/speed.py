"""With no feature on, nothing is slower: patched against base in one run, in turns."""

from __future__ import annotations

from opencoti_build.gates.gate import Bench, Case, Gate, Measure, Options, Verdict
from opencoti_build.gates.models import GEMMA3, SMOLLM2
from opencoti_build.gates.speed_run import (
    Contender,
    Load,
    Speed,
    decide,
    measure_speed,
    server_args,
)
from opencoti_build.gates.subject import BASE, PATCHED

LIMIT = 0.99


def _cases(options: Options) -> list[Case]:
    # One thread: CPU time then tells the same as the clock, without what others do.
    rows = [(SMOLLM2, phase, slots, 1) for slots in (1, 4) for phase in ("prompt", "decode")]
    rows += [(SMOLLM2, "decode", 1, 2), (GEMMA3, "prompt", 1, 1), (GEMMA3, "decode", 1, 1)]
    return [
        Case(
            f"{phase}, {slots} slot{'s' if slots > 1 else ''}, {threads} "
            f"thread{'s' if threads > 1 else ''}",
            model,
            {"phase": phase, "slots": slots, "threads": threads},
        )
        for model, phase, slots, threads in rows
    ]


def _run(bench: Bench, case: Case) -> Measure:
    slots, threads = int(str(case.params["slots"])), int(str(case.params["threads"]))
    args = server_args(bench.model(case), slots, threads, bench.options.engine_args)
    speed = measure_speed(
        Contender(bench.subjects[BASE], args),
        Contender(bench.subjects[PATCHED], args),
        Load(str(case.params["phase"]), slots),
        bench.scratch,
        bench.options.max_seconds,
        LIMIT,
    )
    verdict, value, how = judge(speed, threads)
    if verdict is None:
        return Measure(Verdict.INCONCLUSIVE, value, f"{how}: {speed}")
    return Measure(Verdict.PASS if verdict else Verdict.FAIL, value, f"{how}: {speed}")


def judge(speed: Speed, threads: int) -> tuple[bool | None, float, str]:
    """Whether the speed is at the limit or above, the value that says so, and how it was told."""
    wall = decide(speed.wall, LIMIT)
    # Threads that wait for each other spin: with several, CPU time says nothing about speed.
    cpu = decide(speed.cpu, LIMIT) if threads == 1 and speed.cpu is not None else None
    if wall is False and cpu is True:
        return None, speed.wall.value, "the clock and CPU time disagree"
    if wall is not None:
        return wall, speed.wall.value, "the clock decides"
    if cpu is not None and speed.cpu is not None:
        return cpu, speed.cpu.value, "CPU time decides"
    return None, speed.wall.value, "too noisy to tell"


GATE = Gate(
    name="speed",
    proves="with no feature on, prompts and decoding are as fast as the base's",
    inputs="the same requests to both servers in turns, from 1 and 4 slots",
    limit=f"share of the base's speed >= {LIMIT}",
    cases=_cases,
    run=_run,
    measures_time=True,
)
