"""How long ``artifact`` takes when nothing changed.

    python -m benchmarks.no_op [--tag c3] [--rounds 5]

Goal: under 2 seconds. Run ``opencoti-build artifact`` once before.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.lib import table


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tag", default="c3")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    program = [sys.executable, "-m", "opencoti_build.cli.main"]
    rows = []
    with tempfile.TemporaryDirectory(prefix="opencoti-dist-") as out:
        commands = {
            "artifact": ["artifact", "--tag", args.tag, "--out", out, "--quiet", "--no-cuda"],
            "plan": ["plan", "--tag", args.tag, "--quiet", "--no-cuda"],
            "series apply": ["series", "apply", "--quiet"],
            "--help": ["--help"],
        }
        for name, words in commands.items():
            subprocess.run([*program, *words], check=True, stdout=subprocess.DEVNULL)
            times = []
            for _ in range(args.rounds):
                start = time.monotonic()
                subprocess.run([*program, *words], check=True, stdout=subprocess.DEVNULL)
                times.append(time.monotonic() - start)
            rows.append([name, statistics.median(times)])
    print(f"nothing changed; medians of {args.rounds} runs")
    print(table(["command", "seconds"], rows))


if __name__ == "__main__":
    main()
