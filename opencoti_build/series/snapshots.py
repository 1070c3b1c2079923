"""The series of another time: a revision of the project, a folder of patches, or a release."""

from __future__ import annotations

from pathlib import Path

from opencoti_build.errors import SeriesError
from opencoti_build.series.git import Git
from opencoti_build.series.patch import Patch, patch_from_bytes
from opencoti_build.series.series import Series, load_series, make_series


def load_state(text: str, project: Path) -> Series:
    """The series that ``text`` names: a folder with patches, a release folder, or a revision.

    Nothing is written. Raises SeriesError ``diff-unknown`` and what ``load_series`` raises.
    """
    folder = Path(text)
    if folder.is_dir():
        inner = folder / "patches"
        return load_series(inner if inner.is_dir() else folder)
    git = Git(_git_dir(project))
    if git.run("cat-file", "-e", f"{text}^{{commit}}", check=False).code != 0:
        raise _unknown(text)
    fields = git.fields("ls-tree", "-z", f"{text}^{{commit}}:{_below(project)}")
    patches: list[Patch] = []
    for field in fields:
        head, _, name = field.partition("\t")
        if name.endswith(".patch"):
            data = git.run("cat-file", "blob", head.split(" ")[2]).out
            patches.append(patch_from_bytes(Path(name), data))
    return make_series(Path(text), patches)


def _git_dir(project: Path) -> Path:
    """The git folder of the project's checkout (``.git`` is a file in a linked work tree)."""
    for folder in (project, *project.parents):
        path = folder / ".git"
        if path.is_dir():
            return path
        if path.is_file():
            return (folder / path.read_text().partition("gitdir:")[2].strip()).resolve()
    raise SeriesError("diff-unknown", "this project is not in a git repository")


def _below(project: Path) -> str:
    for folder in (project, *project.parents):
        if (folder / ".git").exists():
            return (project / "patches").relative_to(folder).as_posix()
    return "patches"


def _unknown(text: str) -> SeriesError:
    return SeriesError(
        "diff-unknown",
        f"{text!r} is neither a folder nor a revision of this project",
        hint="name a tag or commit, a folder of patches or a release folder",
    )
