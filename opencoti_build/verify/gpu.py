"""Checks of the GPU libraries in a file: the program's form, and which cards it has code for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opencoti_build.pack.zipend import Source
from opencoti_build.pack.zipreader import ZipLayout
from opencoti_build.targets import Target
from opencoti_build.verify import elf, fatbin
from opencoti_build.verify.outer import find_artifact
from opencoti_build.verify.report import Finding, failed, passed, skipped

CUDA_LIBRARY = "ggml-cuda.so"
# What the engine has beside the library when it loads it.
BESIDE = frozenset({"libggml-base.so.0"})
_MACHINES = {name: target for target, name in elf.MACHINES.items()}


def check_gpu(
    data: Source,
    layout: ZipLayout,
    rows: Sequence[Mapping[str, Any]],
    manifest: Mapping[str, Any] | None,
    name: str,
) -> Iterator[Finding]:
    """Check the CUDA library inside a file, if there is one.

    ``rows`` are those of ``META/variant.json``, ``manifest`` is the release's, ``name`` the
    file's.
    """
    entry = layout.find(CUDA_LIBRARY)
    if entry is None:
        return
    body = data[entry.data_offset : entry.end]
    listed = [row for row in rows if row["name"] == CUDA_LIBRARY]
    artifact = find_artifact(manifest, name) if manifest else None
    if artifact is not None and artifact.get("gpu_library"):
        listed.append(artifact["gpu_library"])
    yield from check_library(body, listed)


def check_library(body: bytes, rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """The form of a CUDA library, and its architectures against ``rows`` that name some."""
    check = "gpu library"
    facts = elf.read_elf(body)
    if facts is None or facts.machine not in _MACHINES:
        yield failed(check, "elf-malformed", "the GPU library is no Linux library, or damaged")
        return
    problems = [
        failed(check, reason, f"{CUDA_LIBRARY} {message}", value=value)
        for reason, message, value in elf.elf_problems(facts, body, _target(facts), BESIDE)
    ]
    yield from problems or [passed(check, f"ELF, {facts.machine}, {len(body)} bytes")]
    yield _architectures(body, rows)


def code_sizes(path: Path) -> dict[str, int]:
    """The bytes of device code of each architecture in a library; empty where there is none."""
    section = fatbin.read_section(path.read_bytes())
    return fatbin.read_sizes(section) if section is not None else {}


def _target(facts: elf.ElfFacts) -> Target:
    return _MACHINES[facts.machine]


def _architectures(body: bytes, rows: Sequence[Mapping[str, Any]]) -> Finding:
    check = "gpu architectures"
    section = fatbin.read_section(body)
    if section is None:
        return failed(check, "gpu-code-missing", f"{CUDA_LIBRARY} has no {fatbin.SECTION}")
    try:
        containers = fatbin.read_containers(section)
    except fatbin.FatbinError as error:
        return failed(check, "gpu-code-malformed", f"the device code is not understood: {error}")
    actual = fatbin.promised(containers)
    if partly := fatbin.incomplete(containers):
        return failed(check, "gpu-code-incomplete", "some source files have no code for an "
                      "architecture", architectures=" ".join(partly))  # fmt: skip
    if not actual:
        return failed(check, "gpu-code-missing", f"{CUDA_LIBRARY} has device code for no card")
    stated = [row["architectures"] for row in rows if "architectures" in row]
    for names in stated:
        if sorted(map(str, names)) != sorted(actual):
            return failed(check, "gpu-architectures-mismatch", "the library has code for other "
                          "architectures than the manifest says",
                          expected=" ".join(map(str, names)), actual=" ".join(actual))  # fmt: skip
    text = f"{' '.join(actual)}, {len(containers)} source files"
    return passed(check, text) if stated else skipped(check, "gpu-architectures-unstated", text)
