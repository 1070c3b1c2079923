"""The GPU libraries of a release: built when asked for, published beside the files."""

from __future__ import annotations

import shutil
from pathlib import Path

from opencoti_build.build.pipeline import Pipeline
from opencoti_build.build.reference import Reference
from opencoti_build.digest import sha256_file
from opencoti_build.pack.variant import GpuLibrary
from opencoti_build.paths import atomic_path, write_atomic
from opencoti_build.recipe import VariantRecipe
from opencoti_build.release.licenses import gpu_license_entries


def find_library(
    pipeline: Pipeline | Reference, variant: VariantRecipe, name: str
) -> GpuLibrary | None:
    """The library to embed in ``variant`` (published as ``name``), built if it has to be.

    None when this run has none, or the variant; a library that cannot be built yet is named.
    Raises BuildError.
    """
    context = pipeline.context
    if isinstance(pipeline, Reference) or not context.cuda:
        return None
    if variant.component is None or variant.embed is None:
        return None
    for target, cuda in context.cuda_libraries:
        if cuda.component == variant.component:
            nvcc = pipeline.nvcc(target.target)
            # Before compiling, which takes hours: without them nothing is released.
            licenses = gpu_license_entries(nvcc, context.project.vendor, context.fetching())
            path = pipeline.cuda(target, cuda.architectures)
            return GpuLibrary(
                name=variant.embed,
                path=path,
                architectures=cuda.architectures,
                abi_digest=pipeline.abi_digest,
                licenses=tuple(licenses),
                toolchains=tuple(nvcc.facts()),
            )
    context.ui.info(f"{name} is made without {variant.embed}: no {variant.component}")
    return None


def publish_library(library: GpuLibrary, component: str, folder: Path, release: str) -> Path:
    """Write ``dso/<release>/<name>-<CPU>.<suffix>`` below ``folder`` with the library's bytes.

    Its licence texts are in ``LICENSES/`` beside it.
    """
    cpu = component.split()[-1].split("-")[0]
    stem, _, suffix = library.name.rpartition(".")
    out = folder / "dso" / release / f"{stem}-{cpu}.{suffix}"
    if not (out.is_file() and sha256_file(out) == sha256_file(library.path)):
        with atomic_path(out, 0o755) as temporary:
            shutil.copyfile(library.path, temporary)
    for name, text in library.licenses:
        write_atomic(out.parent / license_name(name), text)
    return out


def license_name(entry: str) -> str:
    """The name beside a published library of a licence text, from its entry's name."""
    return entry.removeprefix("META/")
