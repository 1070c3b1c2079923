"""``opencoti-build series``: list, check, apply, show and export the patches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opencoti_build.cli.options import (
    json_option,
    make_ui,
    offline_option,
    print_json,
    quiet_option,
)
from opencoti_build.paths import Cache, find_cache, find_project
from opencoti_build.ui import Ui

if TYPE_CHECKING:
    from opencoti_build.series.patch import Patch
    from opencoti_build.series.series import Series

PIN = "llama.cpp"

_workspace_option = click.option(
    "--workspace",
    type=click.Path(path_type=Path, file_okay=False),
    help="The workspace folder (default: in the cache).",
)


@click.group()
def command() -> None:
    """List, check, apply, show and export the patches."""


@command.command("list")
@json_option
def list_patches(as_json: bool) -> None:
    """List the patches with their features, gates and sizes."""
    from opencoti_build.series.stat import series_stats

    series = _load()
    rows = list(zip(series.patches, series_stats(series), strict=True))
    if as_json:
        print_json(
            [
                {
                    **_facts(patch),
                    "lines": stat.lines,
                    "files": stat.files,
                    "upstream_lines": stat.upstream_lines,
                    "own_lines": stat.own_lines,
                }
                for patch, stat in rows
            ]
        )
        return
    head = ("number", "slug", "feature", "class", "files", "lines", "upstream", "own", "gate")
    body = [
        (
            f"{patch.number:04d}",
            patch.slug,
            patch.feature,
            patch.klass.value,
            str(stat.files),
            str(stat.lines),
            str(stat.upstream_lines),
            str(stat.own_lines),
            patch.gate,
        )
        for patch, stat in rows
    ]
    _print_table([head, *body], right=(4, 5, 6, 7))


@command.command()
@click.argument("number", type=int)
@json_option
def show(number: int, as_json: bool) -> None:
    """Show one patch: why it is there, its trailers and its files."""
    patch = _load().find(number)
    if as_json:
        files = [
            {"path": file.path, "added": file.added, "deleted": file.deleted, "new": file.is_new}
            for file in patch.files
        ]
        print_json({**_facts(patch), "why": patch.why, "files": files})
        return
    click.echo(f"{patch.name}: {patch.subject}")
    click.echo(f"by {patch.author}, {patch.date:%Y-%m-%d}\n\n{patch.why}\n")
    for key, value in patch.trailers.items():
        click.echo(f"{key}: {value}".rstrip())
    click.echo("")
    rows = [
        (f"+{file.added}", f"-{file.deleted}", file.path + (" (new)" if file.is_new else ""))
        for file in patch.files
    ]
    _print_table(rows, right=(0, 1))


@command.command()
@json_option
@offline_option
@quiet_option
def check(as_json: bool, offline: bool, quiet: bool) -> None:
    """Try every patch, without a workspace."""
    from opencoti_build.series.check import check_series
    from opencoti_build.series.outcome import DoesNotApplyError

    ui = make_ui(quiet)
    series = _load()
    cache, base_tree = _base(ui, offline)
    statuses = check_series(series, base_tree, cache.objects, ui)
    if as_json:
        print_json([status.to_json() for status in statuses])
    else:
        _print_table([(status.name, status.describe()) for status in statuses])
    if not all(status.outcome.good for status in statuses):
        raise DoesNotApplyError(statuses)


@command.command()
@click.option("--force", is_flag=True, help="Throw away edits in the workspace.")
@_workspace_option
@json_option
@offline_option
@quiet_option
def apply(force: bool, workspace: Path | None, as_json: bool, offline: bool, quiet: bool) -> None:
    """Bring the workspace to the pin plus all patches."""
    from opencoti_build.series.apply import apply_series

    ui = make_ui(quiet)
    series = _load()
    cache, base_tree = _base(ui, offline)
    folder = workspace or cache.workspaces / PIN
    done = apply_series(series, base_tree, cache.objects, folder, ui, force=force)
    if as_json:
        print_json(
            {
                "workspace": str(folder),
                "base_tree": done.base_tree,
                "tree": done.tree,
                "rewritten_files": done.rewritten_files,
                "patches": [
                    {
                        "number": item.number,
                        "name": item.name,
                        "commit": item.commit,
                        "tree": item.tree,
                        "outcome": item.outcome.value,
                    }
                    for item in done.commits
                ],
            }
        )
        return
    click.echo(f"{folder}\ntree {done.tree}")
    click.echo(f"{len(done.commits)} patches, {done.rewritten_files} files written")


@command.command()
@click.option("--number", "numbers", type=int, multiple=True, help="For each new commit, in order.")
@click.option("--force", is_flag=True, help="Overwrite patch files that changed meanwhile.")
@_workspace_option
@json_option
@quiet_option
def export(
    numbers: tuple[int, ...], force: bool, workspace: Path | None, as_json: bool, quiet: bool
) -> None:
    """Write the commits of the workspace back to patches/."""
    from opencoti_build.series.export import export_commits
    from opencoti_build.series.workspace import applied_base

    folder = workspace or find_cache().workspaces / PIN
    base = applied_base(folder)
    patches = find_project().patches
    done = export_commits(folder, base, patches, make_ui(quiet), numbers=numbers, force=force)
    if as_json:
        print_json(
            {
                "written": list(done.written),
                "removed": list(done.removed),
                "unchanged": list(done.unchanged),
            }
        )
        return
    for word, names in (("wrote", done.written), ("removed", done.removed)):
        for name in names:
            click.echo(f"{word} {name}")
    click.echo(f"{len(done.unchanged)} unchanged")


def _load() -> Series:
    from opencoti_build.series.series import load_series

    return load_series(find_project().patches)


def _base(ui: Ui, offline: bool) -> tuple[Cache, str]:
    """The cache, and the tree of the pin, brought into it when it is not there yet."""
    from opencoti_build.sources.fetch import FetchContext, ensure_tree
    from opencoti_build.sources.pins import load_pins

    cache = find_cache()
    pin = load_pins(find_project().vendor)[PIN]
    return cache, ensure_tree(pin, FetchContext(cache, ui, offline=offline))


def _facts(patch: Patch) -> dict[str, object]:
    return {
        "number": patch.number,
        "name": patch.name,
        "slug": patch.slug,
        "subject": patch.subject,
        "author": patch.author,
        "date": patch.date.isoformat(),
        "sha256": patch.sha256,
        "feature": patch.feature,
        "gate": patch.gate,
        "class": patch.klass.value,
        "depends": list(patch.depends),
        "upstream": patch.upstream,
    }


def _print_table(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> None:
    if not rows:
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())
