"""Write the commits of a workspace back as patch files, without churn.

The name of a patch travels in its commit as the line ``Patch: NNNN-slug``: apply adds it below
the trailers, export takes it away again, and it survives amend, rebase and cherry-pick. A commit
without that line is new and needs a number. What apply made, export writes back byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from opencoti_build.digest import sha256_bytes
from opencoti_build.errors import SeriesError
from opencoti_build.series.git import Git
from opencoti_build.series.mail import Mail, render_mail
from opencoti_build.series.patch import Patch, patch_from_bytes
from opencoti_build.series.series import InvalidSeriesError, Problem
from opencoti_build.series.trailers import NAME_TRAILER
from opencoti_build.series.workspace import Workspace

_NAME_LINE = re.compile(rf"^{NAME_TRAILER}: (\d{{4}}-[a-z0-9-]+)\n?", re.M)
_AUTHOR = re.compile(r"author (.*) (\d+) ([+-]\d{4})")
_SLUG_LENGTH = 60
_DIFF = (
    "-p",
    "--full-index",
    "--binary",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-relative",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "-U3",
    "--inter-hunk-context=0",
    "--diff-algorithm=myers",
    "--indent-heuristic",
)


def render_commit(git: Git, commit: str, diff: bytes | None = None) -> tuple[str | None, Mail]:
    """The patch name (None for a new commit) and the mail of one commit (``diff``: if known).

    Raises SeriesError ``export-ambiguous``, ``patch-not-utf8`` and ``patch-malformed``.
    """
    try:
        raw = git.run("cat-file", "commit", commit).out.decode("utf-8")
        if diff is None:
            diff = read_diff(git, f"{commit}^", commit)
        text = diff.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SeriesError("patch-not-utf8", f"commit {commit[:12]} is not UTF-8") from error
    head, _, message = raw.partition("\n\n")
    author = next(filter(None, map(_AUTHOR.fullmatch, head.split("\n"))), None)
    if author is None:
        raise SeriesError("patch-malformed", f"commit {commit[:12]} has no readable author")
    names = _NAME_LINE.findall(message)
    if len(names) > 1:
        raise SeriesError(
            "export-ambiguous",
            f"commit {commit[:12]} is named {' and '.join(names)}",
            hint="amend its message to keep one name",
        )
    subject, _, body = _NAME_LINE.sub("", message).strip("\n").partition("\n\n")
    mail = Mail(author[1], _date(int(author[2]), author[3]), " ".join(subject.split()), body, text)
    return (names[0] if names else None), mail


def read_diff(git: Git, old: str, new: str) -> bytes:
    """The diff between two trees or commits, as patches hold it."""
    return git.run("diff-tree", "-r", *_DIFF, old, new).out


def read_diffs(git: Git, base: str, top: str) -> dict[str, bytes]:
    """The diff of every commit after ``base`` up to ``top``, in one call."""
    out = git.run("log", "--reverse", "--format=%x00%H", *_DIFF, f"{base}..{top}").out
    diffs = {}
    for part in re.split(rb"^\0(?=[0-9a-f]{40}$)", out, flags=re.M)[1:]:
        diff = part[41:].removeprefix(b"\n")
        diffs[part[:40].decode()] = diff.removesuffix(b"\n") if diff.endswith(b"\n\n") else diff
    return diffs


def slug_of(subject: str) -> str:
    """A file name slug made of a subject."""
    words = re.findall(r"[a-z0-9]+", subject.lower())
    slug = "-".join(words)
    while len(slug) > _SLUG_LENGTH and len(words) > 1:
        words.pop()
        slug = "-".join(words)
    return slug[:_SLUG_LENGTH] or "patch"


def _commits(git: Git, base_commit: str, top: str) -> list[str]:
    if git.run("merge-base", "--is-ancestor", base_commit, top, check=False).code != 0:
        raise SeriesError("export-unrelated", "HEAD of the workspace does not come from its base")
    lines = git.text("rev-list", "--reverse", "--parents", f"{base_commit}..{top}").splitlines()
    for line in lines:
        if len(line.split()) != 2:
            raise SeriesError("export-merge", f"commit {line[:12]} is a merge")
    return [line.split()[0] for line in lines]


def read_commits(
    git: Git, base_commit: str, directory: Path, numbers: Sequence[int] = (), top: str = "HEAD"
) -> list[Patch]:
    """The commits after ``base_commit`` as patches of ``directory``, oldest first.

    ``numbers`` name the new commits, oldest first. Raises SeriesError ``export-unrelated`` (``top``
    does not come from the base), ``export-merge`` (a merge commit), ``export-unnamed`` (a new
    commit without a number), ``export-ambiguous`` (a commit with two names), ``export-numbers``
    (more numbers than new commits), and InvalidSeriesError for what the patches would be.
    """
    commits = _commits(git, base_commit, top)
    diffs = read_diffs(git, base_commit, top)
    patches: list[Patch] = []
    problems: list[Problem] = []
    free = list(numbers)
    for commit in commits:
        name, mail = render_commit(git, commit, diffs[commit])
        if name is None and not free:
            raise SeriesError(
                "export-unnamed",
                f"commit {commit[:12]} ({mail.subject}) is new and has no number",
                hint="give one --number for each new commit, oldest first",
            )
        name = name or f"{free.pop(0):04d}-{slug_of(mail.subject)}"
        try:
            patches.append(patch_from_bytes(directory / f"{name}.patch", render_mail(mail)))
        except SeriesError as error:
            problems.append(Problem(f"{name}.patch", error.reason, error.message))
    if free:
        raise SeriesError("export-numbers", f"{len(free)} numbers too many were given")
    if problems:
        raise InvalidSeriesError(tuple(problems))
    return patches


def check_stale(space: Workspace, old: Mapping[str, bytes], new: Mapping[str, bytes]) -> None:
    """Refuse to overwrite patch files that changed since. Raises SeriesError ``export-stale``."""
    stamp = space.stamp()
    known = {(f"{item.name}.patch", item.sha256) for item in (stamp.commits if stamp else ())}
    known.update(space.exported().items())
    stale = [
        name
        for name, data in old.items()
        if new.get(name) != data and (name, sha256_bytes(data)) not in known
    ]
    if stale:
        raise SeriesError(
            "export-stale",
            "patch files changed since the workspace was made",
            context={"files": ", ".join(stale)},
            hint="move your commits onto a fresh apply, or export with --force to overwrite them",
        )


def _date(seconds: int, zone: str) -> datetime:
    minutes = int(zone[1:3]) * 60 + int(zone[3:5])
    offset = timedelta(minutes=-minutes if zone[0] == "-" else minutes)
    return datetime.fromtimestamp(seconds, timezone(offset))
