"""Builders of tar and zip archives, tame and hostile, and of git repositories."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

# A small tree with everything that git can tell apart.
TREE: dict[str, bytes] = {
    "README.md": b"hello\n",
    "run.sh": b"#!/bin/sh\nexit 0\n",
    "src/main.c": b"int main(void) { return 0; }\r\n",
    "src/empty": b"",
    "src-2/x": b"\x00\xff" * 50,
}


def tar_entry(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
) -> tuple[tarfile.TarInfo, bytes]:
    """One entry for ``make_tar``."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname, info.mode = len(data), kind, link, mode
    return info, data


def make_tar(*entries: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> bytes:
    """A tar archive of the entries, in order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:  # type: ignore[call-overload]
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def tree_tar(
    prefix: str = "pkg-1.0/", files: Mapping[str, bytes] = TREE, mode: str = "w:gz"
) -> bytes:
    """A tar archive of a tree; ``*.sh`` is executable."""
    entries = [
        tar_entry(prefix + name, data, mode=0o755 if name.endswith(".sh") else 0o644)
        for name, data in files.items()
    ]
    return make_tar(*entries, mode=mode)


def tree_zip(prefix: str = "pkg-1.0/", files: Mapping[str, bytes] = TREE) -> bytes:
    """A zip archive of a tree with Unix modes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(
                zip_info(prefix + name, 0o755 if name.endswith(".sh") else 0o644), data
            )
    return out.getvalue()


def zip_info(name: str, mode: int = 0o644, kind: int = 0o100000) -> zipfile.ZipInfo:
    """The header of a zip entry with a Unix mode."""
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (kind | mode) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def write_tree(folder: Path, files: Mapping[str, bytes] = TREE) -> None:
    """The tree as files on disk."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)


def git(folder: Path, *arguments: str) -> str:
    """Run git in ``folder`` with a fixed identity and without the user's configuration."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }
    done = subprocess.run(
        ["git", "-c", "core.autocrlf=false", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def make_repository(folder: Path, files: Mapping[str, bytes] = TREE) -> tuple[str, str]:
    """A repository with one commit of the tree; its (commit id, tree id)."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    write_tree(folder, files)
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-qm", "one")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    return git(folder, "rev-parse", "HEAD"), git(folder, "rev-parse", "HEAD^{tree}")
