"""``gate bench``: the speed of a feature on against off, or of the patched engine against base."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opencoti_build.build.context import BuildContext
from opencoti_build.gates.gate import Options
from opencoti_build.gates.models import SMOLLM2
from opencoti_build.gates.speed_run import Contender, Load, Speed, measure_speed, server_args
from opencoti_build.gates.subject import BASE, PATCHED
from opencoti_build.gates.subjects import SubjectBuilder
from opencoti_build.sources.fetch import ensure_file
from opencoti_build.sources.pins import find_pin, load_pins


def bench_rows(
    context: BuildContext,
    options: Options,
    slots: Sequence[int],
    threads: int,
    model: str | None,
) -> list[dict[str, Any]]:
    """One row for each phase and number of slots: the share of the speed that is kept.

    Raises SourceError, SeriesError, BuildError and CheckError.
    """
    builder = SubjectBuilder(context)
    patched = builder.build(PATCHED)
    first = patched if options.on else builder.build(BASE)
    pin = find_pin(load_pins(context.project.vendor), model or SMOLLM2)
    file = ensure_file(pin, context.fetching())
    loads = [Load(phase, count) for count in slots for phase in ("prompt", "decode")]
    rows = []
    with context.ui.task("bench", total=len(loads)) as task:
        for load in loads:
            args = server_args(file, load.slots, threads, options.engine_args)
            with tempfile.TemporaryDirectory(prefix="opencoti-bench-") as scratch:
                speed = measure_speed(
                    Contender(first, args),
                    Contender(patched, (*args, *options.on)),
                    load,
                    Path(scratch),
                    options.max_seconds,
                )
            rows.append({"load": f"{load.phase}, {load.slots} slots", **_row(speed)})
            task.advance()
    return rows


def _row(speed: Speed) -> dict[str, Any]:
    numbers = {"wall": speed.wall, "cpu": speed.cpu}
    return {
        "speed": str(speed),
        **{
            name: [ratio.value, ratio.low, ratio.high] if ratio else None
            for name, ratio in numbers.items()
        },
    }
