"""Runs gates case by case and keeps what is finished. Standard library only."""

from __future__ import annotations

import fnmatch
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opencoti_build.digest import content_key, sha256_file
from opencoti_build.errors import OpencotiError
from opencoti_build.gates.gate import Bench, Case, Gate, Measure, Options, Verdict
from opencoti_build.gates.registry import gate_file
from opencoti_build.gates.result import Result, command_line, replace_file, result_from_json
from opencoti_build.gates.subject import Subject
from opencoti_build.ui import Ui


@dataclass(frozen=True)
class Suite:
    """One run: what is measured, with which models (name to file and sha256), where it is kept.

    ``device`` names the machine of a run elsewhere. ``again`` measures what is kept already.
    """

    subjects: Mapping[str, Subject]
    models: Mapping[str, tuple[Path, str]]
    kept: Path
    tag: str
    ui: Ui
    options: Options = field(default_factory=Options)
    facts: Mapping[str, object] = field(default_factory=dict)
    device: str = ""
    machine: str = ""
    again: bool = False
    only: str = ""

    def cases(self, gate: Gate) -> list[Case]:
        """The cases of ``gate`` that were asked for: those whose name fits ``only``."""
        cases = gate.cases(self.options)
        return [
            case
            for case in cases
            if not self.only or self.only == case.name or fnmatch.fnmatchcase(case.name, self.only)
        ]

    def run(self, gates: Sequence[Gate]) -> list[Result]:
        """Measure every case of ``gates`` that is not kept. One case that cannot be measured is a
        failure of that case, not the end of the run."""
        results: list[Result] = []
        for gate in gates:
            cases = self.cases(gate)
            if not cases:
                continue
            with self.ui.task(f"gate {gate.name}", total=len(cases)) as task:
                for case in cases:
                    results.append(self._one(gate, case))
                    task.advance()
        return results

    def key(self, gate: Gate, case: Case) -> str:
        """The content key of a case: everything that can change its result."""
        inputs = {
            "gate": gate.name,
            "case": case.name,
            "params": dict(case.params),
            "model": self.models[case.model][1] if case.model in self.models else "",
            "subjects": {name: subject.key for name, subject in self.subjects.items()},
            "code": code_digest(gate),
            "options": [*self.options.on, "", *self.options.engine_args],
            "facts": {name: self.facts.get(name) for name in gate.facts},
            "device": self.device,
            "machine": self.machine if gate.measures_time else "",
        }
        return content_key(inputs)

    def _one(self, gate: Gate, case: Case) -> Result:
        path = self.kept / f"{self.key(gate, case)}.json"
        if not self.again and (found := _read(path)):
            return found
        extra: list[str] = []
        if self.options.full:
            extra.append("--full")
        if self.options.on:
            extra += ["--on", " ".join(self.options.on)]
        if self.options.engine_args:
            extra += ["--engine-args", " ".join(self.options.engine_args)]
        measure = self._measure(gate, case)
        result = Result(
            gate.name,
            case.model,
            case.name,
            measure.value,
            gate.limit,
            measure.verdict,
            measure.detail,
            command_line(gate.name, case.name, self.tag, extra),
            self.device,
        )
        if measure.verdict is Verdict.PASS:
            # Only what passed: a failure is worth measuring again, and so is bad luck.
            replace_file(path, json.dumps(result.to_json(), sort_keys=True).encode())
        return result

    def _measure(self, gate: Gate, case: Case) -> Measure:
        scratch = Path(tempfile.mkdtemp(prefix="opencoti-gate-"))
        models = {name: path for name, (path, _) in self.models.items()}
        bench = Bench(self.subjects, models, scratch, self.options, self.facts)
        try:
            return gate.run(bench, case)
        except OpencotiError as error:
            facts = "".join(f"; {key}: {value}" for key, value in error.context.items())
            return Measure(Verdict.FAIL, None, f"{error.message} [{error.reason}]{facts}")
        except (OSError, subprocess.SubprocessError) as error:
            return Measure(Verdict.FAIL, None, f"the engine cannot be run: {error}")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def code_digest(gate: Gate) -> str:
    """The digest of the gate's own file and of the shared code that measures."""
    folder = Path(__file__).parent
    files = [*sorted(folder.glob("*.py")), gate_file(gate)]
    return content_key({path.name: sha256_file(path) for path in files})


def gates_digest() -> str:
    """The digest of all code that measures, with the probe's."""
    folder = Path(__file__).parent
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return content_key({path.relative_to(folder).as_posix(): sha256_file(path) for path in files})


def _read(path: Path) -> Result | None:
    try:
        return result_from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None
