"""Which patch owns a line: worked out from the patches, without a workspace and without blame."""

from __future__ import annotations

from dataclasses import dataclass

from opencoti_build.errors import SeriesError
from opencoti_build.series.contents import Contents, DoesNotFitError
from opencoti_build.series.hunks import place, split_lines
from opencoti_build.series.series import Series


@dataclass(frozen=True)
class Line:
    """One line of a patched file; ``patch`` is the patch number, None for an upstream line."""

    text: str
    patch: int | None


@dataclass(frozen=True)
class Share:
    """What one patch did to a file, and how many of its lines are still there."""

    number: int
    added: int
    deleted: int
    left: int


def owned_lines(series: Series, contents: Contents, path: str) -> list[Line]:
    """The lines of ``path`` after all patches, each with its owner.

    Raises SeriesError ``why-no-file`` (not in the patched tree) and ``series-does-not-apply``.
    """
    numbers = contents.touching(path)
    base = contents.read_base(path)
    lines = [(text, _UPSTREAM) for text in split_lines(base or b"")]
    for number in numbers:
        _, hunks = contents.change(number, path)
        places = place([text for text, _ in lines], hunks)
        if places is None:
            raise SeriesError(
                "series-does-not-apply",
                f"{number:04d} does not fit {path}",
                hint="run 'opencoti-build series check'",
            )
        for hunk, at in zip(reversed(hunks), reversed(places), strict=True):
            lines[at : at + len(hunk.old)] = _replace(hunk.kinds, hunk.new, lines, at, number)
    if (base is None and not numbers) or _is_gone(contents, path):
        raise SeriesError("why-no-file", f"{path} is not in the patched tree")
    return [Line(text.decode("utf-8", "replace").rstrip("\n"), own or None) for text, own in lines]


def owner_of(series: Series, contents: Contents, path: str, line: int) -> Line:
    """The line number ``line`` (from 1). Raises as ``owned_lines``, and ``why-no-line``."""
    lines = owned_lines(series, contents, path)
    if not 1 <= line <= len(lines):
        raise SeriesError("why-no-line", f"{path} has {len(lines)} lines after all patches")
    return lines[line - 1]


def shares(series: Series, contents: Contents, path: str) -> list[Share]:
    """The patches that touch ``path``, lowest first. Raises as ``owned_lines``."""
    owners = [line.patch for line in owned_lines(series, contents, path)]
    result = []
    for number in contents.touching(path):
        file, _ = contents.change(number, path)
        result.append(Share(number, file.added, file.deleted, owners.count(number)))
    return result


_UPSTREAM = 0  # no patch has this number


def _replace(
    kinds: bytes, new: tuple[bytes, ...], lines: list[tuple[bytes, int]], at: int, number: int
) -> list[tuple[bytes, int]]:
    out: list[tuple[bytes, int]] = []
    texts = iter(new)
    for kind in kinds:
        if kind == ord("+"):
            out.append((next(texts), number))
        elif kind == ord("-"):
            at += 1
        else:
            next(texts)
            out.append(lines[at])
            at += 1
    return out


def _is_gone(contents: Contents, path: str) -> bool:
    try:
        return contents.final(path) is None
    except DoesNotFitError:
        return False
