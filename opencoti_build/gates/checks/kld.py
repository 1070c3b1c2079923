"""A feature on against the same engine with it off: how far the logits move."""

from __future__ import annotations

from opencoti_build.gates.checks.off_identity import arguments
from opencoti_build.gates.gate import Bench, Case, Gate, Measure, Options, Verdict
from opencoti_build.gates.models import MODELS
from opencoti_build.gates.probe_run import Difference, Evaluation, compare_logits, write_logits
from opencoti_build.gates.subject import PATCHED
from opencoti_build.gates.texts import prose

_TOKENS, _DECODED = 384, 64
_SEED = 11
# Mean divergence in nats from an f16 cache that is tolerated: about three times what these models
# show (q8_0: 0.0034 and 0.0054, q4_0: 0.059 and 0.091). A feature states its own with --limit.
_CACHES = {"q8_0": 0.016, "q4_0": 0.27}


def _cases(options: Options) -> list[Case]:
    if options.on:
        limit = {"limit": options.limit} if options.limit is not None else {}
        words = " ".join(options.on)
        return [Case(words, model, {"on": list(options.on), **limit}) for model in MODELS]
    return [
        Case(f"{kv} cache", model, {"on": ["-ctk", kv, "-ctv", kv], "limit": limit})
        for model in MODELS
        for kv, limit in _CACHES.items()
    ]


def measure(bench: Bench, case: Case) -> Difference:
    """Evaluate the text with the feature off and on, in the patched engine."""
    subject = bench.subjects[PATCHED]
    text = bench.scratch / "text"
    text.write_text(prose(_SEED, 60), encoding="utf-8")
    params = {"batch": "128/128", "threads": "2", "fa": "on", "kv": "f16", "sequences": "1"}
    off = arguments(bench.model(case), {**params, "tokens": _TOKENS})
    on = case.params["on"]
    assert isinstance(on, list)
    what = Evaluation(_TOKENS, _DECODED)
    files = {}
    for name, args in (("off", off), ("on", [*off, *map(str, on)])):
        files[name] = bench.scratch / f"{name}.logits"
        log = bench.scratch / f"{name}.log"
        write_logits(subject, text, what, [*args, *bench.options.engine_args], files[name], log)
    return compare_logits(subject, files["off"], files["on"], bench.scratch / "compare.log")


def _run(bench: Bench, case: Case) -> Measure:
    found = measure(bench, case)
    words = (
        f"mean KLD {found.kld_mean}, 99.9 % {found.kld_999}, max |delta| {found.max_delta}, "
        f"same top token {found.same_top}, perplexity {found.ppl_reference} -> {found.ppl}"
    )
    limit = case.params.get("limit")
    if found.kld_mean is None:
        return Measure(Verdict.FAIL, None, f"not a number; {words}")
    if limit is None:
        return Measure(Verdict.INCONCLUSIVE, found.kld_mean, f"no --limit was given; {words}")
    good = found.kld_mean <= float(str(limit))
    return Measure(
        Verdict.PASS if good else Verdict.FAIL, found.kld_mean, f"limit {limit}; {words}"
    )


GATE = Gate(
    name="kld",
    proves="a feature that changes the forward pass stays close to the plain engine",
    inputs="a generated text, evaluated with the feature off and on; without --on: the KV types "
    "q8_0 and q4_0 against f16",
    limit="mean KLD as stated for the feature",
    cases=_cases,
    run=_run,
)
