"""The GPU libraries of a release: built where a compiler is, published beside the files."""

from __future__ import annotations

import shutil
from pathlib import Path

from opencoti_build.build.pipeline import Pipeline
from opencoti_build.digest import sha256_file
from opencoti_build.errors import BuildError
from opencoti_build.pack.variant import GpuLibrary
from opencoti_build.paths import atomic_path
from opencoti_build.recipe import VariantRecipe
from opencoti_build.toolchains.nvcc import find_nvcc


def find_library(pipeline: Pipeline, variant: VariantRecipe, name: str) -> GpuLibrary | None:
    """The library to embed in ``variant`` (published as ``name``), built if it has to be.

    None when the variant has none, the user wants none, or no CUDA compiler is installed; the
    last is said together with how to get one. Raises BuildError.
    """
    context = pipeline.context
    if variant.component is None or variant.embed is None:
        return None
    cuda = next((c for c in context.recipe.cuda if c.component == variant.component), None)
    target = next((t for t in context.targets if cuda and t.target is cuda.target), None)
    if cuda is None or target is None:
        context.ui.info(f"{name} is made without {variant.embed}: no {variant.component}")
        return None
    if not context.cuda:
        context.ui.info(f"{name} is made without {variant.embed}, as asked")
        return None
    try:
        find_nvcc()
    except BuildError as error:
        context.ui.info(f"{name} is made without {variant.embed}: {error.message} ({error.hint})")
        return None
    path = pipeline.cuda(target, cuda.architectures)
    return GpuLibrary(variant.embed, path, cuda.architectures)


def publish_library(library: GpuLibrary, component: str, folder: Path, release: str) -> Path:
    """Write ``dso/<release>/<name>-<CPU>.<suffix>`` below ``folder`` with the library's bytes."""
    cpu = component.split()[-1].split("-")[0]
    stem, _, suffix = library.name.rpartition(".")
    out = folder / "dso" / release / f"{stem}-{cpu}.{suffix}"
    if not (out.is_file() and sha256_file(out) == sha256_file(library.path)):
        with atomic_path(out, 0o755) as temporary:
            shutil.copyfile(library.path, temporary)
    return out
