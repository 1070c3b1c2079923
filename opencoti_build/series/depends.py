"""Dependencies tried: does each patch apply after those that it declares, and no others?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opencoti_build.series.contents import Contents
from opencoti_build.series.finding import Finding, Rule
from opencoti_build.series.series import Series


def closure(depends: Mapping[int, Iterable[int]], start: Iterable[int]) -> set[int]:
    """``start`` and all that they depend on."""
    found: set[int] = set()
    left = [*start]
    while left:
        number = left.pop()
        if number not in found:
            found.add(number)
            left += depends.get(number, ())
    return found


def check_depends(series: Series, contents: Contents) -> list[Finding]:
    """Findings for patches whose ``Depends`` is not enough, with the numbers that lack."""
    findings: list[Finding] = []
    known: dict[int, set[int]] = {}
    for patch in series.patches:
        known[patch.number] = {*patch.depends}
        declared = closure(known, patch.depends)
        if contents.fits(patch.number, declared):
            continue
        missing = _missing(patch.number, [file.path for file in patch.files], contents, known)
        if missing is None:
            continue  # it does not apply after all patches before it either: apply says why
        known[patch.number] |= missing
        names = ", ".join(f"{number:04d}" for number in sorted(missing))
        findings.append(
            Finding(patch.name, Rule.DEPENDS_INCOMPLETE, f"it also needs {names} (Depends)")
        )
    return findings


def _missing(
    number: int, paths: Iterable[str], contents: Contents, known: Mapping[int, Iterable[int]]
) -> set[int] | None:
    """A smallest set of earlier patches to add; None when all of them are not enough."""
    declared = closure(known, known[number])
    earlier = {other for path in paths for other in contents.touching(path) if other < number}
    needed = closure(known, earlier) | declared
    if not contents.fits(number, needed):
        return None
    for other in sorted(earlier - declared, reverse=True):
        fewer = closure(known, (earlier - {other}) | declared)
        if other not in fewer and contents.fits(number, fewer):
            earlier.discard(other)
    extra = earlier - declared
    return {one for one in extra if one not in closure(known, extra - {one})}
