"""What the commands of ``series`` share: the project, the base, the workbench and tables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opencoti_build.cli.options import json_option, make_ui, offline_option, quiet_option
from opencoti_build.paths import Cache, find_cache, find_project
from opencoti_build.ui import Ui

if TYPE_CHECKING:
    from opencoti_build.series.bench import Bench
    from opencoti_build.series.series import Series

PIN = "llama.cpp"

workspace_option = click.option(
    "--workspace",
    type=click.Path(path_type=Path, file_okay=False),
    help="The workspace folder (default: in the cache).",
)


def load_project_series() -> Series:
    """The series of the project."""
    from opencoti_build.series.series import load_series

    return load_series(find_project().patches)


def base_of(ui: Ui, offline: bool, name: str = PIN) -> tuple[Cache, str]:
    """The cache, and the tree of a pin, brought into it when it is not there yet."""
    from opencoti_build.sources.fetch import FetchContext, ensure_tree
    from opencoti_build.sources.pins import find_pin, load_pins

    cache = find_cache()
    pin = find_pin(load_pins(find_project().vendor), name)
    return cache, ensure_tree(pin, FetchContext(cache, ui, offline=offline))


def make_bench(ui: Ui, offline: bool, workspace: Path | None) -> Bench:
    """The workbench of the project."""
    from opencoti_build.series.bench import Bench

    cache, base_tree = base_of(ui, offline)
    folder = (workspace or cache.workspaces / PIN).absolute()
    return Bench(find_project().root, base_tree, cache.objects, folder, ui)


def bench_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a command on the workbench; the function gets the Bench they make."""

    @workspace_option
    @json_option
    @offline_option
    @quiet_option
    @functools.wraps(function)
    def with_bench(*, workspace: Path | None, offline: bool, quiet: bool, **rest: object) -> None:
        function(make_bench(make_ui(quiet), offline, workspace), **rest)

    return with_bench


def print_rows(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> None:
    """Print columns on stdout, as wide as they need to be."""
    if not rows:
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())
