"""The host step of the reference toolchain: upstream's program with META."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from opencoti_build.build.pipeline import EngineBuild
from opencoti_build.build.reference import Reference
from opencoti_build.build.steps import Step
from opencoti_build.digest import content_key, sha256_bytes
from opencoti_build.pack.ape import KIND, pack_ape
from opencoti_build.release.host import FACTS, HOST, Host, packer_digest, read_host
from opencoti_build.release.manifest import base_facts, patch_facts
from opencoti_build.toolchains.cosmocc import cosmocc_key

STEP_VERSION = 1


def ape_facts(reference: Reference) -> dict[str, object]:
    """What the file says about its own making (``META/manifest.json``). Raises as ``build``."""
    source = reference.workspace
    base = {**base_facts(source.base, source.base_tree), "patch_root": source.patch_root}
    return {
        "name": reference.context.recipe.name,
        "base": base,
        "patches": patch_facts(source.series.patches),
        "workspace_tree": reference.build().tree,
        "toolchains": [cosmocc_key(reference.compiler)],
    }


def make_ape_host(reference: Reference) -> Host:
    """Build what is missing and pack the host, or take it from the store.

    Raises SourceError, SeriesError, BuildError and PackError.
    """
    context, built = reference.context, reference.build()
    patches = reference.workspace.series.patches
    meta = [(f"META/patches/{patch.path.name}", patch.data) for patch in patches]
    texts = {path.name: path for path in built.licenses()}
    texts["opencoti.txt"] = context.project.root / "LICENSE"
    meta += [(f"META/LICENSES/{name}", texts[name].read_bytes()) for name in sorted(texts)]
    facts = ape_facts(reference)
    step = Step(
        "host cosmocc",
        {
            "step_version": STEP_VERSION,
            "packer": packer_digest(),
            "version": context.recipe.version,
            "tag": context.tag,
            "facts": facts,
            "meta": content_key({name: sha256_bytes(data) for name, data in meta}),
            "program": built.folder.name,
        },
    )

    def action(output: Path) -> None:
        packed = pack_ape(
            program=built.program,
            version=context.recipe.version,
            tag=context.tag,
            meta=meta,
            manifest=facts,
            out=output / HOST,
            ui=context.ui,
        )
        (output / FACTS).write_text(json.dumps(asdict(packed), default=str, sort_keys=True))

    folder = reference.store.run(step, action)
    engines = tuple(EngineBuild(item.target, built.folder, None) for item in context.targets)
    return read_host(folder, engines, KIND)
