"""How fast ``verify`` reads: a 1 GB single file, beside ``sha256sum`` of the same file.

    python benchmarks/verify_speed.py [--size MB] [--runs N]

The runs take turns, so that a busy machine slows both; medians are printed. The goal of the
project is at least 0.9 x the speed of sha256sum.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from opencoti_build.digest import sha256_file
from opencoti_build.pack.bundle import add_model
from opencoti_build.ui import Ui
from opencoti_build.verify.single import verify_file
from tests.lib.single_file import outer_manifest, pack


def timed(work: Callable[[], object]) -> float:
    """The seconds that ``work`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Build the file, measure, print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1000, help="size of the file in MB")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "m.gguf"
        with model.open("wb") as stream:
            stream.write(b"GGUF\3\0\0\0")
            for _ in range(options.size):
                stream.write(os.urandom(1000) * 1000)
        packed = add_model(pack(folder / "host").path, model, folder / "f")
        model.unlink()
        manifest = {"artifacts": outer_manifest(packed)["artifacts"]}
        manifest["artifacts"][0].pop("entries")  # type: ignore[index]
        manifest["artifacts"][0]["sha256"] = sha256_file(packed.path)  # type: ignore[index]
        ui = Ui(quiet=True)

        def verify() -> None:
            report = verify_file(packed.path, manifest, ui)
            assert report.ok, report.reasons

        def sha256sum() -> None:
            subprocess.run(["sha256sum", packed.path], check=True, stdout=subprocess.DEVNULL)

        work: dict[str, Callable[[], None]] = {"sha256sum": sha256sum, "verify": verify}
        sha256sum()  # brings the file into memory
        times: dict[str, list[float]] = {key: [] for key in work}
        for _ in range(options.runs):
            for key, step in work.items():
                times[key].append(timed(step))
        medians = {key: statistics.median(values) for key, values in times.items()}
        print(f"{'tool':<12}{'median s':>10}{'MB/s':>8}{'x sha256sum':>13}")
        for key, seconds in medians.items():
            ratio = medians["sha256sum"] / seconds
            print(f"{key:<12}{seconds:>10.2f}{packed.size / 1e6 / seconds:>8.0f}{ratio:>13.2f}")


if __name__ == "__main__":
    main()
