"""Builders for series tests: a bare store with a small base, and patches made by edits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from opencoti_build.series.export import render_commit
from opencoti_build.series.git import Git
from opencoti_build.series.mail import Mail, render_mail

TRAILERS = {
    "Feature": "kv-turbo",
    "Gate": "flag --kv-turbo",
    "Class": "capacity",
    "Depends": "",
    "Upstream": "none",
}
DATE = datetime(2024, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
AUTHOR = "Ada Example <ada@example.org>"


def make_store(folder: Path, files: Mapping[str, bytes]) -> tuple[Path, str]:
    """A bare object store with one tree of ``files``; returns it and the tree id."""
    objects = folder / "objects.git"
    for name in ("objects/info", "refs"):
        (objects / name).mkdir(parents=True)
    (objects / "HEAD").write_text("ref: refs/heads/none\n")
    (objects / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
    return objects, write_tree(objects, None, files, folder / "index")


def write_tree(
    objects: Path, tree: str | None, edits: Mapping[str, bytes | None], index: Path
) -> str:
    """The tree id of ``tree`` (None: empty) with ``edits``; None as content removes a file."""
    git = Git(objects, index=index)
    git.run("read-tree", *([tree] if tree else ["--empty"]))
    lines = []
    for path, data in edits.items():
        if data is None:
            lines.append(f"0 {'0' * 40}\t{path}")
        else:
            blob = git.text("hash-object", "-w", "--stdin", data=data)
            mode = "100755" if path.endswith(".sh") else "100644"
            lines.append(f"{mode} {blob}\t{path}")
    git.run("update-index", "--index-info", data="".join(f"{line}\n" for line in lines).encode())
    return git.text("write-tree")


class PatchMaker:
    """Makes a series by editing: each patch is the difference that its edits make."""

    def __init__(self, objects: Path, tree: str, folder: Path) -> None:
        self.objects, self.tree, self.folder = objects, tree, folder
        self.git = Git(objects, index=objects / "maker-index")
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, path: str) -> bytes:
        """A file as it is after the patches so far."""
        return self.git.run("cat-file", "blob", f"{self.tree}:{path}").out

    def add(
        self,
        number: int,
        slug: str,
        edits: Mapping[str, bytes | None],
        *,
        trailers: Mapping[str, str] | None = None,
        author: str = AUTHOR,
        subject: str | None = None,
        why: str = "Because the engine needs it.",
        base: str | None = None,
    ) -> Path:
        """Write one patch file (made on ``base``, default: on the patches so far)."""
        before = base or self.tree
        after = write_tree(self.objects, before, edits, self.objects / "maker-index")
        body = "\n".join(
            f"{key}: {value}".rstrip() for key, value in {**TRAILERS, **(trailers or {})}.items()
        )
        ids = []
        for tree, parent in ((before, []), (after, ["-p"])):
            env = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@example.org"}
            parents = [*parent, ids[0]] if parent else []
            ids.append(self.git.text("commit-tree", tree, *parents, "-m", "x", env=env))
        diff = render_commit(self.git, ids[1])[1].diff
        title = subject or slug.replace("-", " ").capitalize()
        mail = Mail(author, DATE, title, f"{why}\n\n{body}", diff)
        path = self.folder / f"{number:04d}-{slug}.patch"
        path.write_bytes(render_mail(mail))
        if base is None:
            self.tree = after
        return path


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Time, mode and content of every file outside .git."""
    return {
        path.relative_to(root).as_posix(): (
            path.lstat().st_mtime_ns,
            path.lstat().st_mode,
            path.read_bytes(),
        )
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }
