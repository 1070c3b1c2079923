"""The host step: the single file, from the engines and launchers of a pipeline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from opencoti_build.build.pipeline import EngineBuild, Pipeline
from opencoti_build.build.steps import Step
from opencoti_build.digest import content_key, sha256_bytes, sha256_file
from opencoti_build.pack.deflate import encoder
from opencoti_build.pack.host import EngineFile, PackedEntry, pack_host
from opencoti_build.release.licenses import license_entries
from opencoti_build.release.manifest import base_facts, patch_facts
from opencoti_build.targets import Target
from opencoti_build.toolchains.tools import PACKAGES, tool

STEP_VERSION = 1
HOST = "host"
FACTS = "packed.json"


@dataclass(frozen=True)
class Host:
    """The host executable and what is in it; ``kind`` if its start is not of our making."""

    path: Path
    sha256: str
    size: int
    entries: tuple[PackedEntry, ...]
    engines: tuple[EngineBuild, ...]
    kind: str | None = None


def inner_facts(pipeline: Pipeline) -> dict[str, object]:
    """What the single file says about its own making (``META/manifest.json``)."""
    workspace = pipeline.workspace
    return {
        "name": pipeline.context.recipe.name,
        "base": base_facts(workspace.base, workspace.base_tree),
        "patches": patch_facts(workspace.series.patches),
        "workspace_tree": workspace.tree,
        "toolchains": toolchain_facts(),
    }


def toolchain_facts() -> list[dict[str, str]]:
    """The tools whose code or choices reach the engine."""
    return [tool(name).to_key() for name in sorted(PACKAGES) if name in ("zig", "cmake")]


def make_host(pipeline: Pipeline) -> Host:
    """Build what is missing and pack the host, or take it from the store.

    Raises BuildError and PackError.
    """
    context = pipeline.context
    engines = pipeline.engines()
    launchers = {engine.target: pipeline.launcher(engine.target) for engine in engines}
    meta = [
        (f"META/patches/{patch.path.name}", patch.data)
        for patch in pipeline.workspace.series.patches
    ]
    meta += license_entries(pipeline.workspace.path, context.project.root)
    facts = inner_facts(pipeline)
    step = Step(
        "host",
        {
            "step_version": STEP_VERSION,
            "packer": packer_digest(),
            "encoder": encoder(),
            "version": context.recipe.version,
            "tag": context.tag,
            "facts": facts,
            "meta": content_key({name: sha256_bytes(data) for name, data in meta}),
            "engines": {str(item.target): item.folder.name for item in engines},
            "launchers": {str(item): path.parent.name for item, path in launchers.items()},
        },
    )

    def action(output: Path) -> None:
        packed = pack_host(
            version=context.recipe.version,
            tag=context.tag,
            launchers=launchers,
            engines={item.target: _engine_files(item) for item in engines},
            meta=meta,
            manifest=facts,
            out=output / HOST,
            ui=context.ui,
        )
        (output / FACTS).write_text(json.dumps(asdict(packed), default=str, sort_keys=True))

    folder = pipeline.store.run(step, action)
    return read_host(folder, tuple(engines))


def packer_digest() -> str:
    """The digest of the code that lays out the file."""
    import opencoti_build.pack as package

    folder = Path(str(package.__file__)).parent
    return content_key(
        {path.name: sha256_file(path) for path in folder.iterdir() if path.suffix in (".py", ".in")}
    )


def _engine_files(engine: EngineBuild) -> list[EngineFile]:
    return [EngineFile(path.name, path, 0o755) for path in engine.files()]


def read_host(folder: Path, engines: tuple[EngineBuild, ...], kind: str | None = None) -> Host:
    """The host that a finished step left in ``folder``."""
    facts: Mapping[str, object] = json.loads((folder / FACTS).read_text())
    rows = facts["entries"]
    assert isinstance(rows, list)
    return Host(
        folder / HOST,
        str(facts["sha256"]),
        int(str(facts["size"])),
        tuple(PackedEntry(**row) for row in rows),
        engines,
        kind,
    )


def target_files(host: Host, target: Target) -> list[PackedEntry]:
    """The engine entries of one target."""
    prefix = f"engine/{target}/"
    return [entry for entry in host.entries if entry.name.startswith(prefix)]
