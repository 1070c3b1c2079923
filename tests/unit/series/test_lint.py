"""The rules of ``series check``: each with a patch that breaks it and one that does not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from opencoti_build.series.check import lint_series
from opencoti_build.series.finding import FindingsError, Rule
from tests.lib.series import write_tree
from tests.unit.series.conftest import UI, Bench, text

HOOK = {"Gate": "flag --kv-turbo"}
GOOD = b'// --kv-turbo\n#include "opencoti-kv.h"\n'


def rules(bench: Bench, **options: int) -> dict[str, list[str]]:
    """The rules that each patch breaks."""
    done = lint_series(bench.series, bench.tree, bench.objects, UI, **options)
    found: dict[str, list[str]] = {}
    for finding in done.findings:
        found.setdefault(finding.patch_name, []).append(finding.rule.value)
    return found


def add(bench: Bench, edits: Mapping[str, bytes | None], number: int = 40, **more: object) -> None:
    bench.maker.add(number, "x", edits, **{"subject": "Add x", **more})  # type: ignore[arg-type]


def hooked(count: int = 40, **changes: str) -> bytes:
    return text(count, **changes) + b"// --kv-turbo\n"


def test_good(bench: Bench) -> None:
    add(bench, {"src/b.c": text(40) + GOOD, "opencoti-kv.h": b"//\n"})
    assert rules(bench) == {}


@pytest.mark.parametrize(
    ("subject", "good"),
    [
        ("Add things", True),
        ("cuda: add things", True),
        ("Add things.", False),
        ("x" * 73, False),
        ("wip things", False),
        ("fixup! Add things", False),
    ],
)
def test_subject(bench: Bench, subject: str, good: bool) -> None:
    add(bench, {"src/b.c": hooked()}, subject=subject)
    assert rules(bench) == ({} if good else {"0040-x": ["subject-form"]})


@pytest.mark.parametrize(
    ("gate", "feature", "rule"),
    [
        ("flag --kv-turbo", "kv", None),
        ("flag --cache-type-k --kv-turbo", "kv", None),  # a new value of an upstream flag
        ("env --kv-turbo, flag --kv-turbo", "kv", None),
        ("json field --kv-turbo", "kv", None),
        ("flag --other", "kv", "gate-not-registered"),
        ("flag --kv-turbo, env OTHER", "kv", "gate-not-registered"),
        ("always", "kv", "gate-form"),
        ("none", "kv", "gate-form"),
        ("none", "build", None),
    ],
)
def test_gate(bench: Bench, gate: str, feature: str, rule: str | None) -> None:
    add(bench, {"src/b.c": hooked()}, trailers={"Gate": gate, "Feature": feature})
    assert rules(bench) == ({"0040-x": [rule]} if rule else {})


def test_gate_of_an_earlier_patch_of_the_feature(bench: Bench) -> None:
    add(bench, {"src/b.c": hooked()})
    add(bench, {"src/a.c": b"x\n"}, 41)
    add(bench, {"src/a.c": b"y\n"}, 42, trailers={"Feature": "other", "Depends": "0041"})
    assert rules(bench) == {"0042-x": ["gate-not-registered"]}


def test_modes_and_ends(bench: Bench) -> None:
    add(bench, {"src/b.c": b"// --kv-turbo"})
    assert rules(bench) == {"0040-x": ["no-final-newline"]}
    path = bench.patches / "0040-x.patch"
    mode = b"diff --git a/run.sh b/run.sh\nold mode 100755\nnew mode 100644\n"
    path.write_bytes(path.read_bytes().replace(b"diff --git", mode + b"diff --git"))
    assert rules(bench) == {"0040-x": ["mode-change", "no-final-newline"]}


def test_unused_file(bench: Bench) -> None:
    add(bench, {"src/b.c": hooked(), "src/lost.cpp": b"//\n", "notes.md": b"x\n"})
    assert rules(bench) == {"0040-x": ["unused-file"]}
    bench.maker.add(41, "use", {"src/a.c": b'#include "lost.cpp"\n'})
    assert rules(bench) == {}


def test_file_taken_by_a_pattern(bench: Bench) -> None:
    glob = b'file(GLOB SOURCES "src/*.cu")\nadd_subdirectory(sub)\n# --kv-turbo\n'
    add(bench, {"top/CMakeLists.txt": glob, "CMakeLists.txt": b"add_subdirectory(top)\n"})
    add(bench, {"top/src/k.cu": b"//\n", "top/sub/CMakeLists.txt": b"#\n"}, 41)
    assert rules(bench) == {}
    add(bench, {"top/other/k2.cu": b"//\n"}, 42)
    assert rules(bench) == {"0042-x": ["unused-file"]}


def test_depends_incomplete(bench: Bench) -> None:
    add(bench, {"src/b.c": hooked(l10="ten")}, 20)
    add(bench, {"src/a.c": text(40, l3="three")}, 30)
    add(bench, {"src/b.c": hooked(l10="ten", l30="thirty")}, 40)  # far enough from line 10
    add(bench, {"src/b.c": hooked(l10="ten", l12="twelve", l30="thirty")}, 50)
    add(bench, {"src/b.c": hooked(l10="ten", l12="twelve", l30="30")}, 60)
    assert rules(bench) == {"0050-x": ["depends-incomplete"], "0060-x": ["depends-incomplete"]}
    done = lint_series(bench.series, bench.tree, bench.objects, UI)
    assert "0020" in done.findings[0].message and "0040" not in done.findings[0].message
    assert "0040" in done.findings[1].message and "0020" not in done.findings[1].message


def test_depends_through_others(bench: Bench) -> None:
    add(bench, {"src/opencoti.h": b"// --kv-turbo\n"}, 20)
    add(bench, {"src/opencoti.h": b"// --kv-turbo\n//\n", "src/a.c": b'"opencoti.h"\n'}, 30)
    add(bench, {"src/opencoti.h": b"// --kv-turbo\n///\n"}, 40, trailers={"Depends": "0030"})
    assert rules(bench) == {"0030-x": ["depends-incomplete"]}


def test_not_canonical(bench: Bench) -> None:
    add(bench, {"src/b.c": hooked(l20="twenty")})
    path = bench.patches / "0040-x.patch"
    good = path.read_bytes()
    path.write_bytes(good.replace(b"[PATCH]", b"[PATCH 1/9]"))
    assert rules(bench) == {"0040-x": ["not-canonical"]}
    path.write_bytes(good.replace(b"@@ line 16", b"@@ line sixteen"))
    assert rules(bench) == {"0040-x": ["not-canonical"]}
    path.write_bytes(good)
    moved = {"src/b.c": b"top\n" + text(40)}
    bench.tree = write_tree(bench.objects, bench.tree, moved, bench.root / "scratch-index")
    assert rules(bench) == {"0040-x": ["not-canonical"]}


def test_budget_warns(bench: Bench) -> None:
    add(bench, {"src/b.c": hooked(l20="twenty")})
    assert rules(bench, upstream_lines=2) == {"0040-x": ["upstream-budget"]}
    assert rules(bench, upstream_lines=3) == {}
    assert Rule.UPSTREAM_BUDGET.warns and not Rule.UNUSED_FILE.warns


def test_series_that_does_not_apply_is_still_looked_at(bench: Bench) -> None:
    add(bench, {"src/b.c": hooked(l20="twenty")}, subject="Bad.")
    bench.tree = write_tree(bench.objects, None, {"other": b"x\n"}, bench.root / "scratch-index")
    done = lint_series(bench.series, bench.tree, bench.objects, UI)
    assert not done.applies
    assert [finding.rule for finding in done.findings] == [Rule.SUBJECT_FORM]


def test_error_lists_all_findings(bench: Bench) -> None:
    add(bench, {"src/b.c": b"no newline"}, subject="Bad.")
    findings = lint_series(bench.series, bench.tree, bench.objects, UI).findings
    error = FindingsError(findings)
    assert (error.reason, error.exit_code) == ("series-has-findings", 1)
    assert len(error.context) == 3 == len(error.findings)
