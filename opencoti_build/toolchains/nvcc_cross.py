"""The CUDA compiler for a target, with the static runtime of another CPU fetched if need be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opencoti_build.errors import BuildError
from opencoti_build.sources.context import FetchContext
from opencoti_build.sources.fetch import ensure_file
from opencoti_build.sources.pins import find_pin, load_pins
from opencoti_build.targets import Target
from opencoti_build.toolchains.nvcc import NvccToolchain, find_nvcc

_RUNTIMES = {Target.AARCH64_LINUX: "nvidia-cuda-runtime-sbsa"}


def cuda_toolchain(target: Target, vendor: Path, context: FetchContext) -> NvccToolchain:
    """nvcc for ``target``. Raises BuildError as ``find_nvcc``, and SourceError."""
    found = find_nvcc(target)
    if target in _RUNTIMES:
        try:
            found.runtime  # noqa: B018
        except BuildError:
            pin = find_pin(load_pins(vendor), _RUNTIMES[target])
            found = replace(found, other_runtime=ensure_file(pin, context))
    return found
