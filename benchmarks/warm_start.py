"""What the single file adds to the start of the bare engine, once it is unpacked.

    python -m benchmarks.warm_start FILE.llamafile [--rounds 31]

Goal: under 50 ms. Compares ``sh FILE --version`` with ``ENGINE --version``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.lib import table


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=31)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="opencoti-home-") as home:
        env = {**os.environ, "HOME": home}
        cold = _time(["sh", str(args.file), "--version"], env)
        (engine,) = Path(home).glob(".llamafile/v/*/*/opencoti-engine")
        single, bare = [], []
        for _ in range(args.rounds):
            single.append(_time(["sh", str(args.file), "--version"], env))
            bare.append(_time([str(engine), "--version"], env))
    rows = [
        ["first start (unpacks)", 1e3 * cold],
        ["warm start", 1e3 * statistics.median(single)],
        ["bare engine", 1e3 * statistics.median(bare)],
        ["added by the single file", 1e3 * (statistics.median(single) - statistics.median(bare))],
    ]
    print(f"medians of {args.rounds} starts, milliseconds")
    print(table(["", "ms"], rows))


def _time(command: list[str], env: dict[str, str]) -> float:
    start = time.monotonic()
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


if __name__ == "__main__":
    main()
