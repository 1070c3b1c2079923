"""What the single file adds to a start of the bare engine: first start and warm starts.

    python benchmarks/warm_start.py [FILE ARGUMENT...] [--runs N]

Without FILE, a small test file is built and run. With FILE, its engine is started with the
arguments (default ``--version``), once through the file and once directly. Goal: a warm start
adds less than 50 ms.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.lib.single_file import pack


def timed(command: list[str], env: dict[str, str]) -> float:
    """The milliseconds that ``command`` takes."""
    start = time.perf_counter()
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    return 1000 * (time.perf_counter() - start)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--runs", type=int, default=41)
    options = parser.parse_args()
    arguments = options.arguments or ["--version"]
    with tempfile.TemporaryDirectory() as name:
        file = options.file or pack(Path(name) / "f").path
        env = dict(os.environ, OPENCOTI_HOME=name, OPENCOTI_SELF=str(file))
        rows = {"first start": [timed(["sh", str(file), *arguments], env)]}
        engine = next(Path(name).glob("v/*/*/opencoti-engine"))
        launcher = next(Path(name).glob("v/*/launch-*"))
        commands = {
            "bare engine": [str(engine), *arguments],
            "launcher + engine": [str(launcher), str(file), *arguments],
            "file (warm)": ["sh", str(file), *arguments],
        }
        for _ in range(options.runs):
            for key, command in commands.items():
                rows.setdefault(key, []).append(timed(command, env))
        bare = statistics.median(rows["bare engine"])
        print(f"{'start':<20}{'median ms':>10}{'added ms':>10}")
        for key, values in rows.items():
            median = statistics.median(values)
            print(f"{key:<20}{median:>10.1f}{median - bare:>10.1f}")


if __name__ == "__main__":
    main()
