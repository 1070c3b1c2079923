"""Side-by-side measurements: alternate the candidates, take medians, print a small table."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

Rates = dict[str, float]


def llama_bench(program: Path, model: Path, *words: str) -> Rates:
    """Tokens per second of one llama-bench run, as ``{"prompt": …, "decode": …}``."""
    command = [str(program), "-m", str(model), "-r", "1", "-o", "json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rates = {}
    for row in json.loads(done.stdout):
        rates["decode" if row["n_gen"] else "prompt"] = float(row["avg_ts"])
    return rates


def alternate(candidates: Mapping[str, Callable[[], Rates]], rounds: int) -> dict[str, Rates]:
    """Medians of every rate, with the candidates taking turns in each round.

    The order is reversed every other round, so that drift of the machine hits all alike.
    """
    seen: dict[str, dict[str, list[float]]] = {name: {} for name in candidates}
    for number in range(rounds):
        names = list(candidates)
        for name in names if number % 2 == 0 else reversed(names):
            for rate, value in candidates[name]().items():
                seen[name].setdefault(rate, []).append(value)
        print(f"round {number + 1} of {rounds} done", file=sys.stderr)
    return {
        name: {rate: statistics.median(values) for rate, values in rates.items()}
        for name, rates in seen.items()
    }


@contextlib.contextmanager
def busy_process() -> Iterator[None]:
    """One other process that wants a whole core while the block runs.

    In a session of its own, as another program of the user is: Linux then shares cores between
    the two sessions, not between their threads.
    """
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    try:
        yield
    finally:
        hog.kill()
        hog.wait()


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table with aligned columns."""
    text = [[*map(str, head)], *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in text) for column in range(len(head))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in text
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _cell(value: object) -> str:
    return (
        f"{value:.3g}"
        if isinstance(value, float) and value < 100
        else (f"{value:.0f}" if isinstance(value, float) else str(value))
    )
