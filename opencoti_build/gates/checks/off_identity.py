"""With no feature on, every logit of the patched engine is the base's, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from opencoti_build.gates.gate import Bench, Case, Gate, Measure, Options, Verdict
from opencoti_build.gates.models import MODELS
from opencoti_build.gates.pairs import all_pairs, product
from opencoti_build.gates.probe_run import (
    Difference,
    Evaluation,
    compare_logits,
    logits_digests,
    write_logits,
)
from opencoti_build.gates.subject import BASE, PATCHED
from opencoti_build.gates.texts import prose

_FACTORS: Mapping[str, Sequence[str]] = {
    # n_batch / n_ubatch: the whole prompt, several whole micro-batches, an odd rest
    "batch": ("256/256", "48/16", "7/7"),
    "threads": ("1", "2"),
    "fa": ("on", "off"),
    "kv": ("f16", "q8_0", "q4_0"),
    "sequences": ("1", "4 unified", "4 apart"),
}
# Longer than Gemma's sliding window of 512 tokens, and than a padded cache of 256 cells.
_LONG = {"batch": "512/128", "threads": "2", "fa": "on", "kv": "f16", "sequences": "1"}
_LONG_TOKENS = 700
_SEED = 1
_SENTENCES = 120


def _cases(options: Options) -> list[Case]:
    rows = product(_FACTORS) if options.full else all_pairs(_FACTORS)
    cases = []
    for model in MODELS:
        for row in rows:
            cases.append(Case(_name(row), model, {**row, "tokens": 96, "decoded": 16}))
        long = {**_LONG, "tokens": _LONG_TOKENS, "decoded": 24}
        cases.append(Case("long, " + _name(_LONG), model, long))
    return cases


def _name(row: Mapping[str, str]) -> str:
    return (
        f"batch {row['batch']}, {row['threads']} threads, fa {row['fa']}, kv {row['kv']}, "
        f"sequences {row['sequences']}"
    )


def _run(bench: Bench, case: Case) -> Measure:
    text = bench.scratch / "text"
    text.write_text(prose(_SEED, _SENTENCES), encoding="utf-8")
    what = evaluation(case.params)
    args = [*arguments(bench.model(case), case.params), *bench.options.engine_args]
    base, patched = bench.subjects[BASE], bench.subjects[PATCHED]
    ours = logits_digests(patched, text, what, args, bench.scratch / "patched.log")
    theirs = logits_digests(base, text, what, args, bench.scratch / "base.log")
    different = sum(a != b for a, b in zip(ours, theirs, strict=True))
    if not different:
        return Measure(Verdict.PASS, 0, f"{len(ours)} rows of logits")
    difference = _difference(bench, text, what, args)
    at = difference.first_difference or {}
    where = ", ".join(f"{key} {value}" for key, value in at.items())
    words = f"first at {where}; max |delta| {difference.max_delta}; mean KLD {difference.kld_mean}"
    return Measure(Verdict.FAIL, different, f"{different} of {len(ours)} rows differ, {words}")


def _difference(bench: Bench, text: Path, what: Evaluation, args: Sequence[str]) -> Difference:
    """How large a difference is that the digests showed."""
    files = {}
    for subject in bench.subjects.values():
        files[subject.name] = bench.scratch / f"{subject.name}.logits"
        log = bench.scratch / f"{subject.name}.log"
        write_logits(subject, text, what, args, files[subject.name], log)
    log = bench.scratch / "compare.log"
    return compare_logits(bench.subjects[PATCHED], files[BASE], files[PATCHED], log)


def evaluation(params: Mapping[str, object]) -> Evaluation:
    """What a case's params say about the tokens; with four sequences each gets half of them."""
    tokens, decoded = int(str(params["tokens"])), int(str(params["decoded"]))
    sequences = int(str(params["sequences"]).split()[0])
    return (
        Evaluation(tokens // 2, decoded // 2, sequences)
        if sequences > 1
        else Evaluation(tokens, decoded)
    )


def arguments(model: Path, params: Mapping[str, object]) -> list[str]:
    """The engine's arguments for a case's params."""
    batch, _, ubatch = str(params["batch"]).partition("/")
    kv, fa = str(params["kv"]), str(params["fa"])
    sequences, _, layout = str(params["sequences"]).partition(" ")
    room = -(-int(str(params["tokens"])) // 256) * 256
    args = ["-m", str(model), "-c", str(room * int(sequences)), "-b", batch, "-ub", ubatch]
    args += ["-t", str(params["threads"]), "-tb", str(params["threads"])]
    # Without flash attention the base refuses a quantized V.
    args += ["-fa", fa, "-ctk", kv, "-ctv", kv if fa == "on" else "f16"]
    return [*args, "-kvu" if layout == "unified" else "-no-kvu", "-np", sequences]


GATE = Gate(
    name="off-identity",
    proves="with no feature on, every logit is the base's, bit for bit",
    inputs="a generated text; batch sizes, threads, flash attention, KV types, sequences (every "
    "pair of values; --full: every combination)",
    limit="0 rows of logits differ",
    cases=_cases,
    run=_run,
)
