"""What repeated layers cost: decode and prompt speed, and the KV cache, beside the same model.

    python -m benchmarks.repeat_layers ENGINE MODEL PLAN [--tokens N] [--rounds N] [--threads N]

ENGINE is ``opencoti-engine`` as ``opencoti-build build engine --out`` writes it, or the single
file. The two servers run one after the other in every round; medians are printed.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import tempfile
from pathlib import Path

from benchmarks.lib import Rates, alternate, table
from tests.lib.server import running

PROMPT = "The history of the lighthouse begins with a fire on a hill. " * 24


def measure(engine: Path, model: Path, plan: str, tokens: int, threads: int) -> Rates:
    """Tokens per second of the prompt and of decoding, and the MiB of the KV cache."""
    command = ["sh"] if engine.suffix == ".llamafile" else []
    command += [str(engine), "--server", "-m", str(model), "-c", "2048", "-np", "1"]
    command += ["-t", str(threads), "-lv", "4"]
    if plan:
        command += ["--repeat-layers", plan]
    body = {"prompt": PROMPT, "n_predict": tokens, "temperature": 0, "ignore_eos": True}
    with tempfile.TemporaryDirectory() as folder:
        with running(command, Path(folder) / "log", dict(os.environ)) as server:
            server.request("/completion", {**body, "n_predict": 1, "cache_prompt": False})
            answer = server.request("/completion", {**body, "cache_prompt": False}, 600)[1]
            sizes = re.findall(r"KV buffer size = *([0-9.]+) MiB", server.log_text())
    timings = answer["timings"]
    return {
        "prompt": timings["prompt_per_second"],
        "decode": timings["predicted_per_second"],
        "KV MiB": sum(map(float, sizes)),
    }


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("plan")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    run = functools.partial(measure, options.engine, options.model)
    more = {"tokens": options.tokens, "threads": options.threads}
    candidates = {
        "off": functools.partial(run, plan="", **more),
        options.plan: functools.partial(run, plan=options.plan, **more),
    }
    seen = alternate(candidates, options.rounds)
    rows = [[name, *rates.values()] for name, rates in seen.items()]
    off, on = seen.values()
    rows.append(["ratio", *(on[rate] / off[rate] for rate in off)])
    print(table(["plan", "prompt t/s", "decode t/s", "KV MiB"], rows))


if __name__ == "__main__":
    main()
