"""The release folder ``dist/<tag>``: variants, MANIFEST.json, SHA256SUMS, patches, BUILD_INFO."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from opencoti_build import __version__
from opencoti_build.build.pipeline import Pipeline
from opencoti_build.build.reference import Reference
from opencoti_build.digest import sha256_bytes
from opencoti_build.errors import PackError
from opencoti_build.gates.local import kept_results
from opencoti_build.pack.host import PackedEntry
from opencoti_build.pack.manifest import entry_row
from opencoti_build.pack.variant import (
    GpuLibrary,
    HostIdentity,
    Variant,
    host_identity,
    make_variant,
)
from opencoti_build.paths import Project, write_atomic
from opencoti_build.recipe import TargetRecipe, VariantRecipe
from opencoti_build.release.ape import ape_facts, make_ape_host
from opencoti_build.release.gpu import find_library, license_name, publish_library
from opencoti_build.release.host import Host, inner_facts, make_host, target_files
from opencoti_build.release.manifest import FORMAT, check, render
from opencoti_build.release.notes import build_info
from opencoti_build.toolchains.nvcc import find_nvcc
from opencoti_build.verify.gpu import code_sizes

MANIFEST = "MANIFEST.json"
SUMS = "SHA256SUMS"
NOTES = "BUILD_INFO.md"


@dataclass(frozen=True)
class Made:
    """A variant of the recipe, its file, and the library that it embeds with its own file."""

    recipe: VariantRecipe
    variant: Variant
    library: GpuLibrary | None
    published: Path | None


@dataclass(frozen=True)
class Release:
    """A finished release folder; ``manifest`` is the content of MANIFEST.json."""

    folder: Path
    manifest: dict[str, object]
    artifacts: tuple[Path, ...]


def make_release(pipeline: Pipeline | Reference, folder: Path) -> Release:
    """Build what is missing and write the release folder.

    Every file is replaced whole, SHA256SUMS last, so a reader that checks it never sees a mix.
    Raises BuildError and PackError; with the reference toolchain SourceError and SeriesError too.
    """
    if pipeline.context.cuda:
        for recipe, _ in pipeline.context.cuda_libraries:
            find_nvcc(recipe.target)  # It is needed last: say at once that it is missing.
    host = make_ape_host(pipeline) if isinstance(pipeline, Reference) else make_host(pipeline)
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        (folder / SUMS).unlink()
    identity = host_identity(host.path)
    variants = _make_variants(pipeline, host, identity, folder)
    manifest = outer_manifest(pipeline, host, identity, variants)
    check(manifest, pipeline.context.project.root)

    _write_patches(pipeline, folder / "patches")
    texts = {MANIFEST: render(manifest), NOTES: build_info(manifest)}
    for name, data in texts.items():
        write_atomic(folder / name, data)
    sums = {made.variant.path.name: made.variant.sha256 for made in variants}
    for made in variants:
        if made.published:
            name = made.published.relative_to(folder).as_posix()
            sums[name] = made.variant.entries[0].sha256
            for entry, text in made.library.licenses if made.library else ():
                beside = made.published.parent / license_name(entry)
                sums[beside.relative_to(folder).as_posix()] = sha256_bytes(text)
    sums |= {name: sha256_bytes(data) for name, data in texts.items()}
    sums |= {f"patches/{p.path.name}": p.sha256 for p in pipeline.workspace.series.patches}
    lines = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))
    write_atomic(folder / SUMS, lines.encode())
    return Release(folder, manifest, tuple(made.variant.path for made in variants))


def _make_variants(
    pipeline: Pipeline | Reference, host: Host, identity: HostIdentity, folder: Path
) -> list[Made]:
    """Write each variant whose name the host may have.

    Raises PackError ``pack-too-large-for-windows``, ``pack-no-variant``.
    """
    context = pipeline.context
    built = [engine.target for engine in host.engines]
    made = []
    for recipe in context.recipe.variants:
        name = context.recipe.file_name(context.tag, recipe)
        if not recipe.fits(built):
            wanted = ", ".join(map(str, recipe.targets))
            context.ui.info(f"{name} is left out: no engine for {wanted}")
            continue
        library = find_library(pipeline, recipe, name)
        variant = make_variant(host.path, folder / name, identity, library)
        published = None
        if library and recipe.component:
            release = f"{context.recipe.version}-{context.tag}"
            published = publish_library(library, recipe.component, folder, release)
        made.append(Made(recipe, variant, library, published))
    if not made:
        raise PackError(
            "pack-no-variant",
            "the recipe has no name for a file with these targets",
            context={"targets": ", ".join(map(str, built))},
        )
    return made


def outer_manifest(
    pipeline: Pipeline | Reference,
    host: Host,
    identity: HostIdentity,
    variants: Sequence[Made],
) -> dict[str, object]:
    """MANIFEST.json as plain data."""
    context = pipeline.context
    facts = ape_facts(pipeline) if isinstance(pipeline, Reference) else inner_facts(pipeline)
    commit, dirty = _commit(context.project)
    for made in variants:
        rows = cast("list[Mapping[str, str]]", facts["toolchains"])
        more = made.library.toolchains if made.library else ()
        facts["toolchains"] = [*rows, *(row for row in more if row not in rows)]
    abi = None if isinstance(pipeline, Reference) else pipeline.abi_digest
    targets = {str(recipe.target): _target(host, recipe, abi) for recipe in context.targets}
    return {
        "format": FORMAT,
        "engine": {
            "name": facts.pop("name"),
            "version": context.recipe.version,
            "tag": context.tag,
        },
        **facts,
        "builder": {"version": __version__, "commit": commit, "dirty": dirty},
        "host": {
            "sha256": host.sha256,
            "size": host.size,
            **({"kind": host.kind} if host.kind else {}),
            "prefix": {"size": identity.size, "sha256": identity.sha256},
        },
        "targets": targets,
        "gates": _gates(pipeline),
        "artifacts": [
            {
                "file": made.variant.path.name,
                "variant": made.recipe.suffix,
                "windows": made.recipe.windows,
                "gpu_library": _library(made),
                "sha256": made.variant.sha256,
                "size": made.variant.size,
                "host_size": identity.size,
                "host_sha256": identity.sha256,
                "entries": [_entry(entry) for entry in (*host.entries, *made.variant.entries)],
            }
            for made in variants
        ],
    }


def _library(made: Made) -> dict[str, object] | None:
    """The row of the embedded library: its entry, its own file, what it has code for."""
    if made.library is None or made.published is None:
        return None
    file = "/".join(made.published.parts[-3:])
    return {
        **_entry(made.variant.entries[0]),
        "file": file,
        "architectures": list(made.library.architectures),
        "architecture_sizes": code_sizes(made.library.path),
        "abi_digest": made.library.abi_digest,
    }


def _gates(pipeline: Pipeline | Reference) -> list[dict[str, object]]:
    """What the gates measured for exactly this build; they know no other toolchain's."""
    if isinstance(pipeline, Reference):
        return []
    return [result.to_json() for result in kept_results(pipeline.context, pipeline.workspace)]


def _target(host: Host, recipe: TargetRecipe, abi: str | None) -> dict[str, object]:
    """One target's row. What zig was told says nothing about a program of upstream's build."""
    ours = host.kind is None
    return {
        "minimum": str(recipe.minimum) if ours and recipe.minimum else None,
        "cpu_variants": list(recipe.cpu_variants) if ours else [],
        "abi_digest": abi,
        "files": [_entry(entry) for entry in target_files(host, recipe.target)],
    }


def _entry(entry: PackedEntry) -> dict[str, object]:
    return {**entry_row(entry), "offset": entry.offset}


def _write_patches(pipeline: Pipeline | Reference, folder: Path) -> None:
    patches = pipeline.workspace.series.patches
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.patch"):
        if path.name not in {patch.path.name for patch in patches}:
            path.unlink()
    for patch in patches:
        write_atomic(folder / patch.path.name, patch.data)


def _commit(project: Project) -> tuple[str, bool]:
    """The commit of this project and whether files differ from it; ``unknown`` outside git."""
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    env.pop("GIT_DIR", None)

    def git(*args: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(project.root), *args], env=env, capture_output=True, text=True
            )
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    top = git("rev-parse", "--show-toplevel")
    commit = git("rev-parse", "HEAD")
    if top is None or commit is None or Path(top).resolve() != project.root:
        return "unknown", False
    return commit, bool(git("status", "--porcelain", "--untracked-files=no"))
