"""Changes of a series as a whole: rename, renumber, drop, split and fold.

Each takes a series and gives the wanted patches; ``replay`` then makes them true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from opencoti_build.errors import SeriesError
from opencoti_build.series.export import slug_of
from opencoti_build.series.git import Git
from opencoti_build.series.hunks import sections
from opencoti_build.series.patch import Patch
from opencoti_build.series.replay import rewrite, squash
from opencoti_build.series.series import Series
from opencoti_build.series.trailers import REQUIRED
from opencoti_build.ui import Ui


def rename(series: Series, number: int, title: str, *, keep_slug: bool = False) -> list[Patch]:
    """Give a patch another subject, and the slug that comes from it.

    Raises SeriesError ``patch-unknown`` and those of ``patch_from_bytes``.
    """
    patch = series.find(number)
    slug = patch.slug if keep_slug else slug_of(title)
    new = rewrite(patch, replace(patch.mail(), subject=title), f"{number:04d}-{slug}")
    return [new if other is patch else other for other in series.patches]


def renumber(series: Series, number: int, target: int) -> list[Patch]:
    """Give a patch another number; what depends on it follows.

    Raises SeriesError ``patch-unknown``, ``patch-bad-number`` and ``number-taken``.
    """
    patch = series.find(number)
    if target in {other.number for other in series.patches}:
        raise SeriesError("number-taken", f"the series has a patch {target:04d} already")
    moved = rewrite(patch, patch.mail(), f"{target:04d}-{patch.slug}")
    patches = [moved if other is patch else other for other in series.patches]
    return [_with_depends(other, {number: target}) for other in patches]


def drop(series: Series, number: int, *, force: bool = False) -> list[Patch]:
    """Take a patch out. With ``force`` others that name it in ``Depends`` forget it.

    Raises SeriesError ``patch-unknown`` and ``patch-needed``.
    """
    patch = series.find(number)
    users = [other.name for other in series.patches if number in other.depends]
    if users and not force:
        raise SeriesError(
            "patch-needed",
            f"{patch.name} is named in Depends of {', '.join(users)}",
            hint="drop those first, or use --force",
        )
    return [_with_depends(other, {number: None}) for other in series.patches if other is not patch]


def split(
    series: Series, number: int, paths: Sequence[str], target: int, title: str, why: str | None
) -> list[Patch]:
    """Move the changes of the files ``paths`` to a new patch ``target``.

    The new patch has the same trailers; when it comes later it depends on the old one. Patches
    that depend on the old one and change a file of the new one depend on both. Raises SeriesError
    ``patch-unknown``, ``number-taken``, ``split-no-file`` and ``split-all``.
    """
    patch = series.find(number)
    if target in {other.number for other in series.patches}:
        raise SeriesError("number-taken", f"the series has a patch {target:04d} already")
    known = {file.path for file in patch.files}
    if unknown := sorted({*paths} - known):
        raise SeriesError("split-no-file", f"{patch.name} does not change {unknown[0]}")
    if known == {*paths}:
        raise SeriesError("split-all", "that would leave nothing in the patch")
    taken: list[bytes] = []
    left: list[bytes] = []
    for file, section in zip(patch.files, sections(patch.diff), strict=True):
        (taken if file.path in paths else left).append(section)
    mail = patch.mail()
    body = _body(why or patch.why, patch.trailers)
    new_mail = replace(mail, subject=title, body=body, diff=b"".join(taken).decode())
    new = rewrite(patch, new_mail, f"{target:04d}-{slug_of(title)}")
    if target > number:
        new = with_trailer(new, "Depends", _numbers({*patch.depends, number}))
    rest = rewrite(patch, replace(mail, diff=b"".join(left).decode()))
    others = [other for other in series.patches if other is not patch]
    return [rest, new, *(_follow_split(other, number, target, paths) for other in others)]


def _follow_split(patch: Patch, number: int, target: int, paths: Sequence[str]) -> Patch:
    """A patch that depends on the old one and changes a file of the new one needs both."""
    touches = any(file.path in paths for file in patch.files)
    if number not in patch.depends or patch.number < target or not touches:
        return patch
    return with_trailer(patch, "Depends", _numbers({*patch.depends, target}))


def fold(
    git: Git, base_tree: str, series: Series, into: int, numbers: Sequence[int], ui: Ui
) -> list[Patch]:
    """Join patches into one; their prose is appended, what depends on them follows.

    ``git`` holds the objects of the planned series. Raises SeriesError ``patch-unknown`` and
    ``fold-itself``, and ReplayStoppedError where they cannot stand next to each other.
    """
    target = series.find(into)
    extra = [series.find(number) for number in sorted({*numbers})]
    if target in extra or not extra:
        raise SeriesError("fold-itself", f"name patches other than {into:04d} to fold into it")
    gone = {patch.number for patch in extra}
    joined = squash(git, base_tree, series.patches, target, extra, ui)
    depends = {n for patch in (target, *extra) for n in patch.depends if n != into} - gone
    why = "\n\n".join(patch.why for patch in (joined, *extra))
    trailers = {**joined.trailers, "Depends": _numbers(depends)}
    joined = rewrite(joined, replace(joined.mail(), body=_body(why, trailers)))
    patches = [joined if p is target else p for p in series.patches if p.number not in gone]
    follow: dict[int, int | None] = dict.fromkeys(gone, into)
    return [patch if patch is joined else _with_depends(patch, follow) for patch in patches]


def forget(patches: Iterable[Patch], names: Iterable[str]) -> list[Patch]:
    """The patches without dependencies on those that are gone."""
    gone: dict[int, int | None] = {int(name[:4]): None for name in names}
    return [_with_depends(patch, gone) for patch in patches]


def with_trailer(patch: Patch, key: str, value: str) -> Patch:
    """``patch`` with another value of one trailer."""
    body = _body(patch.why, {**patch.trailers, key: value})
    return rewrite(patch, replace(patch.mail(), body=body))


def _with_depends(patch: Patch, moves: Mapping[int, int | None]) -> Patch:
    if not moves.keys() & {*patch.depends}:
        return patch
    numbers = {moves.get(number, number) for number in patch.depends}
    return with_trailer(patch, "Depends", _numbers(n for n in numbers if n is not None))


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(f"{number:04d}" for number in sorted(numbers))


def _body(why: str, trailers: Mapping[str, str]) -> str:
    return f"{why}\n\n" + "\n".join(f"{key}: {trailers[key]}".rstrip() for key in REQUIRED)
