"""The comparison of servers' answers, and of their help."""

from __future__ import annotations

import copy
from typing import Any

from opencoti_build.gates.checks import off_identity_help, off_identity_server
from opencoti_build.gates.checks.off_identity_server import (
    PROMISED_KV,
    PROMISED_PROPS,
    compare,
    first_difference,
)

OPENCOTI: dict[str, Any] = {
    **dict.fromkeys(PROMISED_PROPS, 0),
    "kv": {"effective": dict.fromkeys(PROMISED_KV, 0)},
}
BASE: dict[str, Any] = {
    "GET /props, fresh": (200, {"total_slots": 1, "modalities": {"vision": False}}),
    "GET /slots, fresh": (200, [{"id": 0, "n_ctx": 512}]),
    "greedy": (200, {"content": "a", "timings": {"ms": 1.5}, "tokens": [1, 2]}),
}


def _patched() -> dict[str, Any]:
    answers = copy.deepcopy(BASE)
    answers["GET /props, fresh"][1]["opencoti"] = copy.deepcopy(OPENCOTI)
    answers["GET /slots, fresh"][1][0]["opencoti"] = {"session_id": ""}
    answers["greedy"][1]["timings"]["ms"] = 99.0
    return answers


def test_the_promised_object_and_times_are_no_difference() -> None:
    assert compare(BASE, _patched()) == []


def test_a_leaked_key_is_found_wherever_it_is() -> None:
    for path in ("GET /props, fresh", "greedy"):
        answers = _patched()
        answers[path][1]["leaked"] = True
        (problem,) = compare(BASE, answers)
        assert path in problem and ".leaked is only in patched" in problem
    answers = _patched()
    answers["GET /slots, fresh"][1][0]["leaked"] = 1
    assert len(compare(BASE, answers)) == 1


def test_a_missing_promised_key_is_found() -> None:
    answers = _patched()
    del answers["GET /props, fresh"][1]["opencoti"]["dca"]
    del answers["GET /props, fresh"][1]["opencoti"]["kv"]["effective"]["n_cells"]
    assert len(compare(BASE, answers)) == 2
    del answers["GET /props, fresh"][1]["opencoti"]
    assert len(compare(BASE, answers)) == len(PROMISED_PROPS)


def test_other_values_statuses_and_lengths_are_differences() -> None:
    for change in (
        lambda answers: answers.update(greedy=(500, answers["greedy"][1])),
        lambda answers: answers["greedy"][1].update(content="b"),
        lambda answers: answers["greedy"][1].update(tokens=[1]),
        lambda answers: answers["greedy"][1].update(tokens=[1, 2.0]),
        lambda answers: answers["greedy"][1].pop("content"),
    ):
        answers = _patched()
        change(answers)
        assert len(compare(BASE, answers)) == 1


def test_the_place_of_a_difference_is_named() -> None:
    found = first_difference({"a": [{"b": 1}]}, {"a": [{"b": 2}]})
    assert found is not None and found.startswith(".a[0].b is ")
    assert first_difference({"a": 1}, {"a": 1}) is None


HELP = """\
----- common params -----

-h,    --help                    print usage and exit
-t,    --threads N               number of CPU threads
                                 (env: LLAMA_ARG_THREADS)
----- server params -----

--port PORT                      port to listen on
"""


def _compare_help(patched: str) -> tuple[list[str], list[str]]:
    return off_identity_help.compare(HELP, patched)


def test_added_flags_are_named_and_are_no_problem() -> None:
    added = HELP.replace("--port PORT", "--lazy,  --lazy-slots N          grow slots\n--port PORT")
    assert _compare_help(HELP) == ([], [])
    assert _compare_help(added) == ([], ["--lazy", "--lazy-slots"])


def test_changed_and_removed_lines_of_the_base_are_problems() -> None:
    for changed in (
        HELP.replace("number of CPU threads", "threads"),
        HELP.replace("(env: LLAMA_ARG_THREADS)", "(env: OTHER)"),
        HELP.replace("-h,    --help                    print usage and exit\n", ""),
        HELP.replace("----- server params -----", "----- more -----"),
    ):
        assert _compare_help(changed)[0]


def test_each_request_differs_and_every_promised_kind_is_there() -> None:
    requests = off_identity_server._requests()
    bodies = [repr(item) for item in requests.values()]
    assert len(set(bodies)) == len(bodies)
    for key in ("grammar", "n_probs", "seed", "stop", "logit_bias"):
        assert any(key in body for _, body in requests.values())
