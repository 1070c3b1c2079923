"""Upstream's own tests come out the same in both trees."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from opencoti_build.gates.gate import Bench, Case, Gate, Measure, Options, Verdict
from opencoti_build.gates.models import SMOLLM2
from opencoti_build.gates.probe_run import clean_environment
from opencoti_build.gates.subject import BASE, PATCHED, Subject

_TIMEOUT = 1500


@dataclass(frozen=True)
class UpstreamTest:
    """A test program: its arguments, whether it wants a model, and whether it takes long."""

    program: str
    args: tuple[str, ...] = ()
    model: bool = False
    slow: bool = False


# The tests of quantization functions, barriers and rope cannot be built for an engine that loads
# its CPU code (upstream leaves them out); test-backend-ops goes through the same functions.
TESTS = (
    UpstreamTest("test-grammar-parser"),
    UpstreamTest("test-grammar-integration"),
    UpstreamTest("test-llama-grammar"),
    UpstreamTest("test-sampling"),
    UpstreamTest("test-json-partial"),
    UpstreamTest("test-chat"),
    UpstreamTest("test-gguf", ("1",)),  # a seed: its own would be another one each time
    UpstreamTest("test-save-load-state", model=True),
    UpstreamTest("test-state-restore-fragmented", model=True),
    UpstreamTest("test-backend-ops", ("test", "-b", "CPU", "-o", "SOFT_MAX")),
    UpstreamTest("test-backend-ops", ("test", "-b", "CPU", "-o", "FLASH_ATTN_EXT"), slow=True),
    UpstreamTest("test-backend-ops", ("test", "-b", "CPU", "-o", "MUL_MAT"), slow=True),
)


def _cases(options: Options) -> list[Case]:
    return [
        Case(
            " ".join((test.program, *test.args)),
            SMOLLM2 if test.model else "",
            {"program": test.program, "args": list(test.args), "model": test.model},
        )
        for test in TESTS
        if options.full or not test.slow
    ]


def _status(bench: Bench, subject: Subject, case: Case) -> int:
    assert subject.tests is not None
    args = case.params["args"]
    assert isinstance(args, list)
    command = [str(subject.tests / str(case.params["program"])), *map(str, args)]
    if case.params["model"]:
        command += ["-m", str(bench.model(case)), "-t", "2"]
    with (bench.scratch / f"{subject.name}.log").open("wb") as log:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=subject.source,
            env=clean_environment(),
            timeout=_TIMEOUT,
        ).returncode


def _run(bench: Bench, case: Case) -> Measure:
    if any(subject.tests is None for subject in bench.subjects.values()):
        return Measure(Verdict.SKIPPED, None, "the tests were not built")
    theirs, ours = (_status(bench, bench.subjects[name], case) for name in (BASE, PATCHED))
    if ours == theirs == 0:
        return Measure(Verdict.PASS, 0, "passes in both")
    if ours == theirs:
        return Measure(Verdict.SKIPPED, ours, f"exit status {ours} in the base too")
    tail = (bench.scratch / f"{PATCHED}.log").read_text(errors="replace").splitlines()[-5:]
    words = f"exit status {ours}, {theirs} in the base; last lines: {' / '.join(tail)}"
    return Measure(Verdict.FAIL, ours, words)


GATE = Gate(
    name="off-identity-tests",
    proves="upstream's own tests come out as in the base",
    inputs="test programs of the tree, built in both (--full: also the slow ones)",
    limit="the exit status of the base",
    cases=_cases,
    run=_run,
    tests=tuple(dict.fromkeys(test.program for test in TESTS)),
)
