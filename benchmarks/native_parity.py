"""The artifact's run-time CPU dispatch against a native build of the same tree.

    python -m benchmarks.native_parity [--rounds 7]

Goal: at least 0.98 x the native rate, prompt and decode.
"""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks.builds import build_native, prepare
from benchmarks.lib import alternate, llama_bench, table


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds

    dispatched = prepare()
    native = build_native(dispatched)
    for threads in (1, 2):
        words = ("-t", str(threads), "-p", "256", "-n", "64")
        seen = alternate(
            {
                "artifact": partial(llama_bench, dispatched.program, dispatched.model, *words),
                "native": partial(llama_bench, native.program, native.model, *words),
            },
            rounds,
        )
        rows = [
            [
                rate,
                seen["artifact"][rate],
                seen["native"][rate],
                seen["artifact"][rate] / seen["native"][rate],
            ]
            for rate in ("prompt", "decode")
        ]
        print(f"{threads} threads, medians of {rounds} rounds, tokens per second")
        print(table(["", "artifact", "native", "ratio"], rows))


if __name__ == "__main__":
    main()
