"""A checkout of upstream's tree in which upstream's own set-up finds what it looks for.

The set-up asks git about the submodules. The pin has them as plain folders of one tree, so each
gets a repository with one commit, laid out as ``git submodule`` would.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from opencoti_build.series.git import IDENTITY_EMAIL, IDENTITY_NAME, Git, write_repository
from opencoti_build.series.plan import BASE_DATE

# Not part of the tree: what make writes, and the toolchain.
_EXCLUDED = (":(exclude)o", ":(exclude).cosmocc")


class UpstreamTree:
    """The folder ``root`` with a repository that borrows from the object store ``objects``."""

    def __init__(self, root: Path, objects: Path) -> None:
        self.root, self.objects = root, objects
        self.git = Git(root / ".git", work_tree=root)

    def create(self, tree: str) -> None:
        """Check ``tree`` out into an empty folder. Raises SeriesError ``git-failed``."""
        if self.root.exists():
            shutil.rmtree(self.root)
        self.root.mkdir(parents=True)
        _repository(self.git.git_dir, self.root, self.objects, tree)
        self.git.run("read-tree", "--reset", "-u", tree)
        for path in self._submodules(tree):
            git_dir = self.git.git_dir / "modules" / path
            _repository(git_dir, self.root / path, self.objects, f"{tree}:{path}")
            up = os.path.relpath(git_dir, self.root / path)
            (self.root / path / ".git").write_text(f"gitdir: {up}\n")

    def snapshot(self) -> str:
        """Store the files as they are now, ignored ones too; the tree id.

        The submodules' repositories end here. Raises SeriesError ``git-failed``.
        """
        for path in [*self.root.rglob(".git")]:
            if path != self.git.git_dir and self.git.git_dir not in path.parents:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.git.run("add", "-A", "-f", "--", ".", *_EXCLUDED)
        return self.git.text("write-tree")

    def move(self, tree: str) -> None:
        """Write the files that differ in ``tree``. Raises SeriesError ``git-failed``."""
        self.git.run("read-tree", "--reset", "-u", tree)

    def planning_git(self) -> Git:
        """The repository with an index of its own, for planning."""
        return Git(self.git.git_dir, index=self.git.git_dir / "opencoti-index")

    def _submodules(self, tree: str) -> list[str]:
        """The paths in ``.gitmodules`` that the tree has files for."""
        blob = f"{tree}:.gitmodules"
        query = ("config", "--blob", blob, "-z", "--get-regexp", r"^submodule\..*\.path$")
        found = self.git.run(*query, check=False)
        if found.code != 0:
            return []
        rows = found.out.decode("utf-8", "surrogateescape").split("\0")[:-1]
        paths = [row.partition("\n")[2] for row in rows]
        return [path for path in paths if (self.root / path).is_dir()]


def _repository(git_dir: Path, root: Path, objects: Path, tree: str) -> None:
    """A repository of ``root`` with one commit of ``tree``, the same id on every machine."""
    write_repository(git_dir, objects)
    git = Git(git_dir, work_tree=root)
    author = {
        "GIT_AUTHOR_NAME": IDENTITY_NAME,
        "GIT_AUTHOR_EMAIL": IDENTITY_EMAIL,
        "GIT_AUTHOR_DATE": BASE_DATE,
        "GIT_COMMITTER_DATE": BASE_DATE,
    }
    tree = git.text("rev-parse", tree)
    git.run("update-ref", "HEAD", git.text("commit-tree", tree, "-m", "base", env=author))
    git.run("read-tree", tree)
