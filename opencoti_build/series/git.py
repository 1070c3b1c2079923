"""Every git call of the series goes through here: no user setting can change a result.

The environment is cleaned, the repository is always named explicitly (nothing is discovered by
walking up), and every setting that could change bytes is fixed on the command line.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.errors import SeriesError

IDENTITY_NAME = "opencoti-build"
IDENTITY_EMAIL = "series@opencoti-build.invalid"

OLDEST = (2, 34)  # three-way on an index alone; reset over unknown files

# Highest precedence of all attribute files: whatever .gitattributes the tree has, bytes stay.
ATTRIBUTES = "* -text !eol -ident -filter !working-tree-encoding !whitespace !diff !merge\n"

_INSTALL = "install git 2.34 or newer with your system's package manager"
_KEPT = ("PATH", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH")
_SETTINGS = (
    f"core.attributesFile={os.devnull}",
    "core.autocrlf=false",
    "core.eol=lf",
    f"core.excludesFile={os.devnull}",
    "core.filemode=true",
    "core.fsmonitor=false",
    "core.fsync=none",
    f"core.hooksPath={os.devnull}",
    "core.ignoreCase=false",
    "core.quotePath=false",
    "core.safecrlf=false",
    "core.sparseCheckout=false",
    "core.splitIndex=false",
    "core.untrackedCache=false",
    "fastimport.unpackLimit=100",
    "apply.ignoreWhitespace=no",
    "apply.whitespace=nowarn",
    "checkout.workers=0",
    "commit.gpgSign=false",
    "diff.indentHeuristic=true",
    "diff.noprefix=false",
    "diff.suppressBlankEmpty=false",
    "gc.auto=0",
    "i18n.commitEncoding=UTF-8",
    "merge.conflictStyle=merge",
    "merge.renames=false",
    "rerere.enabled=false",
    "status.showUntrackedFiles=all",
)


@dataclass(frozen=True)
class GitResult:
    """What one git call gave."""

    code: int
    out: bytes
    err: str


@dataclass(frozen=True)
class Git:
    """One repository, named explicitly; ``index`` and ``work_tree`` only where they are used."""

    git_dir: Path
    work_tree: Path | None = None
    index: Path | None = None

    def run(
        self,
        *args: str,
        data: bytes = b"",
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> GitResult:
        """Run ``git ARGS`` with ``data`` on stdin.

        Raises SeriesError ``git-missing``, ``git-too-old``, and ``git-failed`` when ``check``
        and the exit status is not 0.
        """
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        command = [find_git(), "--no-pager", *settings, *args]
        done = subprocess.run(
            command,
            input=data,
            capture_output=True,
            cwd=self.work_tree or self.git_dir,
            env={**self._environment(), **(env or {})},
            check=False,
        )
        result = GitResult(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))
        if check and result.code != 0:
            raise _failed(args, result)
        return result

    def text(self, *args: str, data: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        """The output of ``git ARGS`` as text, stripped. Raises as ``run`` does."""
        return self.run(*args, data=data, env=env).out.decode("utf-8", "replace").strip()

    def fields(self, *args: str, data: bytes = b"") -> list[str]:
        """The NUL-separated output of ``git ARGS``. Raises as ``run`` does."""
        out = self.run(*args, data=data).out.decode("utf-8", "surrogateescape")
        return out.split("\0")[:-1] if out else []

    def _environment(self) -> dict[str, str]:
        kept = {key: os.environ[key] for key in _KEPT if key in os.environ}
        fixed = {
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_CEILING_DIRECTORIES": str(self.git_dir.parent),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_DIR": str(self.git_dir),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_COMMITTER_NAME": IDENTITY_NAME,
            "GIT_COMMITTER_EMAIL": IDENTITY_EMAIL,
            "HOME": str(self.git_dir),
            "LC_ALL": "C",
            "TZ": "UTC",
        }
        if self.work_tree is not None:
            fixed["GIT_WORK_TREE"] = str(self.work_tree)
        if self.index is not None:
            fixed["GIT_INDEX_FILE"] = str(self.index)
        return {**kept, **fixed}


def find_git() -> str:
    """The git program. Raises SeriesError ``git-missing`` or ``git-too-old``."""
    program = shutil.which("git")
    if program is None:
        raise SeriesError(
            "git-missing",
            "git is not on the PATH",
            hint=_INSTALL,
        )
    if (version := _version(program)) < OLDEST:
        raise SeriesError(
            "git-too-old",
            f"{program} is git {'.'.join(map(str, version))}",
            hint=_INSTALL,
        )
    return program


def write_repository(git_dir: Path, objects: Path) -> None:
    """Make an empty repository that borrows all objects of the bare store ``objects``.

    Written by hand, so that no template, hook or default of the user gets in.
    """
    for folder in ("objects/info", "objects/pack", "refs/heads", "info"):
        (git_dir / folder).mkdir(parents=True, exist_ok=True)
    (git_dir / "HEAD").write_text("ref: refs/heads/series\n", encoding="ascii")
    (git_dir / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
        "\tautocrlf = false\n[gc]\n\tauto = 0\n",
        encoding="ascii",
    )
    (git_dir / "info/attributes").write_text(ATTRIBUTES, encoding="ascii")
    borrow_objects(git_dir, objects)


def borrow_objects(git_dir: Path, objects: Path) -> None:
    """Point the repository at the bare store ``objects``; written only when it changes."""
    target = git_dir / "objects/info/alternates"
    line = f"{(objects / 'objects').resolve().as_posix()}\n".encode()
    if not target.is_file() or target.read_bytes() != line:
        target.write_bytes(line)


@functools.lru_cache
def _version(program: str) -> tuple[int, ...]:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, found.groups())) if found else (0,)


def _failed(args: Sequence[str], result: GitResult) -> SeriesError:
    lines = [line for line in result.err.splitlines() if line.strip()]
    return SeriesError(
        "git-failed",
        f"git {args[0]} failed: {lines[-1] if lines else f'exit status {result.code}'}",
        context={"command": "git " + " ".join(args), "status": result.code},
    )
