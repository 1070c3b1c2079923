"""A folder with everything that a run of gates needs on a machine without this project.

It holds both engines, the models, the code of the gates and a runner: Python 3.10 and nothing else.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import opencoti_build
from opencoti_build.errors import UsageError
from opencoti_build.gates.device import PLAN, RUNNER
from opencoti_build.gates.local import LocalRun
from opencoti_build.gates.subject import Subject
from opencoti_build.gates.suite import Suite

# What the runner imports, in the package. None of it needs more than the standard library.
_CODE = ("__init__.py", "errors.py", "digest.py", "interrupt.py", "ui.py")
_FROM_SOURCE = ("models/templates",)


def pack_folder(run: LocalRun, suite: Suite, folder: Path, libraries: Sequence[Path]) -> None:
    """Write the folder; ``libraries`` are put beside the modules of both engines.

    Raises UsageError ``gate-folder-exists`` when there is something that is not such a folder.
    """
    if folder.exists() and any(folder.iterdir()):
        if not (folder / PLAN).is_file():
            raise UsageError(
                "gate-folder-exists",
                f"{folder} is not empty and not a folder of gates",
                hint="name a new folder",
            )
        shutil.rmtree(folder)
    _copy_code(folder)
    for name, subject in suite.subjects.items():
        _copy_subject(subject, folder / name, libraries)
    (folder / "models").mkdir()
    for path, _ in suite.models.values():
        shutil.copyfile(path, folder / "models" / path.name)
    plan = {
        "identity": asdict(run.identity),
        "gates": [gate.name for gate in run.gates],
        "only": suite.only,
        "options": asdict(suite.options),
        "subjects": {
            name: {
                "server": list(subject.server),
                "key": subject.key,
                "tree": subject.tree,
                "tests": subject.tests is not None,
            }
            for name, subject in suite.subjects.items()
        },
        "models": {name: [path.name, sha] for name, (path, sha) in suite.models.items()},
    }
    # Written last: a folder with a plan is whole.
    (folder / PLAN).write_text(json.dumps(plan, indent=2, sort_keys=True), encoding="ascii")


def _copy_code(folder: Path) -> None:
    package = Path(str(opencoti_build.__file__)).parent
    target = folder / "opencoti_build"
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(package / "gates", target / "gates", ignore=ignored)
    for name in _CODE:
        shutil.copyfile(package / name, target / name)
    (folder / "run.py").write_text(RUNNER, encoding="ascii")


def _copy_subject(subject: Subject, folder: Path, libraries: Sequence[Path]) -> None:
    ignored = shutil.ignore_patterns("step.json")
    shutil.copytree(subject.folder, folder / "engine", ignore=ignored)
    for library in libraries:
        shutil.copyfile(library, folder / "engine" / f"lib{library.name.removeprefix('lib')}")
    if subject.tests is not None and subject.source is not None:
        shutil.copytree(subject.tests, folder / "tests", ignore=ignored)
        for name in _FROM_SOURCE:
            shutil.copytree(subject.source / name, folder / "source" / name)
