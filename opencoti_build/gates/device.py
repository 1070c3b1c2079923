"""The run of gates in a packed folder, on another machine. Standard library only."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opencoti_build.digest import sha256_file
from opencoti_build.errors import OpencotiError, UsageError
from opencoti_build.gates.gate import Options, Verdict
from opencoti_build.gates.registry import load_gates, select_gates
from opencoti_build.gates.result import GATES_FILE, Subjects, render, replace_file, table
from opencoti_build.gates.subject import Subject
from opencoti_build.gates.suite import Suite
from opencoti_build.interrupt import heed_sigterm
from opencoti_build.ui import Ui

PLAN = "plan.json"
RUNNER = '''\
"""Runs the gates of this folder: python3 run.py [--engine-args "-ngl 99"] [--help]"""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from opencoti_build.gates.device import main

sys.exit(main(Path(__file__).resolve().parent, sys.argv[1:]))
'''


def main(folder: Path, argv: Sequence[str]) -> int:
    """Run what the folder's plan says and write gates.json; 1 when a case failed, 2 when the
    folder is not good."""
    parser = argparse.ArgumentParser(prog="run.py", description="Run the gates of this folder.")
    parser.add_argument("--engine-args", help="arguments for both engines [-ngl 99]")
    parser.add_argument("--device", help="the name of this machine in the results")
    parser.add_argument("--again", action="store_true", help="measure what is finished already")
    parser.add_argument("--out", type=Path, default=folder / GATES_FILE, help="[gates.json here]")
    args = parser.parse_args(argv)
    heed_sigterm()
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="ascii"))
        suite = make_suite(folder, plan, args.engine_args, args.device or device_name(), args.again)
        results = suite.run(select_gates(load_gates(), plan["gates"]))
    except OpencotiError as error:
        print(f"error: {error.message} [{error.reason}]", file=sys.stderr)
        return 2
    replace_file(args.out, render(Subjects(**plan["identity"]), results))
    print(table(results))
    return 1 if any(result.verdict is Verdict.FAIL for result in results) else 0


def make_suite(
    folder: Path, plan: dict[str, Any], engine_args: str | None, device: str, again: bool
) -> Suite:
    """The suite that ``plan`` describes. Raises UsageError ``gate-folder-damaged``."""
    options = {**plan["options"], "on": tuple(plan["options"]["on"])}
    given = tuple(options["engine_args"])
    options["engine_args"] = tuple(engine_args.split()) if engine_args else given or ("-ngl", "99")
    models = {}
    for name, (file, sha256) in plan["models"].items():
        path = folder / "models" / file
        if not path.is_file() or sha256_file(path) != sha256:
            raise UsageError("gate-folder-damaged", f"{path} is not the model {name}")
        models[name] = (path, sha256)
    return Suite(
        subjects={name: _subject(folder, name, facts) for name, facts in plan["subjects"].items()},
        models=models,
        kept=folder / "finished",
        tag=plan["identity"]["tag"],
        ui=Ui(bars=False),
        options=Options(**options),
        device=device,
        machine=platform.node(),
        again=again,
        only=plan["only"],
    )


def _subject(folder: Path, name: str, facts: dict[str, Any]) -> Subject:
    home = folder / name
    tests, source = (home / "tests", home / "source") if facts["tests"] else (None, None)
    server = tuple(facts["server"])
    return Subject(name, home / "engine", server, facts["key"], facts["tree"], source, tests)


def device_name() -> str:
    """The GPU that the system names, else the processor's kind."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.splitlines()[0].strip()
    except (OSError, subprocess.TimeoutExpired):
        pass
    return platform.machine()
