"""The gates on the real engines: the series passes, and each broken patch is caught by its own."""

from __future__ import annotations

import dataclasses
import math
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opencoti_build.build.context import BuildContext, make_context
from opencoti_build.errors import CheckError
from opencoti_build.gates.gate import Options, Verdict
from opencoti_build.gates.local import LocalRun
from opencoti_build.gates.probe_run import Evaluation, compare_logits, logits_digests
from opencoti_build.gates.registry import load_gates, select_gates
from opencoti_build.gates.result import Result, read
from opencoti_build.gates.subject import PATCHED, Subject
from opencoti_build.gates.subjects import SubjectBuilder
from opencoti_build.gates.suite import Suite
from opencoti_build.paths import Project
from opencoti_build.ui import Ui
from tests.engine.conftest import TAG

# They build the unpatched base and four broken trees.
pytestmark = [pytest.mark.engine, pytest.mark.slow]

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


def _write_rows(path: Path, rows: list[list[float]], next_tokens: list[int]) -> None:
    data = struct.pack("<8sII", b"OCLOGITS", 1, len(rows[0]))
    for position, (row, following) in enumerate(zip(rows, next_tokens, strict=True)):
        data += struct.pack("<iiii", 0, position, 1, following)
        data += struct.pack(f"<{len(row)}f", *row)
    path.write_bytes(data)


def _log_softmax(row: list[float]) -> list[float]:
    top = max(row)
    total = math.log(sum(math.exp(x - top) for x in row)) + top
    return [x - total for x in row]


def test_the_probe_compares_as_the_definition_says(real: LocalRun, tmp_path: Path) -> None:
    rng = random.Random(4)
    # Exact in 32 bits, so that both sides compute with the same numbers.
    a = [[rng.randint(-40, 40) / 8 for _ in range(50)] for _ in range(20)]
    b = [[x + rng.randint(-2, 2) / 8 for x in row] for row in a[:-1]] + [a[-1]]
    following = [rng.randrange(50) for _ in range(19)] + [-1]
    _write_rows(tmp_path / "a", a, following)
    _write_rows(tmp_path / "b", b, following)
    probe = real.subjects[PATCHED]
    found = compare_logits(probe, tmp_path / "a", tmp_path / "b", tmp_path / "log")

    p, q = ([_log_softmax(row) for row in rows] for rows in (a, b))
    kld = [
        sum(math.exp(x) * (x - y) for x, y in zip(r, s, strict=True))
        for r, s in zip(p, q, strict=True)
    ]
    assert (found.tokens, found.identical) == (20, 1)
    assert found.first_difference == {"sequence": 0, "position": 0}
    assert found.max_delta == 0.25
    assert found.kld_mean == pytest.approx(sum(kld) / 20, rel=1e-6)
    assert found.kld_max == pytest.approx(max(kld), rel=1e-6)
    same = sum(r.index(max(r)) == s.index(max(s)) for r, s in zip(a, b, strict=True))
    assert found.same_top == pytest.approx(same / 20)
    for value, rows in ((found.ppl_reference, p), (found.ppl, q)):
        nll = -sum(row[token] for row, token in zip(rows, following, strict=True) if token >= 0)
        assert value == pytest.approx(math.exp(nll / 19), rel=1e-6)

    (tmp_path / "b").write_bytes((tmp_path / "b").read_bytes()[:-1])
    with pytest.raises(CheckError) as caught:
        compare_logits(probe, tmp_path / "a", tmp_path / "b", tmp_path / "log")
    assert caught.value.reason == "gate-probe-failed"


def test_a_probe_without_a_model_is_an_error(real: LocalRun, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("A few words.")
    args = ["-m", str(tmp_path / "no.gguf")]
    with pytest.raises(CheckError) as caught:
        logits_digests(
            real.subjects[PATCHED], tmp_path / "text", Evaluation(2, 0), args, tmp_path / "log"
        )
    assert caught.value.reason == "gate-probe-failed"
