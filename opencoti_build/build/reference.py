"""The reference toolchain's pipeline: upstream llamafile's own build of the patched tree.

Upstream's tree, its own set-up, the series in its copy of the base, its make. What comes out is
one program for all systems. A change of any input starts from an empty folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.build.context import BuildContext
from opencoti_build.build.steps import Step, StepState, StepStore
from opencoti_build.build.upstream_make import UpstreamMake
from opencoti_build.build.upstream_sources import add_sources
from opencoti_build.build.upstream_tree import UpstreamTree
from opencoti_build.errors import BugError, BuildError, SeriesError
from opencoti_build.paths import locked
from opencoti_build.series.plan import Plan
from opencoti_build.series.series import Series, load_series
from opencoti_build.series.subtree import apply_below
from opencoti_build.sources.fetch import ensure_tree
from opencoti_build.sources.pins import Pin, find_pin, load_pins
from opencoti_build.toolchains.cosmocc import PIN, cosmocc_key, ensure_cosmocc

# Raise it when this module changes what it puts out for the same inputs.
STEP_VERSION = 1
OUTPUT = Path("o/llamafile/llamafile")
PROGRAM = "llamafile"
_TREE = "tree"
_LICENSES = "licenses"


@dataclass(frozen=True)
class ReferenceSource:
    """What is built: upstream's pinned tree, and the series for its folder ``patch_root``."""

    base: Pin
    base_tree: str
    patch_root: str
    series: Series


@dataclass(frozen=True)
class ReferenceBuild:
    """A finished build: the program, the patched tree it is made of, and licence texts."""

    folder: Path

    @property
    def program(self) -> Path:
        return self.folder / PROGRAM

    @property
    def tree(self) -> str:
        return (self.folder / _TREE).read_text(encoding="ascii")

    def licenses(self) -> list[Path]:
        return sorted((self.folder / _LICENSES).iterdir())


class Reference:
    """The steps of one run with the reference toolchain."""

    def __init__(self, context: BuildContext, workspace: ReferenceSource, compiler: Pin) -> None:
        self.context, self.workspace, self.compiler = context, workspace, compiler
        self.store = StepStore(context.cache)

    @classmethod
    def prepare(cls, context: BuildContext) -> Reference:
        """Fetch upstream's tree. Raises SourceError, SeriesError, UsageError ``unknown-pin``."""
        recipe = context.recipe
        if recipe.reference is None:
            raise BugError("the recipe was not checked for the reference toolchain")
        pins = load_pins(context.project.vendor)
        source, compiler = find_pin(pins, recipe.reference.source), find_pin(pins, PIN)
        tree = ensure_tree(source, context.fetching())
        # Upstream's copy may be another version: three-way needs the files the series was made on.
        ensure_tree(find_pin(pins, recipe.base), context.fetching())
        series = load_series(context.project.patches)
        root = recipe.reference.patch_root
        return cls(context, ReferenceSource(source, tree, root, series), compiler)

    def step(self) -> Step:
        """The build with everything that can change its output."""
        return Step(
            "program cosmocc",
            {
                "step_version": STEP_VERSION,
                "tree": self.workspace.base_tree,
                "patch_root": self.workspace.patch_root,
                "series": self.workspace.series.digest,
                "toolchain": cosmocc_key(self.compiler),
            },
        )

    def states(self) -> list[StepState]:
        """The step with whether it is stored and, if not, which input changed."""
        return [self.store.state(self.step())]

    def build(self) -> ReferenceBuild:
        """Build the program, or take it from the store.

        Raises SourceError; SeriesError ``patch-root-missing`` and ``series-does-not-apply``;
        BuildError ``toolchain-incomplete``, ``make-target-missing``, ``setup-failed``,
        ``build-failed`` and ``output-missing``.
        """
        return ReferenceBuild(self.store.run(self.step(), self._build))

    def _build(self, output: Path) -> None:
        context, source = self.context, self.workspace
        toolchain = ensure_cosmocc(self.compiler, context.fetching())
        folder = context.cache.builds / f"{source.base.name}-cosmocc"
        upstream = UpstreamTree(folder / source.base.name, context.cache.objects)
        with locked(context.cache, f"build-{folder.name}"):
            with context.ui.task(f"check out {source.base.name}"):
                upstream.create(source.base_tree)
            toolchain.place(upstream.root)
            make = UpstreamMake(toolchain, upstream.root, folder, context.ui, context.offline)
            make.setup()
            add_sources(upstream.root, source.patch_root, source.series)
            git = upstream.planning_git()
            before = upstream.snapshot()
            tree, plan = apply_below(git, source.series, before, source.patch_root, context.ui)
            upstream.move(tree)
            make.build(context.jobs, source.base_tree[:9], self._owner(upstream, plan))
            self._collect(upstream.root, toolchain.folder, output)
        (output / _TREE).write_text(tree, encoding="ascii")

    def _owner(self, upstream: UpstreamTree, plan: Plan) -> Callable[[str, int], str | None]:
        """Finds the patch that wrote a line of the checkout."""
        names = {result.commit: result.name for result in plan.commits}
        root = f"{self.workspace.patch_root}/"

        def owner(file: str, line: int) -> str | None:
            where = ("-L", f"{line},{line}", plan.top, "--", file.removeprefix(root))
            try:
                blamed = upstream.git.text("blame", "--porcelain", *where)
            except SeriesError:
                return None  # a generated file, or one outside of the folder
            return names.get(blamed.split(" ", 1)[0]) if file.startswith(root) else None

        return owner

    def _collect(self, root: Path, toolchain: Path, output: Path) -> None:
        made = root / OUTPUT
        if not made.is_file():
            raise BuildError(
                "output-missing",
                f"upstream's build went well but made no {OUTPUT}",
                context={"folder": root},
            )
        shutil.copyfile(made, output / PROGRAM)
        (output / PROGRAM).chmod(0o755)
        (output / _LICENSES).mkdir()
        folders = {
            self.workspace.base.name: root,
            Path(self.workspace.patch_root).name: root / self.workspace.patch_root,
            PIN: toolchain,
        }
        for name, folder in folders.items():
            for path in sorted(folder.glob("LICENSE*")):
                extra = path.name.removeprefix("LICENSE").lstrip(".-")
                target = "-".join([name, extra]) if extra else name
                shutil.copyfile(path, output / _LICENSES / f"{target.removesuffix('.txt')}.txt")
