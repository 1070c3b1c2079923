"""What was put into a long context is found again: passkeys and needles, by exact match."""

from __future__ import annotations

from opencoti_build.gates.gate import Bench, Case, Gate, Measure, Options, Verdict
from opencoti_build.gates.models import SMOLLM2
from opencoti_build.gates.retrieval_tasks import Task, is_right, needle, passkey
from opencoti_build.gates.server import Server, running
from opencoti_build.gates.subject import PATCHED

_TASKS = {"passkey": passkey, "needle": needle}
_DEPTHS = (0.05, 0.35, 0.65, 0.95)
_TOKENS_A_CHARACTER = 1 / 3.6
LIMIT = 0.9


def _cases(options: Options) -> list[Case]:
    lengths = (400, 1500, 4000) if options.full else (400, 1200)
    seeds = 3 if options.full else 1
    return [
        Case(
            f"{task}, {length} tokens" + (f", {' '.join(options.on)}" if options.on else ""),
            SMOLLM2,
            {"task": task, "tokens": length, "seeds": seeds, "on": list(options.on)},
        )
        for task in _TASKS
        for length in lengths
    ]


def _run(bench: Bench, case: Case) -> Measure:
    tokens, seeds = int(str(case.params["tokens"])), int(str(case.params["seeds"]))
    on = case.params["on"]
    assert isinstance(on, list)
    make = _TASKS[str(case.params["task"])]
    characters = round(tokens / _TOKENS_A_CHARACTER)
    tasks = [
        make(100 * seed + index, characters, depth)
        for seed in range(1, seeds + 1)
        for index, depth in enumerate(_DEPTHS)
    ]
    args = ["-m", str(bench.model(case)), "-c", str(tokens * 3 // 2 + 128), "-np", "1", "-t", "2"]
    args += [*map(str, on), *bench.options.engine_args]
    with running(bench.subjects[PATCHED], args, bench.scratch / "server.log") as server:
        wrong = [task for task in tasks if not _ask(server, task)]
    score = 1 - len(wrong) / len(tasks)
    verdict = Verdict.PASS if score >= LIMIT else Verdict.FAIL
    return Measure(verdict, score, f"{len(tasks) - len(wrong)} of {len(tasks)} right")


def _ask(server: Server, task: Task) -> bool:
    body = {"prompt": task.prompt, "n_predict": 12, "temperature": 0, "cache_prompt": False}
    status, answer = server.ask("/completion", body)
    return status == 200 and is_right(task, str(answer.get("content", "")))


GATE = Gate(
    name="retrieval",
    proves="what lies anywhere in the context is found again",
    inputs="passkeys and needles generated from a seed at several depths and context lengths",
    limit=f"score >= {LIMIT}",
    cases=_cases,
    run=_run,
)
