"""Is what a patch brings used: its files by the build or by other files, its gate by its code?"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterable

from opencoti_build.series.contents import Contents
from opencoti_build.series.finding import Finding, Rule
from opencoti_build.series.hunks import sections
from opencoti_build.series.patch import Patch
from opencoti_build.series.series import Series
from opencoti_build.series.trailers import Klass

UNGATED = ("host", "build", "infra")  # features that may have no gate

# Nor need patches that only report, or that only serve the build.
_UNGATED_CLASSES = (Klass.BUILD, Klass.INFRA, Klass.PACKAGING, Klass.OBSERVABILITY, Klass.TOOLING)

_CODE = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".m", ".metal", ".comp", ".cmake")
_GATE = re.compile(r"(flag|env|json)( field)? (?P<words>\S.*)")
_GLOB = re.compile(rb"file\s*\(\s*GLOB\w*\s+\w+([^)]*)\)", re.I)


def check_gates(series: Series) -> list[Finding]:
    """Findings for gates that no added line of the patch, or of its feature, knows.

    A gate is ``none``, or ``flag``, ``env`` or ``json`` with what to write; several are separated
    by commas. Of a flag with a value the value has to occur: the flag may be upstream's own.
    """
    added: dict[str, bytes] = {}
    for patch in series.patches:
        added[patch.feature] = added.get(patch.feature, b"") + _added(patch)
    findings: list[Finding] = []
    for patch in series.patches:
        findings += _check_gate(patch, added[patch.feature])
    return findings


def check_files(series: Series, contents: Contents) -> list[Finding]:
    """Findings for new source files that nothing in the final tree names.

    A file is used when its name occurs in another file of the series (files that no patch touches
    cannot know it), or when a CMakeLists.txt above it takes it by a pattern.
    """
    final = {path: contents.final(path) for path in sorted(contents.paths)}
    findings: list[Finding] = []
    for patch in series.patches:
        for file in patch.files:
            data = final[file.path]
            if not file.is_new or data is None or not _is_code(file.path):
                continue
            others = (text for path, text in final.items() if text and path != file.path)
            if not _named(file.path, others) and not _globbed(file.path, contents):
                findings.append(
                    Finding(patch.name, Rule.UNUSED_FILE, f"nothing refers to {file.path}")
                )
    return findings


def _check_gate(patch: Patch, added: bytes) -> list[Finding]:
    def finding(rule: Rule, message: str) -> list[Finding]:
        return [Finding(patch.name, rule, message)]

    if patch.gate == "none":
        if patch.feature in UNGATED or patch.klass in _UNGATED_CLASSES:
            return []
        return finding(Rule.GATE_FORM, f"a {patch.klass.value} patch needs a gate")
    for part in re.split(r"[,;] *", patch.gate):
        found = _GATE.fullmatch(part)
        if found is None:
            return finding(Rule.GATE_FORM, f"{part!r} is not 'flag|env|json NAME [VALUE]'")
        name, *values = found["words"].split()
        wanted = values or [name]
        if not all(word.encode() in added for word in wanted):
            return finding(
                Rule.GATE_NOT_REGISTERED,
                f"no line that {patch.feature} adds holds {' '.join(wanted)!r}",
            )
    return []


def _added(patch: Patch) -> bytes:
    lines: list[bytes] = []
    for section in sections(patch.diff):
        body = section.partition(b"\n@@ ")[2]
        lines += [line for line in body.split(b"\n") if line.startswith(b"+")]
    return b"\n".join(lines) + b"\n"


def _is_code(path: str) -> bool:
    return path.endswith(_CODE) or posixpath.basename(path) == "CMakeLists.txt"


def _named(path: str, others: Iterable[bytes]) -> bool:
    folder, name = posixpath.split(path)
    wanted = name.encode()
    if name == "CMakeLists.txt":
        wanted = posixpath.basename(folder).encode()
        return any(b"add_subdirectory" in text and wanted in text for text in others)
    return any(wanted in text for text in others)


def _globbed(path: str, contents: Contents) -> bool:
    folder = posixpath.dirname(path)
    while folder:
        lists = f"{folder}/CMakeLists.txt"
        data = contents.final(lists) if lists in contents.paths else contents.read_base(lists)
        for found in _GLOB.finditer(data or b""):
            for word in found[1].decode("utf-8", "replace").replace('"', " ").split():
                pattern = posixpath.normpath(posixpath.join(folder, word))
                same_folder = posixpath.dirname(pattern) == posixpath.dirname(path)
                if "*" in word and same_folder and fnmatch.fnmatchcase(path, pattern):
                    return True
        folder = posixpath.dirname(folder)
    return False
