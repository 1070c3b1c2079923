"""Content keys, the store of finished steps, and the reason of a re-run."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from opencoti_build.build.steps import Step, StepStore, changed_inputs
from opencoti_build.paths import Cache

STEP = Step("engine x", {"tree": "a" * 40, "options": {"O": "3", "g": "0"}, "version": 1})
# Golden: a change of this key makes every user build everything again. Do it on purpose only.
KEY = "c3cee3fc6766c5c621fa140212128606e64520dafb8304e84ec6493841544044"


def test_the_key_is_stable() -> None:
    assert STEP.key == KEY
    assert Step("engine x", dict(reversed(STEP.inputs.items()))).key == KEY
    assert Step("engine y", STEP.inputs).key != KEY


def test_a_step_runs_once(tmp_path: Path) -> None:
    store, runs = StepStore(Cache(tmp_path)), []

    def action(folder: Path) -> None:
        runs.append(1)
        (folder / "out").write_text("made")

    first = store.run(STEP, action)
    assert store.run(STEP, action) == first
    assert (first / "out").read_text() == "made"
    assert runs == [1]


def test_a_failed_or_killed_step_is_never_taken_for_finished(tmp_path: Path) -> None:
    store = StepStore(Cache(tmp_path))

    def fails(folder: Path) -> None:
        (folder / "out").write_text("half")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        store.run(STEP, fails)
    assert store.find(STEP) is None
    assert [path.name for path in (tmp_path / "steps").iterdir()] == []
    # A kill leaves a folder without its record: as good as nothing.
    (tmp_path / "steps" / STEP.key).mkdir()
    assert store.find(STEP) is None
    assert store.run(STEP, lambda folder: None) == tmp_path / "steps" / STEP.key


def test_the_plan_names_the_inputs_that_changed(tmp_path: Path) -> None:
    store = StepStore(Cache(tmp_path))
    assert store.state(STEP).why == "never built here"
    store.run(STEP, lambda folder: None)
    assert store.state(STEP).why == "cached"
    changed = Step(STEP.name, {**STEP.inputs, "tree": "b" * 40, "options": {"O": "2", "g": "0"}})
    assert store.state(changed).changed == ("options.O", "tree")
    assert store.state(changed).why == "changed: options.O, tree"


def test_changed_inputs_sees_added_and_removed_names() -> None:
    assert changed_inputs({"a": 1, "b": {"c": 1}}, {"b": {"d": 1}}) == ("a", "b.c", "b.d")
    assert changed_inputs({"a": [1, 2]}, {"a": [1, 2]}) == ()


def _count(root: Path, log: Path) -> None:
    def action(folder: Path) -> None:
        with log.open("a") as stream:
            stream.write("run\n")

    StepStore(Cache(root)).run(STEP, action)


def test_two_processes_build_a_step_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    start = multiprocessing.get_context("spawn")
    both = [start.Process(target=_count, args=(tmp_path / "cache", log)) for _ in range(3)]
    for process in both:
        process.start()
    for process in both:
        process.join(30)
        assert process.exitcode == 0
    assert log.read_text() == "run\n"
