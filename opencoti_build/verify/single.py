"""Verifies one file of a release: form, digests, contents, programs, release."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opencoti_build.errors import PackError
from opencoti_build.pack.host import mapped
from opencoti_build.pack.zipend import Source
from opencoti_build.pack.zipreader import ZipLayout
from opencoti_build.ui import Ui, Unit
from opencoti_build.verify import ape, contents, engine, gpu, hosts, library, outer, structure
from opencoti_build.verify.report import Finding, Report, failed, from_error, skipped
from opencoti_build.verify.scan import Scan, scan


def verify_file(path: Path, manifest: Mapping[str, Any] | None, ui: Ui) -> Report:
    """Check the single file ``path`` without running it; ``manifest`` is the release's.

    A GPU library that is published beside the single files is checked as one. Every problem
    becomes a finding. Raises OSError when the file cannot be read.
    """
    with path.open("rb", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        findings: list[Finding] = []
        alone = False
        with ui.task(f"read {path.name}", size, Unit.BYTES) as task:
            try:
                with mapped(stream) as data:
                    layout, form = structure.check_zip(data)
                    alone = layout is None and library.is_library(data)
                    if alone:
                        findings += library.check_published(bytes(data), manifest, path.name)
                    else:
                        findings.append(form)
                    inner = hosts.read_variant(data, layout) if layout else hosts.NO_VARIANT
                    marks = hosts.marks(inner, manifest, path.name)
                    result = scan(stream, layout.entries if layout else (), task, marks)
                    if layout is not None:
                        findings += _inside(data, layout, result, inner, manifest)
                        if all(finding.ok for finding in findings):
                            findings += gpu.check_gpu(data, layout, inner.rows, manifest, path.name)
            except PackError as error:  # empty file
                layout, result = None, scan(stream, ())
                findings.append(from_error("zip", error))
        if manifest is None:
            findings.append(
                skipped("release", "no-release-manifest", "no MANIFEST.json: only the file's own "
                        "word for its digests")
            )  # fmt: skip
        elif alone:
            listed = library.find_library(manifest, path.name)
            findings.append(outer.check_bytes(listed, path.name, result))
        else:
            findings += outer.check_outer(manifest, path.name, layout, result)
            findings += hosts.check_release_host(manifest, path.name, result)
        if os.fstat(stream.fileno()).st_size != result.size or size != result.size:
            findings.append(failed("file", "file-changed", "the file changed while it was read"))
    return Report(tuple(findings), result.sha256, result.size)


def _inside(
    data: Source,
    layout: ZipLayout,
    result: Scan,
    inner: hosts.VariantFacts,
    release: Mapping[str, Any] | None,
) -> Iterator[Finding]:
    """All checks that need the layout. Programs are examined only when their bytes are right."""
    crc = structure.check_crc(layout, result)
    yield crc
    yield structure.check_alignment(layout)
    manifest, finding = contents.read_manifest(data, layout)
    foreign = ape.is_ape(manifest)
    if foreign:
        yield ape.check_ape_places(layout)
    else:
        yield contents.check_places(layout, structure.has_windows_image(data))
    yield finding
    entries = None
    if manifest is not None:
        entries = contents.check_entries(manifest, layout, result, inner.rows)
        yield entries
        yield contents.check_patches(manifest, layout, result)
        yield structure.check_start(data, layout, manifest)
    if inner is not hosts.NO_VARIANT:
        yield hosts.check_variant(inner, layout, result)
    version = manifest["version"] if manifest else None
    examine = crc.ok and entries is not None and entries.ok
    for target in contents.engine_targets(layout):
        index, finding = contents.check_index(data, layout, result, target, manifest)
        yield finding
        version = version or (index.version if index else None)
        if index is not None and examine:
            yield from engine.check_engine(data, layout, target, index, release)
            yield from engine.check_launcher(data, layout, target)
        else:
            yield skipped(f"engine {target.value}", "engine-not-examined",
                          "its bytes are not what the file says they are")  # fmt: skip
    if manifest is not None and foreign:
        name = f"opencoti-{manifest['version']}-{manifest['tag']}"
        yield from ape.check_ape(data, layout, name)
    else:
        yield from structure.check_prologue(data, layout, result, version)
