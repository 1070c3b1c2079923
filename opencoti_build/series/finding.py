"""What ``series check`` finds in patches that can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from opencoti_build.errors import CheckError


class Rule(Enum):
    """What a finding is about; the words never change their meaning."""

    NOT_CANONICAL = "not-canonical"  # export would write other bytes
    SUBJECT_FORM = "subject-form"
    MODE_CHANGE = "mode-change"
    NO_FINAL_NEWLINE = "no-final-newline"
    GATE_FORM = "gate-form"
    GATE_NOT_REGISTERED = "gate-not-registered"
    DEPENDS_INCOMPLETE = "depends-incomplete"
    UNUSED_FILE = "unused-file"
    UPSTREAM_BUDGET = "upstream-budget"

    @property
    def warns(self) -> bool:
        """Whether a finding is worth a look, and no reason to fail."""
        return self is Rule.UPSTREAM_BUDGET


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with one patch."""

    patch_name: str
    rule: Rule
    message: str

    def to_json(self) -> dict[str, object]:
        """The finding as plain data."""
        return {
            "patch": self.patch_name,
            "rule": self.rule.value,
            "message": self.message,
            "warning": self.rule.warns,
        }


class FindingsError(CheckError):
    """The series applies, but breaks rules; ``findings`` holds every finding."""

    def __init__(self, findings: Sequence[Finding], *, strict: bool = False) -> None:
        bad = [finding for finding in findings if strict or not finding.rule.warns]
        context: dict[str, object] = {}
        for finding in bad:
            key = f"{finding.patch_name} ({finding.rule.value})"
            context[key] = (
                f"{context[key]}; {finding.message}" if key in context else (finding.message)
            )
        super().__init__(
            "series-has-findings",
            f"{len({finding.patch_name for finding in bad})} patches break rules of the series",
            hint="'opencoti-build series edit NNNN' opens a patch; 'series export' rewrites files",
            context=context,
        )
        self.findings = tuple(findings)
