"""The release folder ``dist/<tag>``: variants, MANIFEST.json, SHA256SUMS, patches, BUILD_INFO."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from opencoti_build import __version__
from opencoti_build.build.pipeline import Pipeline
from opencoti_build.digest import sha256_bytes, sha256_file
from opencoti_build.paths import Project, atomic_path, write_atomic
from opencoti_build.release.host import Host, inner_facts, make_host, target_files
from opencoti_build.release.manifest import FORMAT, check, render
from opencoti_build.release.notes import build_info

MANIFEST = "MANIFEST.json"
SUMS = "SHA256SUMS"
NOTES = "BUILD_INFO.md"


@dataclass(frozen=True)
class Release:
    """A finished release folder; ``manifest`` is the content of MANIFEST.json."""

    folder: Path
    manifest: dict[str, object]
    artifacts: tuple[Path, ...]


def make_release(pipeline: Pipeline, folder: Path) -> Release:
    """Build what is missing and write the release folder.

    Every file is replaced whole, SHA256SUMS last, so a reader that checks it never sees a mix.
    Raises BuildError and PackError.
    """
    host = make_host(pipeline)
    context = pipeline.context
    names = [context.recipe.file_name(context.tag, item) for item in context.recipe.variants]
    manifest = outer_manifest(pipeline, host, names)
    check(manifest, context.project.root)

    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        (folder / SUMS).unlink()
    for name in names:
        _place(host, folder / name)
    _write_patches(pipeline, folder / "patches")
    texts = {MANIFEST: render(manifest), NOTES: build_info(manifest)}
    for name, data in texts.items():
        write_atomic(folder / name, data)
    sums = dict.fromkeys(names, host.sha256)
    sums |= {name: sha256_bytes(data) for name, data in texts.items()}
    sums |= {f"patches/{p.path.name}": p.sha256 for p in pipeline.workspace.series.patches}
    lines = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))
    write_atomic(folder / SUMS, lines.encode())
    return Release(folder, manifest, tuple(folder / name for name in names))


def outer_manifest(pipeline: Pipeline, host: Host, names: list[str]) -> dict[str, object]:
    """MANIFEST.json as plain data."""
    context = pipeline.context
    facts = inner_facts(pipeline)
    commit, dirty = _commit(context.project)
    targets = {
        str(recipe.target): {
            "glibc": recipe.glibc,
            "cpu_variants": list(recipe.cpu_variants),
            "files": [_entry(entry) for entry in target_files(host, recipe.target)],
        }
        for recipe in context.targets
    }
    return {
        "format": FORMAT,
        "engine": {
            "name": facts.pop("name"),
            "version": context.recipe.version,
            "tag": context.tag,
        },
        **facts,
        "builder": {"version": __version__, "commit": commit, "dirty": dirty},
        "host": {"sha256": host.sha256, "size": host.size},
        "targets": targets,
        "artifacts": [
            {
                "file": name,
                "variant": variant.suffix,
                "sha256": host.sha256,
                "size": host.size,
                "entries": [_entry(entry) for entry in host.entries],
            }
            for name, variant in zip(names, context.recipe.variants, strict=True)
        ],
    }


def _entry(entry: object) -> dict[str, object]:
    row = asdict(entry)  # type: ignore[call-overload]
    row["mode"] = f"{row['mode']:o}"
    return dict(row)


def _place(host: Host, target: Path) -> None:
    """Copy the host to its published name unless the very same bytes are there."""
    with contextlib.suppress(OSError):
        if target.stat().st_size == host.size and sha256_file(target) == host.sha256:
            return
    with atomic_path(target, 0o755) as temporary:
        shutil.copyfile(host.path, temporary)


def _write_patches(pipeline: Pipeline, folder: Path) -> None:
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
