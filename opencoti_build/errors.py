"""Errors with a stable reason.

Leaf modules raise, the command line renders, tests assert the reason and never the text.
This module imports nothing from the package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REASON = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class OpencotiError(Exception):
    """Base of every error that a user can cause or cure.

    ``reason`` is a kebab-case id that never changes its meaning; ``message`` is one line;
    ``hint`` says what to do next; ``context`` holds the facts (printed as ``key: value`` lines).
    """

    exit_code = 1

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        hint: str | None = None,
        context: Mapping[str, object] | None = None,
    ) -> None:
        if not _REASON.fullmatch(reason):
            raise BugError(f"error reason {reason!r} is not kebab-case")
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.hint = hint
        self.context: dict[str, object] = dict(context or {})

    def to_json(self) -> dict[str, object]:
        """The error as plain data: reason, message, hint, context (values as text)."""
        return {
            "reason": self.reason,
            "message": self.message,
            "hint": self.hint,
            "context": {key: str(value) for key, value in self.context.items()},
        }


class CheckError(OpencotiError):
    """A check or gate failed."""

    exit_code = 1


class UsageError(OpencotiError):
    """Bad arguments, a bad recipe or a bad project folder."""

    exit_code = 2


class SourceError(OpencotiError):
    """A pin, download or archive is wrong, or the network failed."""

    exit_code = 3


class SeriesError(OpencotiError):
    """A patch is malformed or does not apply."""

    exit_code = 4


class BuildError(OpencotiError):
    """A compiler, linker or build tool failed."""

    exit_code = 5


class PackError(OpencotiError):
    """The single file cannot be written or read."""

    exit_code = 6


class BugError(Exception):
    """A bug of ours: not caused by input, cannot be cured by the user."""

    exit_code = 70
