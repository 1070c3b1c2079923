"""Memory and file sizes are what was promised."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.errors import CheckError
from opencoti_build.gates.gate import Bench, Case, Gate, Measure, Options, Verdict
from opencoti_build.gates.kv_types import KV_TYPES
from opencoti_build.gates.models import GEMMA3, MODELS, SMOLLM2
from opencoti_build.gates.probe_run import Evaluation, logits_digests
from opencoti_build.gates.server import running
from opencoti_build.gates.subject import BASE, PATCHED
from opencoti_build.gates.texts import prose

_CACHE = re.compile(
    r"llama_kv_cache: size = +[\d.]+ MiB \( *(?P<cells>\d+) cells, *(?P<layers>\d+) layers, "
    r"*\d+/\d+ seqs\), K \((?P<k_type>\w+)\): +(?P<k>[\d.]+) MiB, V \((?P<v_type>\w+)\): "
    r"+(?P<v>[\d.]+) MiB"
)
_WIDTH = re.compile(r"print_info: n_embd_(?P<half>[kv])_gqa += (?P<width>\d+)")
_MIB = 1 << 20
# The log rounds to hundredths of a MiB.
_ROUNDING = 0.005 * _MIB
_CELLS = 8192
# Memory at load: the base's, with room for what the allocator and the clock change.
_LOAD_SHARE, _LOAD_EXTRA = 1.01, 4 * _MIB
_PAIRS = (("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "q4_0"), ("q5_1", "q5_0"), ("q4_0", "q4_0"))


def _cases(options: Options) -> list[Case]:
    pairs = list(_PAIRS)
    if options.full:
        pairs = [(k, v) for k in KV_TYPES for v in KV_TYPES]
    cases = [
        Case(f"KV bytes a token, K {k}, V {v}", model, {"kind": "kv", "k": k, "v": v})
        for model in (MODELS if options.full else (SMOLLM2,))
        for k, v in pairs
    ]
    if not options.full:
        cases.append(
            Case(
                "KV bytes a token, K q8_0, V q4_0", GEMMA3, {"kind": "kv", "k": "q8_0", "v": "q4_0"}
            )
        )
    cases += [Case("memory at load", model, {"kind": "load"}) for model in MODELS]
    return [*cases, Case("size of the single files", "", {"kind": "file"})]


def _run(bench: Bench, case: Case) -> Measure:
    kind = case.params["kind"]
    if kind == "kv":
        return _kv(bench, case)
    return _load(bench, case) if kind == "load" else _file(bench)


@dataclass(frozen=True)
class CacheLine:
    """One cache as the engine logged it; a model with a sliding window has two. Bytes."""

    cells: int
    layers: int
    types: tuple[str, str]
    sizes: tuple[float, float]


def read_caches(log: str) -> list[CacheLine]:
    """Every KV cache in an engine's log."""
    return [
        CacheLine(
            int(match["cells"]),
            int(match["layers"]),
            (match["k_type"], match["v_type"]),
            (float(match["k"]) * _MIB, float(match["v"]) * _MIB),
        )
        for match in _CACHE.finditer(log)
    ]


def read_widths(log: str) -> tuple[int, int]:
    """Values that a layer stores for a token, of K and V. Raises CheckError ``gate-log``."""
    found = {match["half"]: int(match["width"]) for match in _WIDTH.finditer(log)}
    if set(found) != {"k", "v"}:
        raise CheckError("gate-log", "the engine's log does not say how wide its cache is")
    return found["k"], found["v"]


def _kv(bench: Bench, case: Case) -> Measure:
    wanted = (str(case.params["k"]), str(case.params["v"]))
    log = bench.scratch / "kv.log"
    text = bench.scratch / "text"
    text.write_text(prose(1, 2), encoding="utf-8")
    args = ["-m", str(bench.model(case)), "-c", str(_CELLS), "-b", "64", "-t", "1", "-lv", "4"]
    args += ["-fa", "on", "-ctk", wanted[0], "-ctv", wanted[1], *bench.options.engine_args]
    logits_digests(bench.subjects[PATCHED], text, Evaluation(4, 0), args, log)
    caches, widths = read_caches(log.read_text(errors="replace")), read_widths(log.read_text())
    return judge(caches, widths, wanted)


def judge(caches: list[CacheLine], widths: tuple[int, int], wanted: tuple[str, str]) -> Measure:
    """Whether caches of the types ``wanted`` cost what the table promises."""
    if not caches or any(cache.types != wanted for cache in caches):
        found = ", ".join(f"{'/'.join(cache.types)}" for cache in caches) or "none"
        return Measure(Verdict.FAIL, None, f"the caches are {found}")
    worst, per_token, promised_token = 0.0, 0.0, 0.0
    for cache in caches:
        for size, width, name in zip(cache.sizes, widths, wanted, strict=True):
            promised = float(cache.cells * cache.layers * width * KV_TYPES[name].bytes_per_value)
            worst = max(worst, abs(size - promised) - _ROUNDING)
            per_token += size / cache.cells
            promised_token += promised / cache.cells
    words = f"{per_token:.0f} bytes a token, {promised_token:.0f} promised"
    return Measure(Verdict.PASS if worst <= 1 else Verdict.FAIL, per_token, words)


def _load(bench: Bench, case: Case) -> Measure:
    held = {}
    args = ["-m", str(bench.model(case)), "-c", "2048", "-np", "1", "-t", "1", "--no-webui"]
    for name in (BASE, PATCHED):
        log = bench.scratch / f"{name}.log"
        with running(bench.subjects[name], [*args, *bench.options.engine_args], log) as server:
            held[name] = server.memory_bytes()
    if not all(held.values()):
        return Measure(Verdict.SKIPPED, None, "this system does not tell")
    limit = held[BASE] * _LOAD_SHARE + _LOAD_EXTRA
    words = f"{held[PATCHED] / 1e6:.1f} MB, base {held[BASE] / 1e6:.1f} MB"
    verdict = Verdict.PASS if held[PATCHED] <= limit else Verdict.FAIL
    return Measure(verdict, held[PATCHED], words)


def _file(bench: Bench) -> Measure:
    rows = bench.facts.get("artifacts")
    if not isinstance(rows, list) or not rows:
        return Measure(Verdict.SKIPPED, None, "no release folder of exactly this tree was found")
    problems = []
    for row in rows:
        if row["max_size"] is None:
            problems.append(f"{row['file']} has no max_size in the recipe")
        elif row["size"] > row["max_size"]:
            problems.append(f"{row['file']} has {row['size']} bytes, {row['max_size']} allowed")
    largest = max(int(row["size"]) for row in rows)
    if problems:
        return Measure(Verdict.FAIL, largest, "; ".join(problems))
    names = ", ".join(Path(str(row["file"])).name for row in rows)
    return Measure(Verdict.PASS, largest, names)


GATE = Gate(
    name="size",
    proves="a token in the KV cache, a loaded engine and the single files cost what was promised",
    inputs="the engine's log with each KV type, memory after a start, the release folder",
    limit="as the table of KV types, the base and the recipe say",
    cases=_cases,
    run=_run,
    facts=("artifacts",),
)
