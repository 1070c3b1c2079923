"""Checks of the GPU libraries in a file: form, which cards they have code for, for which engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opencoti_build.pack.zipend import Source
from opencoti_build.pack.zipreader import ZipLayout
from opencoti_build.targets import Target
from opencoti_build.verify import abi, elf, fatbin, gpu_note
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
    yield from check_library(body, listed, abi.engine_digests(data, layout))


def check_library(
    body: bytes, rows: Sequence[Mapping[str, Any]], engines: Mapping[Target, str | None]
) -> Iterator[Finding]:
    """The form of a CUDA library, and what it says about itself.

    Its architectures and its ABI digest are compared with ``rows`` that name some, and the digest
    with that of the engine for the same target (``engines``).
    """
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
    yield _note(body, rows, engines.get(_target(facts)))


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


def _note(body: bytes, rows: Sequence[Mapping[str, Any]], engine: str | None) -> Finding:
    """The library's note against its device code, the engine beside it and the manifests."""
    check = "gpu abi"
    try:
        note = gpu_note.read_note(body)
    except gpu_note.NoteError as error:
        return failed(check, "gpu-note-malformed", f"{CUDA_LIBRARY} says nothing useful: {error}")
    if note is None:
        return failed(check, "gpu-note-missing", f"{CUDA_LIBRARY} does not say which engine it is "
                      "for; no engine will load it")  # fmt: skip
    actual = _promised(body)
    if actual and sorted(note.architectures) != sorted(actual):
        return failed(check, "gpu-note-mismatch", "the library has code for other architectures "
                      "than it says", says=" ".join(note.architectures),
                      actual=" ".join(actual))  # fmt: skip
    for row in rows:
        if row.get("abi_digest", note.abi) != note.abi:
            return failed(check, "gpu-abi-mismatch", "the library is for another engine than the "
                          "manifest says", expected=row["abi_digest"], actual=note.abi)  # fmt: skip
    if engine is None:
        return skipped(check, "gpu-abi-unproved", f"{note.abi}; no engine here to compare it with")
    if engine != note.abi:
        return failed(check, "gpu-abi-mismatch", "the engine in the file will refuse the library",
                      expected=engine, actual=note.abi)  # fmt: skip
    return passed(check, f"{note.abi}, CUDA {note.driver // 1000}.{note.driver % 1000 // 10}")


def _promised(body: bytes) -> tuple[str, ...]:
    """What the device code is for; nothing when it cannot be read, which is said elsewhere."""
    section = fatbin.read_section(body)
    try:
        return fatbin.promised(fatbin.read_containers(section)) if section is not None else ()
    except fatbin.FatbinError:
        return ()
