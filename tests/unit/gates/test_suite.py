"""Running, keeping and merging results, on gates and engines that are no real ones."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from opencoti_build.errors import CheckError, UsageError
from opencoti_build.gates import local, registry
from opencoti_build.gates.device import PLAN
from opencoti_build.gates.gate import Bench, Case, Gate, Measure, Options, Verdict
from opencoti_build.gates.local import LocalRun
from opencoti_build.gates.pack import pack_folder
from opencoti_build.gates.registry import load_gates, select_gates
from opencoti_build.gates.result import Result, Subjects, merge, read, render, table
from opencoti_build.gates.subject import BASE, PATCHED, Subject
from opencoti_build.gates.suite import Suite
from opencoti_build.paths import find_project
from opencoti_build.ui import Ui

QUIET = Ui(quiet=True)
IDENTITY = Subjects("a" * 40, "b" * 40, "1.0", "t", "haswell", {"zig": {}}, "c" * 64)


class Counter:
    """A gate whose cases count how often they ran; the verdict of each is in its params."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    def gate(self, *verdicts: Verdict, **more: Any) -> Gate:
        cases = [
            Case(f"case {n}", "", {"verdict": verdict.value}) for n, verdict in enumerate(verdicts)
        ]
        return Gate("counter", "p", "i", "l", lambda options: cases, self.run, **more)

    def run(self, bench: Bench, case: Case) -> Measure:
        assert list(bench.scratch.iterdir()) == []
        self.runs.append(case.name)
        return Measure(Verdict(case.params["verdict"]), 1.5, "words")


def _suite(tmp_path: Path, **more: Any) -> Suite:
    subjects = {
        name: Subject(name, tmp_path / name, ("server",), f"key of {name}", "t")
        for name in (BASE, PATCHED)
    }
    return Suite(subjects, {}, tmp_path / "kept", "t", QUIET, **more)


def test_what_passed_is_not_measured_again_and_what_did_not_is(tmp_path: Path) -> None:
    counter = Counter()
    gate = counter.gate(Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)
    first = _suite(tmp_path).run([gate])
    assert [r.verdict for r in first] == [Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE]
    assert _suite(tmp_path).run([gate]) == first
    assert counter.runs == ["case 0", "case 1", "case 2", "case 1", "case 2"]
    _suite(tmp_path, again=True, only="case 0").run([gate])
    assert counter.runs[-1] == "case 0"
    assert len(counter.runs) == 6


def test_everything_that_can_change_a_result_changes_its_key(tmp_path: Path) -> None:
    gate = Counter().gate(Verdict.PASS, facts=("artifacts",))
    timed = Counter().gate(Verdict.PASS, measures_time=True)
    (case,) = gate.cases(Options())
    suite = _suite(tmp_path)
    other = dataclasses.replace(suite.subjects[PATCHED], key="another build")
    changed = [
        _suite(tmp_path, options=Options(on=("-x",))),
        _suite(tmp_path, options=Options(engine_args=("-x",))),
        _suite(tmp_path, device="a GPU"),
        _suite(tmp_path, facts={"artifacts": [1]}),
        dataclasses.replace(suite, subjects={**suite.subjects, PATCHED: other}),
    ]
    keys = {item.key(gate, case) for item in (suite, *changed)}
    assert len(keys) == 6
    here, there = (_suite(tmp_path, machine=name) for name in ("here", "there"))
    assert here.key(gate, case) == there.key(gate, case)
    assert here.key(timed, case) != there.key(timed, case)
    assert _suite(tmp_path, facts={"other": 1}).key(gate, case) == suite.key(gate, case)


def test_an_error_fails_its_case_only(tmp_path: Path) -> None:
    def run(bench: Bench, case: Case) -> Measure:
        bench.model(case)
        return Measure(Verdict.PASS)

    cases = [Case("without", "no-such-model"), Case("needs none", "m")]
    gate = Gate("g", "p", "i", "l", lambda options: cases, run)
    suite = dataclasses.replace(_suite(tmp_path), models={"m": (tmp_path, "sha")})
    first, second = suite.run([gate])
    assert (first.verdict, second.verdict) == (Verdict.FAIL, Verdict.PASS)
    assert "[gate-model-missing]" in first.detail


def test_results_name_the_command_that_measures_them(tmp_path: Path) -> None:
    options = Options(full=True, on=("--flag", "2"))
    (result,) = _suite(tmp_path, options=options).run([Counter().gate(Verdict.PASS)])
    assert result.command == (
        "opencoti-build gate run counter --tag t --case 'case 0' --again --full --on '--flag 2'"
    )


def test_gates_json_follows_its_schema_and_comes_back(tmp_path: Path) -> None:
    results = _suite(tmp_path).run([Counter().gate(Verdict.PASS, Verdict.SKIPPED)])
    data = render(IDENTITY, results)
    folder = find_project().root / "manifests" / "schema"
    schema = json.loads((folder / "gates-1.json").read_text())
    jsonschema.validate(json.loads(data), schema)
    manifest = json.loads((folder / "manifest-1.json").read_text())
    assert manifest["$defs"]["result"] == schema["$defs"]["result"]
    (tmp_path / "gates.json").write_bytes(data)
    assert read(tmp_path / "gates.json") == (IDENTITY, results)
    assert json.loads(data)["ok"] is True
    failed = dataclasses.replace(results[0], verdict=Verdict.FAIL)
    assert json.loads(render(IDENTITY, [failed]))["ok"] is False
    assert "FAIL" in table([failed]) and "words" in table([failed])


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 1, "results": []}'])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "gates.json").write_text(text)
    with pytest.raises(UsageError) as caught:
        read(tmp_path / "gates.json")
    assert caught.value.reason == "gates-file-invalid"


def test_merging_replaces_the_same_case_only(tmp_path: Path) -> None:
    first, second = _suite(tmp_path).run([Counter().gate(Verdict.PASS, Verdict.FAIL)])
    better = dataclasses.replace(second, verdict=Verdict.PASS)
    elsewhere = dataclasses.replace(first, device="a GPU")
    assert merge([first, second], [better, elsewhere]) == [first, better, elsewhere]


@dataclasses.dataclass(frozen=True)
class FakeContext:
    """As much of a BuildContext as the kept results need."""

    cache: Any
    recipe: Any
    tag: str = "t"


@dataclasses.dataclass(frozen=True)
class Named:
    """Anything with a few attributes."""

    version: str = "1.0"
    base_tree: str = "a" * 40
    tree: str = "b" * 40


def test_kept_results_are_those_of_exactly_this_tree_tag_and_gates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opencoti_build.paths import Cache

    context: Any = FakeContext(Cache(tmp_path), Named())
    tree: Any = Named()
    rows = [Result("g", "m", "c", 1.0, "l", Verdict.PASS, "", "cmd")]
    assert local.kept_results(context, tree) == []
    local.keep_results(context, local.identity(context, tree, "haswell"), rows)
    assert local.kept_results(context, tree) == rows
    moved: Any = dataclasses.replace(Named(), tree="d" * 40)
    assert local.kept_results(context, moved) == []
    other: Any = dataclasses.replace(context, tag="u")
    assert local.kept_results(other, tree) == []

    file = tmp_path / "gates.json"
    file.write_bytes(render(local.identity(context, tree, "zen4"), rows))
    assert local.merge_file(context, tree, file) == rows
    with pytest.raises(UsageError) as caught:
        local.merge_file(context, moved, file)
    assert caught.value.reason == "gates-file-stale"
    assert list(caught.value.context) == ["workspace_tree"]
    monkeypatch.setattr(local, "gates_digest", lambda: "e" * 64)
    assert local.kept_results(context, tree) == []


def test_a_new_file_is_a_new_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = load_gates()
    assert {"off-identity", "off-identity-server", "kld", "retrieval", "speed", "size"} <= {*known}
    text = Path(registry._FOLDER / "off_identity_help.py").read_text()
    for path in registry._FOLDER.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "zz_new.py").write_text(text.replace('"off-identity-help"', '"brand-new"'))
    from opencoti_build.gates import checks

    monkeypatch.setattr(registry, "_FOLDER", tmp_path)
    monkeypatch.setattr(checks, "__path__", [str(tmp_path)])
    assert set(load_gates()) == {*known, "brand-new"}
    sys.modules.pop("opencoti_build.gates.checks.zz_new")


def test_every_gate_says_what_it_is_and_its_cases_have_names_of_their_own() -> None:
    for gate in load_gates().values():
        assert gate.proves and gate.inputs and gate.limit
        for options in (Options(), Options(full=True), Options(on=("-x",))):
            cases = gate.cases(options)
            assert cases
            assert len({(case.name, case.model) for case in cases}) == len(cases)
            json.dumps([dict(case.params) for case in cases])


def test_unknown_and_default_gates() -> None:
    gates = load_gates()
    assert [gate.name for gate in select_gates(gates, ["speed", "kld"])] == ["kld", "speed"]
    assert all(gate.default for gate in select_gates(gates, []))
    with pytest.raises(UsageError) as caught:
        select_gates(gates, ["speeed"])
    assert caught.value.reason == "gate-unknown"


ENGINE = """\
#!/bin/sh
echo "-h, --help   print usage"
[ "$NAME" = patched ] || exit 0
"""


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A folder with two programs that only know --help."""
    subjects = {}
    for name in (BASE, PATCHED):
        folder = tmp_path / "built" / name
        folder.mkdir(parents=True)
        (folder / "server").write_text(ENGINE)
        (folder / "server").chmod(0o755)
        subjects[name] = Subject(name, folder, ("server",), f"key of {name}", "t")
    model = tmp_path / "model.gguf"
    model.write_bytes(b"model")
    sha = "9372c470eeadd5ecd9c3c74c2b3cb633f8e2f2fad799250a0f70d652b6b825e4"
    suite = Suite(subjects, {"m": (model, sha)}, tmp_path / "kept", "t", QUIET)
    run = LocalRun.__new__(LocalRun)
    run.gates = select_gates(load_gates(), ["off-identity-help"])
    run.identity = IDENTITY
    library = tmp_path / "ggml-cuda.so"
    library.write_bytes(b"library")
    pack_folder(run, suite, tmp_path / "out", [library])
    return tmp_path / "out"


def _run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    # -S and -I: nothing but the standard library, nothing of this environment.
    command = [sys.executable, "-I", "-S", str(folder / "run.py"), *args]
    return subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=120)


def test_the_folder_runs_with_the_standard_library_alone(packed: Path) -> None:
    done = _run(packed, "--device", "a GPU")
    assert done.returncode == 0, done.stderr
    assert "PASS" in done.stdout
    subjects, (result,) = read(packed / "gates.json")
    assert subjects == IDENTITY
    assert (result.verdict, result.device) == (Verdict.PASS, "a GPU")
    assert (packed / BASE / "engine" / "libggml-cuda.so").read_bytes() == b"library"
    assert not list(packed.rglob("__pycache__"))


def test_the_folder_reports_what_fails_there(packed: Path) -> None:
    path = packed / PATCHED / "engine" / "server"
    path.write_text(ENGINE.replace("print usage", "print something else"))
    done = _run(packed)
    assert done.returncode == 1
    assert read(packed / "gates.json")[1][0].verdict is Verdict.FAIL


def test_a_damaged_folder_is_refused(packed: Path, tmp_path: Path) -> None:
    (packed / "models" / "model.gguf").write_bytes(b"other")
    done = _run(packed)
    assert done.returncode == 2
    assert "[gate-folder-damaged]" in done.stderr
    plan = json.loads((packed / PLAN).read_text())
    assert plan["gates"] == ["off-identity-help"]


def test_a_folder_of_something_else_is_not_overwritten(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    run = LocalRun.__new__(LocalRun)
    with pytest.raises(UsageError) as caught:
        pack_folder(run, _suite(tmp_path), tmp_path / "mine", [])
    assert caught.value.reason == "gate-folder-exists"
    assert (tmp_path / "mine" / "file").read_text() == "mine"


def test_a_case_error_is_a_check_error() -> None:
    bench = Bench({}, {}, Path())
    with pytest.raises(CheckError):
        bench.model(Case("c", "m"))


def test_the_command_line_lists_gates_and_refuses_unknown_ones() -> None:
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "opencoti_build.cli.main", "gate", *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    listed = run("list", "--json")
    assert {row["gate"] for row in json.loads(listed.stdout)} == {*load_gates()}
    unknown = run("run", "no-such-gate")
    assert unknown.returncode == 2
    assert "[gate-unknown]" in unknown.stderr
