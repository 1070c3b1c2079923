"""The one right form of a patch file: what export would write for its commit."""

from __future__ import annotations

import re

from opencoti_build.series.diff import FileChange
from opencoti_build.series.export import read_diffs
from opencoti_build.series.finding import Finding, Rule
from opencoti_build.series.git import Git
from opencoti_build.series.hunks import sections
from opencoti_build.series.mail import render_mail
from opencoti_build.series.outcome import Outcome
from opencoti_build.series.patch import Patch
from opencoti_build.series.plan import Plan
from opencoti_build.series.series import Series

SUBJECT_LENGTH = 72

_SUBJECT = re.compile(r"[A-Za-z0-9`-].*[^.\s]")
_UNFINISHED = ("fixup!", "squash!", "amend!", "wip")
_SCRIPTS = (".sh", ".py", ".pl")


def check_form(patch: Patch) -> list[Finding]:
    """Findings that the patch file alone gives: subject, modes, ends of files."""
    findings: list[Finding] = []

    def add(rule: Rule, message: str) -> None:
        findings.append(Finding(patch.name, rule, message))

    if len(patch.subject) > SUBJECT_LENGTH:
        add(Rule.SUBJECT_FORM, f"the subject is longer than {SUBJECT_LENGTH} characters")
    if not _SUBJECT.fullmatch(patch.subject) or patch.subject.lower().startswith(_UNFINISHED):
        add(Rule.SUBJECT_FORM, f"write {patch.subject!r} as a short sentence without a full stop")
    for file, section in zip(patch.files, sections(patch.diff), strict=True):
        if _mode_changes(file):
            add(Rule.MODE_CHANGE, f"{file.path}: {file.old_mode or 'new'} to {file.new_mode}")
        if re.search(rb"^\+.*\n\\ No newline", section, re.M):
            add(Rule.NO_FINAL_NEWLINE, f"{file.path} does not end with a newline")
    return findings


def check_canonical(series: Series, plan: Plan, git: Git) -> list[Finding]:
    """Findings for patches that export would not write back byte for byte."""
    findings: list[Finding] = []
    diffs = read_diffs(git, plan.base_commit, plan.top)
    results = {result.number: result for result in plan.commits}
    for patch in series.patches:
        result = results.get(patch.number)
        message = ""
        if render_mail(patch.mail()) != patch.data:
            message = "the mail is not written as export writes it"
        elif result is not None and result.outcome is not Outcome.APPLIED:
            message = f"it was made on other files ({result.outcome.value})"
        elif result is not None and diffs[result.commit] != patch.diff:
            message = "the diff is not written as export writes it"
        if message:
            text = f"{message}; run 'opencoti-build series apply' and 'series export'"
            findings.append(Finding(patch.name, Rule.NOT_CANONICAL, text))
    return findings


def _mode_changes(file: FileChange) -> bool:
    if file.is_deleted:
        return False
    if file.is_new:
        return file.new_mode == "100755" and not file.path.endswith(_SCRIPTS)
    return file.old_mode != file.new_mode
