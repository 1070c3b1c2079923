"""The gates on the real engines: the series passes, and each broken patch is caught by its own."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opencoti_build.build.context import BuildContext, make_context
from opencoti_build.gates.gate import Options, Verdict
from opencoti_build.gates.local import LocalRun
from opencoti_build.gates.registry import load_gates, select_gates
from opencoti_build.gates.result import Result, read
from opencoti_build.gates.subject import PATCHED, Subject
from opencoti_build.gates.subjects import SubjectBuilder
from opencoti_build.gates.suite import Suite
from opencoti_build.paths import Project
from opencoti_build.ui import Ui
from tests.engine.conftest import TAG

pytestmark = pytest.mark.engine

BROKEN = Path(__file__).parent.parent / "data" / "gates"
# A few cases that together take a minute; `gate run` measures all of them.
CASES = {
    "off-identity": "batch 7/7, 1 threads, fa on, kv q8_0, sequences 1",
    "off-identity-server": "one slot",
    "off-identity-help": "server --help",
    "kld": "q8_0 cache",
    "retrieval": "passkey, 400 tokens",
    "size": "KV bytes a token, K q8_0, V q4_0",
}


@pytest.fixture(scope="module")
def context() -> BuildContext:
    return make_context(TAG, ui=Ui(bars=False))


@pytest.fixture(scope="module")
def real(context: BuildContext) -> LocalRun:
    """Both engines as they are, and the models."""
    return LocalRun(context, select_gates(load_gates(), CASES), Options())


@pytest.fixture
def suite(real: LocalRun, tmp_path: Path) -> Suite:
    """A suite that keeps nothing from one test to the next."""
    return dataclasses.replace(real.suite(), kept=tmp_path / "kept")


def _measure(suite: Suite, gate: str, case: str) -> list[Result]:
    return dataclasses.replace(suite, only=case).run([load_gates()[gate]])


@pytest.mark.parametrize("gate", CASES)
def test_the_series_passes(suite: Suite, gate: str) -> None:
    results = _measure(suite, gate, CASES[gate])
    assert results
    assert [(r.verdict, r.detail) for r in results if r.verdict is not Verdict.PASS] == []


@pytest.fixture
def broken(context: BuildContext, tmp_path: Path, request: pytest.FixtureRequest) -> Subject:
    """The patched engine with one more patch, which breaks something on purpose."""
    root = tmp_path / "project"
    for name in ("patches", "recipes", "vendor"):
        shutil.copytree(context.project.root / name, root / name)
    shutil.copy(BROKEN / f"0133-{request.param}.patch", root / "patches")
    return SubjectBuilder(dataclasses.replace(context, project=Project(root))).build(PATCHED)


@pytest.mark.parametrize(
    ("broken", "gate"),
    [
        ("logit-changes-when-off", "off-identity"),
        ("key-leaks-into-props", "off-identity-server"),
        ("retrieval-is-lost", "retrieval"),
    ],
    indirect=["broken"],
)
def test_a_gate_catches_its_broken_patch(suite: Suite, broken: Subject, gate: str) -> None:
    bad = dataclasses.replace(suite, subjects={**suite.subjects, PATCHED: broken})
    results = _measure(bad, gate, CASES[gate])
    assert results
    assert {result.verdict for result in results} == {Verdict.FAIL}


@pytest.mark.parametrize("broken", ["decode-slows-by-five-percent"], indirect=True)
def test_a_slow_down_never_passes(suite: Suite, broken: Subject) -> None:
    options = Options(max_seconds=240)
    bad = dataclasses.replace(suite, subjects={**suite.subjects, PATCHED: broken}, options=options)
    results = [
        result
        for result in _measure(bad, "speed", "decode, 1 slot, 1 thread")
        if result.model.startswith("smollm2")
    ]
    (result,) = results
    if result.verdict is Verdict.INCONCLUSIVE:
        pytest.skip(f"this machine is too noisy to measure speed: {result.detail}")
    assert result.verdict is Verdict.FAIL, result.detail


@pytest.fixture
def folder(real: LocalRun, suite: Suite, tmp_path: Path) -> Iterator[Path]:
    from opencoti_build.gates.pack import pack_folder

    only = dataclasses.replace(suite, only=CASES["off-identity"])
    run = LocalRun.__new__(LocalRun)
    run.gates, run.identity = select_gates(load_gates(), ["off-identity"]), real.identity
    pack_folder(run, only, tmp_path / "carried", [])
    yield tmp_path / "carried"
    shutil.rmtree(tmp_path / "carried")


def test_a_carried_folder_measures_the_same(folder: Path, real: LocalRun) -> None:
    command = [sys.executable, "-I", "-S", folder / "run.py", "--engine-args", "-ngl 0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    identity, results = read(folder / "gates.json")
    assert identity == real.identity
    assert len(results) == 2
    assert {(r.verdict, r.case) for r in results} == {(Verdict.PASS, CASES["off-identity"])}
    assert all(r.device for r in results)
