"""Prompt tokens that two interleaved agents compute a turn, with and without session_id.

Two agents share a system prompt of about 500 tokens and have histories of about 2,000 tokens;
they take turns on a server with two slots.

    python -m benchmarks.session_reuse opencoti-engine MODEL.gguf
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.lib import table
from tests.lib.server import Server, running

TURNS = 4
TEXT = "the train to that town will leave late so they wait and talk about rain and old books"


def words(seed: int, count: int) -> str:
    choose = random.Random(seed)
    return " ".join(choose.choice(TEXT.split()) for _ in range(count))


def computed(server: Server, named: bool) -> list[int]:
    """Prompt tokens computed in every turn after the first one of each agent."""
    system = words(0, 500)
    histories = {
        name: f"{system} {name} {words(seed, 1500)}" for seed, name in ((1, "a"), (2, "b"))
    }
    seen = []
    for turn in range(TURNS):
        for name in histories:
            body = {"prompt": histories[name], "n_predict": 16, "temperature": 0}
            if named:
                body["session_id"] = name
            status, answer = server.request("/completion", body, timeout=600)
            assert status == 200, answer
            if turn > 0:
                seen.append(int(answer["timings"]["prompt_n"]))
            histories[name] += answer["content"] + " " + words(turn, 30)
    return seen


def main() -> None:
    engine, model = sys.argv[1:3]
    rows = []
    for cache in ("8192", "0"):
        for named in (False, True):
            command = [engine, "--server", "-m", model, "-c", "8192", "-np", "2", "-t", "2"]
            with tempfile.TemporaryDirectory() as folder:
                log = Path(folder) / "log"
                with running([*command, "-cram", cache], log) as server:
                    seen = computed(server, named)
            rows.append([cache, "yes" if named else "no", statistics.median(seen), max(seen)])
    print(table(["--cache-ram MiB", "session_id", "computed a turn", "worst turn"], rows))


if __name__ == "__main__":
    main()
