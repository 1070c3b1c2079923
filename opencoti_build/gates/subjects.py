"""What gates measure: the unpatched base and the patched tree, built in the same way.

Each has a workspace and a build folder of its own, ``gates/<name>/`` in the cache, laid out alike
and like those of the engine: the compiler's arguments are then the same text, and ccache gives one
build's objects to the other wherever the sources are the same.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.build.abi import abi_digest
from opencoti_build.build.context import BuildContext
from opencoti_build.build.engine import ENGINE, EngineBuilder, EngineSpec
from opencoti_build.build.steps import Step, StepStore
from opencoti_build.build.workspace import Workspace, prepare_workspace
from opencoti_build.digest import content_key, sha256_file
from opencoti_build.errors import UsageError
from opencoti_build.gates.cpu import best_variant, build_switches, machine_flags, variant_switches
from opencoti_build.gates.subject import BASE, PATCHED, PROBE, Subject
from opencoti_build.paths import Cache
from opencoti_build.recipe import TargetRecipe
from opencoti_build.targets import FACTS
from opencoti_build.toolchains.zig import zig_toolchain

# Raise it when this module changes what it puts out for the same inputs.
STEP_VERSION = 2

SERVER = "llama-server"
_PROBE_SOURCE = Path(__file__).parent / "probe"
_SERVERS = {BASE: (SERVER,), PATCHED: (ENGINE, "--server")}


@dataclass(frozen=True)
class SubjectSpec(EngineSpec):
    """An engine build with one CPU module, the probe and, when asked for, upstream's tests."""

    subject: str = BASE
    switches: tuple[str, ...] = ()
    goals: tuple[str, ...] = ()
    probe: str = ""

    def cmake_options(self) -> dict[str, str]:
        """As the engine's, but one CPU module. The base ignores what only patches know."""
        options = super().cmake_options()
        del options["OPENCOTI_CPU_VARIANTS"]
        return {
            **options,
            # hooks.cmake turns it on for ggml alone, as patch 0006 does.
            "BUILD_SHARED_LIBS": "OFF",
            "GGML_CPU_ALL_VARIANTS": "OFF",
            "LLAMA_BUILD_TESTS": "ON",
            **build_switches(self.switches),
        }

    def step(self) -> Step:
        """The build of this subject, with everything that can change it."""
        own = {"goals": list(self.goals), "probe": self.probe, "subject_version": STEP_VERSION}
        inputs = {**super().step().inputs, **own}
        return Step(f"gate {self.subject}", inputs)


class SubjectBuilder:
    """Makes subjects for one run."""

    def __init__(self, context: BuildContext) -> None:
        self.context = context
        self.store = StepStore(context.cache)
        self.recipe = machine_target(context)
        self._workspaces: dict[str, Workspace] = {}

    def build(self, name: str, tests: Sequence[str] = ()) -> Subject:
        """The subject ``name`` with upstream's ``tests``, built or from the store.

        Raises SourceError, SeriesError and BuildError.
        """
        workspace, server = self.workspace(name), _SERVERS[name]
        spec = self.spec(name, (server[0], PROBE))
        folder = self._build(spec, workspace)
        tested = None
        if tests:
            # A step of its own: the engine's identity does not depend on which tests are wanted.
            tested = self._build(self.spec(name, tuple(sorted(tests))), workspace)
        key = spec.step().key
        return Subject(name, folder, server, key, workspace.tree, workspace.path, tested)

    def _build(self, spec: SubjectSpec, workspace: Workspace) -> Path:
        side = self._side(spec.subject)

        def action(output: Path) -> None:
            builder = EngineBuilder(spec, workspace.path, side, self.context.ui)
            builder.paths["CMAKE_PROJECT_INCLUDE"] = str(_copy_probe(side) / "hooks.cmake")
            builder.build(output, self.context.jobs, workspace.owner, spec.goals)
            workspace.check_unchanged()

        return self.store.run(spec.step(), action)

    def workspace(self, name: str) -> Workspace:
        """The tree of the subject ``name``. Raises SourceError and SeriesError."""
        if name not in self._workspaces:
            path = self._side(name).workspaces / self.context.recipe.base
            self._workspaces[name] = prepare_workspace(self.context, path, patched=name != BASE)
        return self._workspaces[name]

    def variant(self) -> str:
        """The recipe's CPU variant that is measured. Raises BuildError ``gate-no-cpu-variant``."""
        switches = variant_switches(self.workspace(BASE).path)
        return best_variant(self.recipe.cpu_variants, switches, machine_flags())

    def spec(self, name: str, goals: tuple[str, ...]) -> SubjectSpec:
        """What is built for the subject ``name``."""
        recipe, workspace, variant = self.recipe, self.workspace(name), self.variant()
        return SubjectSpec(
            target=recipe.target,
            tree=workspace.tree,
            base_tree=workspace.base_tree,
            version=self.context.recipe.version,
            tag=self.context.tag,
            toolchain=zig_toolchain(recipe.target, recipe.minimum_version),
            cpu_variants=(variant,),
            abi_digest=abi_digest(workspace.path),
            subject=name,
            switches=variant_switches(self.workspace(BASE).path)[variant],
            goals=goals,
            probe=probe_digest(),
        )

    def _side(self, name: str) -> Cache:
        """The subject's own cache folder; objects and compiled C libraries are everyone's."""
        main = self.context.cache
        side = Cache(main.root / "gates" / name)
        for link, target in (
            (side.ccache, main.ccache),
            (side.toolchains / "zig-cache", main.toolchains / "zig-cache"),
        ):
            if not link.is_symlink():
                target.mkdir(parents=True, exist_ok=True)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(target)
        return side


def machine_target(context: BuildContext) -> TargetRecipe:
    """The recipe's target that this machine runs. Raises UsageError ``gate-machine``."""
    here = f"{platform.system()} {platform.machine()}"
    for recipe in context.targets:
        if here in FACTS[recipe.target].uname and recipe.cpu_variants:
            return recipe
    raise UsageError(
        "gate-machine",
        f"the recipe builds nothing that runs here ({here})",
        context={"targets": ", ".join(str(item.target) for item in context.targets)},
    )


def probe_digest() -> str:
    """The digest of the probe's sources."""
    return content_key({path.name: sha256_file(path) for path in sorted(_PROBE_SOURCE.iterdir())})


def _copy_probe(side: Cache) -> Path:
    """The probe's sources inside the side cache, so that its names are the same everywhere."""
    folder = side.root / "probe"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {path.name: path.read_bytes() for path in _PROBE_SOURCE.iterdir()}
    for old in folder.iterdir():
        if old.name not in wanted:
            old.unlink()
    for name, data in wanted.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:
            path.write_bytes(data)
    return folder
