"""What verifying a file found: one finding a check, in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opencoti_build.errors import OpencotiError


@dataclass(frozen=True)
class Finding:
    """The verdict of one check.

    ``reason`` is a stable kebab-case id when the check failed or was left out (empty when it
    passed); ``skipped`` marks a check that had nothing to look at.
    """

    check: str
    ok: bool
    reason: str = ""
    message: str = ""
    context: Mapping[str, object] = field(default_factory=dict)
    skipped: bool = False

    def to_json(self) -> dict[str, object]:
        """The finding as plain data."""
        return {
            "check": self.check, "ok": self.ok, "skipped": self.skipped, "reason": self.reason,
            "message": self.message, "context": {k: str(v) for k, v in self.context.items()},
        }  # fmt: skip


@dataclass(frozen=True)
class Report:
    """All findings, with the sha256 (hex) and size (bytes) of the file that was read."""

    findings: tuple[Finding, ...]
    sha256: str
    size: int

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(finding.ok for finding in self.findings)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons of the failed checks, in order."""
        return tuple(finding.reason for finding in self.findings if not finding.ok)

    def to_json(self) -> dict[str, object]:
        """The report as plain data."""
        return {
            "ok": self.ok, "sha256": self.sha256, "size": self.size,
            "findings": [finding.to_json() for finding in self.findings],
        }  # fmt: skip


def passed(check: str, message: str = "") -> Finding:
    """A check that found nothing wrong."""
    return Finding(check, True, message=message)


def failed(check: str, reason: str, message: str, **context: object) -> Finding:
    """A check that found something wrong."""
    return Finding(check, False, reason, message, context)


def skipped(check: str, reason: str, message: str) -> Finding:
    """A check that had nothing to look at; it does not count as a failure."""
    return Finding(check, True, reason, message, skipped=True)


def from_error(check: str, error: OpencotiError) -> Finding:
    """The finding that an error of another module means."""
    return Finding(check, False, error.reason, error.message, error.context)
