"""A run of gates on this machine: builds both engines, fetches the models, keeps the results."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from opencoti_build.build.context import BuildContext
from opencoti_build.build.workspace import Workspace
from opencoti_build.digest import content_key
from opencoti_build.errors import UsageError
from opencoti_build.gates.gate import Gate, Options
from opencoti_build.gates.result import Result, Subjects, merge, read, render, replace_file
from opencoti_build.gates.subject import BASE, PATCHED
from opencoti_build.gates.subjects import SubjectBuilder
from opencoti_build.gates.suite import Suite, gates_digest
from opencoti_build.paths import locked
from opencoti_build.sources.fetch import ensure_file
from opencoti_build.sources.pins import find_pin, load_pins
from opencoti_build.toolchains.tools import tool


class LocalRun:
    """What one command needs: the suite and the identity of what it measures."""

    def __init__(self, context: BuildContext, gates: Sequence[Gate], options: Options) -> None:
        """Build and fetch what ``gates`` need. Raises SourceError, SeriesError and BuildError."""
        self.context, self.gates = context, gates
        self.builder = SubjectBuilder(context)
        tests = sorted({name for gate in gates for name in gate.tests})
        self.subjects = {name: self.builder.build(name, tests) for name in (BASE, PATCHED)}
        wanted = {case.model for gate in gates for case in gate.cases(options) if case.model}
        pins = {name: find_pin(load_pins(context.project.vendor), name) for name in sorted(wanted)}
        self.models = {
            name: (ensure_file(pin, context.fetching()), str(pin.sha256))
            for name, pin in pins.items()
        }
        self.options = options
        self.identity = identity(context, self.builder.workspace(PATCHED), self.builder.variant())

    def suite(self, *, again: bool = False, only: str = "") -> Suite:
        """The suite of this run."""
        return Suite(
            subjects=self.subjects,
            models=self.models,
            kept=self.context.cache.root / "gates" / "cases",
            tag=self.context.tag,
            ui=self.context.ui,
            options=self.options,
            facts={"artifacts": self._artifacts()},
            machine=machine_name(),
            again=again,
            only=only,
        )

    def keep(self, results: Sequence[Result]) -> None:
        """Put ``results`` beside those that this tree and tag have already."""
        keep_results(self.context, self.identity, results)

    def _artifacts(self) -> list[dict[str, object]]:
        """The files of ``dist/<tag>`` with their limits, if they are of exactly this tree."""
        import json

        folder = Path.cwd() / "dist" / self.context.tag
        limits = {item.suffix: item.max_size for item in self.context.recipe.variants}
        try:
            manifest = json.loads((folder / "MANIFEST.json").read_bytes())
            if manifest["workspace_tree"] != self.identity.workspace_tree:
                return []
            return [
                {
                    "file": item["file"],
                    "size": (folder / item["file"]).stat().st_size,
                    "max_size": limits.get(item["variant"]),
                }
                for item in manifest["artifacts"]
            ]
        except (OSError, ValueError, KeyError, TypeError):
            return []


def machine_name() -> str:
    """What tells machines apart whose times cannot be compared."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "")
    return f"{platform.node()} {model} {len([line for line in lines if 'processor' in line])}"


def identity(context: BuildContext, workspace: Workspace, cpu_variant: str) -> Subjects:
    """What the results of a run are about."""
    return Subjects(
        base_tree=workspace.base_tree,
        workspace_tree=workspace.tree,
        version=context.recipe.version,
        tag=context.tag,
        cpu_variant=cpu_variant,
        toolchain={name: tool(name).to_key() for name in ("cmake", "zig")},
        gates_digest=gates_digest(),
    )


def _kept_path(context: BuildContext, subjects: Subjects) -> Path:
    about = {name: value for name, value in asdict(subjects).items() if name != "cpu_variant"}
    return context.cache.root / "gates" / "results" / f"{content_key(about)}.json"


def keep_results(context: BuildContext, subjects: Subjects, results: Sequence[Result]) -> None:
    """Store ``results`` for exactly these trees, tools, tag and gates."""
    path = _kept_path(context, subjects)
    with locked(context.cache, "gate-results"):
        old = read(path)[1] if path.is_file() else []
        replace_file(path, render(subjects, merge(old, results)))


def kept_results(context: BuildContext, workspace: Workspace) -> list[Result]:
    """What was measured for exactly this tree, these tools, this tag and the gates as they are
    now; nothing that was measured for another one."""
    path = _kept_path(context, identity(context, workspace, ""))
    return read(path)[1] if path.is_file() else []


def merge_file(context: BuildContext, workspace: Workspace, path: Path) -> list[Result]:
    """Take in a gates.json that came from another machine.

    Raises UsageError ``gates-file-invalid``, or ``gates-file-stale`` when it is about other trees,
    tools, gates or another tag.
    """
    theirs, results = read(path)
    ours = identity(context, workspace, theirs.cpu_variant)
    if theirs != ours:
        a, b = asdict(theirs), asdict(ours)
        raise UsageError(
            "gates-file-stale",
            f"{path} is not about this tree",
            hint="make the folder again with 'gate run --device' and run it again",
            context={name: f"{a[name]}, here {b[name]}" for name in a if a[name] != b[name]},
        )
    keep_results(context, ours, results)
    return results
