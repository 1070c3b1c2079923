"""What became of each patch, and the one error that carries all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from opencoti_build.errors import SeriesError


class Outcome(Enum):
    """The result of trying one patch."""

    APPLIED = "applied"
    APPLIED_OFFSET = "applied-offset"
    THREE_WAY = "three-way"
    RESOLVED = "resolved"  # by hand, or as remembered
    ALREADY_APPLIED = "already-applied"
    DOES_NOT_APPLY = "does-not-apply"
    MALFORMED = "malformed"
    MISSING_PRE_IMAGE = "missing-pre-image"
    DEPENDS_ON_FAILED = "depends-on-failed"
    WRONG_RESULT = "wrong-result"

    @property
    def good(self) -> bool:
        """Whether the patch is in the tree."""
        return self in (
            Outcome.APPLIED,
            Outcome.APPLIED_OFFSET,
            Outcome.THREE_WAY,
            Outcome.RESOLVED,
        )

    @property
    def word(self) -> str:
        """The outcome in the table of a rebase."""
        return _WORDS.get(self, "conflict")


_WORDS = {
    Outcome.APPLIED: "clean",
    Outcome.APPLIED_OFFSET: "offset",
    Outcome.THREE_WAY: "three-way",
    Outcome.RESOLVED: "resolved",
    Outcome.ALREADY_APPLIED: "already upstream",
    Outcome.DEPENDS_ON_FAILED: "waits for another",
}


@dataclass(frozen=True)
class Conflict:
    """Where a patch failed: a file, and the first line of the hunk where it is known."""

    path: str
    line: int | None
    detail: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place} ({self.detail})"


@dataclass(frozen=True)
class PatchStatus:
    """One patch after it was tried."""

    number: int
    name: str
    outcome: Outcome
    message: str = ""
    conflicts: tuple[Conflict, ...] = ()

    def describe(self) -> str:
        """The outcome with its places, in one line."""
        parts = [self.message, *map(str, self.conflicts)]
        detail = "; ".join(part for part in parts if part)
        return f"{self.outcome.value}: {detail}" if detail else self.outcome.value

    def to_json(self) -> dict[str, object]:
        """The status as plain data."""
        return {
            "number": self.number,
            "name": self.name,
            "outcome": self.outcome.value,
            "message": self.message,
            "conflicts": [
                {"path": item.path, "line": item.line, "detail": item.detail}
                for item in self.conflicts
            ],
        }


_HINTS = {
    Outcome.ALREADY_APPLIED: "drop patches that the base already holds",
    Outcome.MISSING_PRE_IMAGE: "the object store lacks the files that the patch was made on: "
    "fetch the base that it was made on",
}


class DoesNotApplyError(SeriesError):
    """At least one patch failed; ``statuses`` holds every patch of the series."""

    def __init__(self, statuses: Sequence[PatchStatus]) -> None:
        bad = [status for status in statuses if not status.outcome.good]
        hints = dict.fromkeys(_HINTS[item.outcome] for item in bad if item.outcome in _HINTS)
        super().__init__(
            "series-does-not-apply",
            f"{len(bad)} of {len(statuses)} patches do not apply",
            hint="; ".join(hints) or None,
            context={status.name: status.describe() for status in bad},
        )
        self.statuses = tuple(statuses)
