"""Patch 0008: token rates with one of two cores busy, and on an idle machine.

Builds the CPU module of this machine twice from the same tree, with and without patch 0008, and
runs the same llama-bench on both. Goals: with one core busy, two threads reach 0.6 x the rate of
one thread; idle, 0.98 x the unpatched rate.

    python -m benchmarks.busy_core [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
from functools import partial

from benchmarks.builds import Bench, build_without, prepare
from benchmarks.lib import Rates, alternate, busy_process, llama_bench, table


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds

    patched = prepare()
    base = build_without(patched, 8)
    print(f"{os.cpu_count()} cores; medians of {rounds} rounds; tokens per second", flush=True)

    idle = _measure(patched, base, rounds, tokens=48)
    with busy_process():
        busy = _measure(patched, base, rounds, tokens=16)  # unpatched may collapse

    rows = []
    for machine, seen in (("idle", idle), ("one core busy", busy)):
        for name, rates in seen.items():
            rows.append([machine, name, rates["prompt"], rates["decode"]])
    print(table(["machine", "build, threads", "prompt", "decode"], rows))

    for rate in ("prompt", "decode"):
        still = idle["patched, 2"][rate] / idle["unpatched, 2"][rate]
        held = busy["patched, 2"][rate] / busy["patched, 1"][rate]
        print(
            f"{rate}: idle {still:.3f} x unpatched (goal 0.98); "
            f"busy {held:.2f} x one thread (goal 0.6)"
        )


def _measure(patched: Bench, base: Bench, rounds: int, tokens: int) -> dict[str, Rates]:
    def run(bench: Bench, threads: int) -> Rates:
        words = ("-t", str(threads), "-p", "64", "-n", str(tokens))
        return llama_bench(bench.program, bench.model, *words)

    return alternate(
        {
            "unpatched, 2": partial(run, base, 2),
            "patched, 2": partial(run, patched, 2),
            "patched, 1": partial(run, patched, 1),
        },
        rounds,
    )


if __name__ == "__main__":
    main()
