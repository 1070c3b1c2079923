"""--help of the patched server is the base's, but for the flags that patches add."""

from __future__ import annotations

import re
import subprocess

from opencoti_build.gates.gate import Bench, Case, Gate, Measure, Options, Verdict
from opencoti_build.gates.probe_run import clean_environment
from opencoti_build.gates.subject import BASE, PATCHED, Subject

_FLAG = re.compile(r"^-")
_LONG = re.compile(r"--[a-z0-9][a-z0-9-]*")


def _cases(options: Options) -> list[Case]:
    return [Case("server --help")]


def _help(bench: Bench, subject: Subject) -> str:
    done = subprocess.run(
        [*subject.server_command(), "--help"],
        capture_output=True,
        text=True,
        env=clean_environment(),
        cwd=bench.scratch,
        timeout=120,
    )
    return done.stdout if done.returncode == 0 else f"exit status {done.returncode}\n{done.stderr}"


def blocks(text: str) -> list[str]:
    """The text in blocks, each a flag with its description or the lines between them."""
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if _FLAG.match(line) or not line.strip():
            found.append([])
        found[-1].append(line.rstrip())
    return ["\n".join(block) for block in found if any(block)]


def compare(base: str, patched: str) -> tuple[list[str], list[str]]:
    """What is wrong, and which flags were added."""
    ours, theirs = blocks(patched), blocks(base)
    problems, added = [], []
    position = 0
    for block in ours:
        if position < len(theirs) and block == theirs[position]:
            position += 1
        elif _FLAG.match(block):
            added += _LONG.findall(block.splitlines()[0]) or [block.split()[0]]
        else:
            problems.append(f"not in the base: {block.splitlines()[0]}")
    if position < len(theirs):
        problems.append(f"changed or missing: {theirs[position].splitlines()[0]}")
    return problems, added


def _run(bench: Bench, case: Case) -> Measure:
    base, patched = (_help(bench, bench.subjects[name]) for name in (BASE, PATCHED))
    problems, added = compare(base, patched)
    if problems:
        return Measure(Verdict.FAIL, len(problems), "; ".join(problems[:5]))
    return Measure(Verdict.PASS, 0, f"added: {', '.join(added) or 'none'}")


GATE = Gate(
    name="off-identity-help",
    proves="--help is the base's, but for the flags that patches add",
    inputs="the server's --help",
    limit="0 other changes",
    cases=_cases,
    run=_run,
)
