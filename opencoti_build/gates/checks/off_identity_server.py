"""With no feature on, the patched server answers every recorded request as the base does."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Sequence
from typing import Any

from opencoti_build.gates.gate import Bench, Case, Gate, Measure, Options, Verdict
from opencoti_build.gates.models import GEMMA3, SMOLLM2
from opencoti_build.gates.server import Server, running
from opencoti_build.gates.subject import BASE, PATCHED
from opencoti_build.gates.texts import prose

# Fields that tell when or how fast, and random ids.
_VOLATILE = {"timings", "created", "id", "id_task", "media_marker"}
# What patches may add: the usage guide's object, in /props and in each slot of /slots.
PROMISED_KEY = "opencoti"
# And what it has to hold in /props.
PROMISED_PROPS = {
    "kv", "residency", "dca", "sparse_attn", "speculative", "kv_reuse", "rest_kv", "repeat_layers",
    "backend",
}  # fmt: skip
PROMISED_KV = {
    "type_k", "type_v", "n_cells", "n_cells_resident", "n_layers_spilling", "fully_resident",
    "is_iswa",
}  # fmt: skip

_GRAMMAR = 'root ::= "[" item (", " item)* "]"\nitem ::= [a-z]+ ":" [0-9]+'
_STORY = prose(2, 12)
_ARGS = {
    "one slot": ("-c", "1024", "-np", "1"),
    "two slots": ("-c", "2048", "-np", "2"),
    "two slots apart": ("-c", "2048", "-np", "2", "-no-kvu"),
    "quantized cache": ("-c", "1024", "-np", "1", "-ctk", "q8_0", "-ctv", "q4_0", "-fa", "on"),
}
_COMMON = ("-t", "2", "-b", "128", "-ub", "64", "--slots", "--no-webui")


def _completion(prompt: str, **more: Any) -> tuple[str, dict[str, Any]]:
    body = {"prompt": prompt, "n_predict": 16, "temperature": 0, "cache_prompt": False, **more}
    return "/completion", body


def _requests() -> dict[str, tuple[str, dict[str, Any]]]:
    sampled = {"temperature": 0.9, "top_k": 30, "top_p": 0.9, "min_p": 0.02, "n_predict": 24}
    chat = {
        "messages": [
            {"role": "system", "content": "You answer in one sentence."},
            {"role": "user", "content": "Name three rivers of Europe."},
        ],
        "temperature": 0,
        "max_tokens": 16,
    }
    return {
        "greedy": _completion(_STORY[:300], return_tokens=True),
        "sampled": _completion(_STORY[:200], seed=7, **sampled),
        "penalties": _completion(
            _STORY[:200], seed=3, repeat_penalty=1.3, presence_penalty=0.5, dry_multiplier=0.8,
            **{**sampled, "mirostat": 0},
        ),
        "mirostat": _completion(_STORY[:100], seed=5, **{**sampled, "mirostat": 2}),
        "grammar": _completion("A list of fruit: ", grammar=_GRAMMAR, seed=1, **sampled),
        "json schema": _completion(
            "The person: ",
            json_schema={
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": 8},
                    "age": {"type": "integer"},
                },
                "required": ["name", "age"],
            },
            n_predict=32,
        ),
        "n_probs": _completion(_STORY[:150], n_probs=5, n_predict=8),
        "n_probs after sampling": _completion(
            _STORY[:150], n_probs=3, post_sampling_probs=True, seed=2, **{**sampled, "n_predict": 8}
        ),
        "stop word": _completion(_STORY[:250], stop=[".", "and"]),
        "logit bias": _completion(_STORY[:120], logit_bias=[[260, False], [" the", -1.5]]),
        "chat": ("/v1/chat/completions", {**chat, "logprobs": True, "top_logprobs": 2}),
        "first use of a prefix": _completion(_STORY[:600], cache_prompt=True),
        "the same prefix again": _completion(_STORY[:600] + " Then", cache_prompt=True),
        "a shorter prefix": _completion(_STORY[:400] + " Now", cache_prompt=True, n_probs=2),
        "tokenize": ("/tokenize", {"content": _STORY[:80], "add_special": True}),
        "template": ("/apply-template", {"messages": chat["messages"]}),
        "no such field": ("/completion", {"n_predict": 1}),
        "no such route": ("/no-such-route", {}),
    }  # fmt: skip


def _cases(options: Options) -> list[Case]:
    rows = [(SMOLLM2, name) for name in _ARGS] + [(GEMMA3, "one slot"), (GEMMA3, "two slots")]
    return [Case(name, model, {"args": list(_ARGS[name])}) for model, name in rows]


def _run(bench: Bench, case: Case) -> Measure:
    answers = {}
    args = ["-m", str(bench.model(case)), *_COMMON, *_strings(case.params["args"])]
    args += bench.options.engine_args
    for name in (BASE, PATCHED):
        log = bench.scratch / f"{name}.log"
        with running(bench.subjects[name], args, log) as server:
            answers[name] = _ask_everything(server, "two" in case.name)
    problems = compare(answers[BASE], answers[PATCHED])
    if not problems:
        return Measure(Verdict.PASS, 0, f"{len(answers[BASE])} answers")
    shown = "; ".join(problems[:5])
    return Measure(Verdict.FAIL, len(problems), shown)


def _ask_everything(server: Server, two_slots: bool) -> dict[str, Any]:
    answers: dict[str, Any] = {"GET /props, fresh": server.ask("/props")}
    answers["GET /slots, fresh"] = server.ask("/slots")
    answers["GET /v1/models"] = server.ask("/v1/models")
    for name, (path, body) in _requests().items():
        # In a slot of its own choice; with two of them the cache must not depend on the timing.
        answers[name] = server.ask(path, {**body, "id_slot": 0} if path == "/completion" else body)
    if two_slots:
        answers.update(_ask_both_slots(server))
    answers["GET /props, used"] = server.ask("/props")
    answers["GET /slots, used"] = server.ask("/slots")
    return answers


def _ask_both_slots(server: Server) -> dict[str, Any]:
    """Two requests at once, and the slots in turns.

    When the batches of two requests meet is chance, and with it the last bits of the logits: of
    those only what does not depend on them is compared (length and bookkeeping).
    """
    bodies = [
        _completion(_STORY[slot * 50 : slot * 50 + 200], id_slot=slot, ignore_eos=True)[1]
        for slot in (0, 1)
    ]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda body: server.ask("/completion", body), bodies))
    answers: dict[str, Any] = {}
    for slot, (status, answer) in enumerate(both):
        names = ("tokens_predicted", "tokens_evaluated", "stop_type", "id_slot")
        kept = {name: answer.get(name) for name in names}
        answers[f"at once, slot {slot}"] = (status, {**kept, "keys": sorted(answer)})
    for turn in ("first", "second"):
        for slot, body in enumerate(bodies):
            # The first turn fills each slot anew, the second goes on with what is cached there.
            more = {"cache_prompt": turn == "second", "n_probs": 2}
            answers[f"in turns, {turn}, slot {slot}"] = server.ask("/completion", {**body, **more})
    return answers


def compare(base: dict[str, Any], patched: dict[str, Any]) -> list[str]:
    """What differs between the answers of the two, in words; empty when nothing does."""
    problems = []
    for name, theirs in base.items():
        ours = patched[name]
        if name.startswith("GET /props"):
            missing = missing_keys(ours[1])
            problems += [f"{name}: {key} is missing in {PROMISED_KEY}" for key in missing]
        difference = first_difference(_comparable(name, theirs), _comparable(name, ours))
        if difference is not None:
            problems.append(f"{name}: {difference}")
    return problems


def missing_keys(props: Any) -> list[str]:
    """The promised keys that /props lacks."""
    added = props.get(PROMISED_KEY, {}) if isinstance(props, dict) else {}
    missing = sorted(PROMISED_PROPS - set(added))
    with contextlib.suppress(KeyError, TypeError):
        missing += sorted(PROMISED_KV - set(added["kv"]["effective"]))
    return missing


def _comparable(name: str, answer: Any) -> Any:
    """An answer without what differs from run to run, and without what patches may add."""
    status, data = _steady(answer)
    if name.startswith("GET /props") and isinstance(data, dict):
        data.pop(PROMISED_KEY, None)
    if name.startswith("GET /slots") and isinstance(data, list):
        for slot in data:
            slot.pop(PROMISED_KEY, None)
    return [status, data]


def _steady(value: Any) -> Any:
    """``value`` without what differs from one run to the next."""
    if isinstance(value, dict):
        return {key: _steady(item) for key, item in value.items() if key not in _VOLATILE}
    if isinstance(value, (list, tuple)):
        return [_steady(item) for item in value]
    return value


def first_difference(base: Any, patched: Any, where: str = "") -> str | None:
    """The path and the two values at the first place where plain data differ; None: nowhere."""
    if isinstance(base, dict) and isinstance(patched, dict):
        for key in [*base, *(key for key in patched if key not in base)]:
            if key not in base or key not in patched:
                return f"key {where}.{key} is only in {'patched' if key in patched else 'base'}"
            if (found := first_difference(base[key], patched[key], f"{where}.{key}")) is not None:
                return found
        return None
    if isinstance(base, list) and isinstance(patched, list) and len(base) == len(patched):
        rows = zip(base, patched, strict=True)
        found_rows = (first_difference(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(rows))
        return next((found for found in found_rows if found is not None), None)
    if base == patched and type(base) is type(patched):
        return None
    return f"{where or 'the answer'} is {str(patched)[:120]!r}, base has {str(base)[:120]!r}"


def _strings(value: object) -> Sequence[str]:
    assert isinstance(value, list)
    return [str(item) for item in value]


GATE = Gate(
    name="off-identity-server",
    proves="with no feature on, the server answers as the base does, and /props and /slots have "
    "the base's keys and the promised ones",
    inputs="a recorded set of requests: greedy, seeded, grammar, n_probs, cache reuse, two slots",
    limit="0 answers differ",
    cases=_cases,
    run=_run,
)
