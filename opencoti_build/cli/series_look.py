"""``opencoti-build series``: the commands that only look (why, diff, stat, log)."""

from __future__ import annotations

import click

from opencoti_build.cli.options import (
    json_option,
    make_ui,
    offline_option,
    print_json,
    quiet_option,
)
from opencoti_build.cli.series_base import base_of, load_project_series, print_rows
from opencoti_build.paths import find_project


@click.command()
@click.argument("place", metavar="FILE[:LINE]")
@json_option
@offline_option
@quiet_option
def why(place: str, as_json: bool, offline: bool, quiet: bool) -> None:
    """Say which patch owns a line, or which patches touch a file.

    FILE is named from the top of the patched tree, LINE is its line there.
    """
    from opencoti_build.series.check import scratch_git
    from opencoti_build.series.contents import Contents
    from opencoti_build.series.owner import owner_of, shares

    name, _, line = place.rpartition(":")
    path = name if name and line.isdecimal() else place
    series = load_project_series()
    cache, base_tree = base_of(make_ui(quiet), offline)
    with scratch_git(cache.objects) as git:
        contents = Contents(git, base_tree, series.patches)
        if path != place:
            found = owner_of(series, contents, path, int(line))
            patch = series.find(found.patch) if found.patch else None
            if as_json:
                owner = patch.name if patch else None
                print_json({"file": path, "line": int(line), "text": found.text, "patch": owner})
                return
            click.echo(found.text)
            if patch is None:
                click.echo("an upstream line: no patch wrote it")
            else:
                click.echo(f"{patch.name}: {patch.subject}\n\n{patch.why}\n")
                click.echo(f"Feature: {patch.feature}\nGate: {patch.gate}")
            return
        rows = shares(series, contents, path)
    if as_json:
        print_json([{"patch": series.find(row.number).name, **vars(row)} for row in rows])
        return
    head = ("patch", "added", "removed", "still there", "subject")
    body = [
        (
            series.find(row.number).name,
            str(row.added),
            str(row.deleted),
            str(row.left),
            series.find(row.number).subject,
        )
        for row in rows
    ]
    if body:
        print_rows([head, *body], right=(1, 2, 3))
    else:
        click.echo("no patch touches it: an upstream file")


@click.command()
@click.argument("old")
@click.argument("new", required=False)
@click.option("--full", is_flag=True, help="Show what changed inside each patch.")
@json_option
def diff(old: str, new: str | None, full: bool, as_json: bool) -> None:
    """Show how the series changed between OLD and NEW (default: as it is now).

    Each is a revision of this project, a folder of patches, or a release folder.
    """
    from opencoti_build.series.interdiff import Change, compare
    from opencoti_build.series.snapshots import load_state

    project = find_project().root
    after = load_state(new, project) if new else load_project_series()
    changes = compare(load_state(old, project), after)
    if as_json:
        print_json([change.to_json() for change in changes])
        return
    shown = [change for change in changes if change.change is not Change.SAME or change.renamed]
    print_rows(
        [
            (
                change.change.value,
                change.new or change.old or "",
                f"was {change.old}" if change.renamed else "",
            )
            for change in shown
        ]
    )
    click.echo(f"{len(changes) - len(shown)} unchanged")
    if full:
        for change in shown:
            if change.lines:
                click.echo("\n" + "\n".join(change.lines))


@click.command()
@json_option
def stat(as_json: bool) -> None:
    """Show sizes, upstream lines touched, features and the build order."""
    from opencoti_build.series.stat import build_order, feature_stats, series_stats

    series = load_project_series()
    stats, features, layers = series_stats(series), feature_stats(series), build_order(series)
    if as_json:
        print_json(
            {
                "patches": [dict(vars(row), lines=row.lines) for row in stats],
                "features": [vars(row) for row in features],
                "build_order": [list(numbers) for numbers in layers],
            }
        )
        return
    head = ("patch", "files", "own files", "own lines", "upstream lines", "feature")
    body = [
        (
            patch.name,
            str(row.files),
            str(row.own_files),
            str(row.own_lines),
            str(row.upstream_lines),
            patch.feature,
        )
        for patch, row in zip(series.patches, stats, strict=True)
    ]
    total = (
        f"{len(stats)} patches",
        "",
        "",
        str(sum(row.own_lines for row in stats)),
        str(sum(row.upstream_lines for row in stats)),
        "",
    )
    print_rows([head, *body, total], right=(1, 2, 3, 4))
    click.echo("\nfeatures:")
    print_rows(
        [
            (
                f"  {row.feature}",
                f"{row.own_lines} own",
                f"{row.upstream_lines} upstream",
                " ".join(f"{number:04d}" for number in row.numbers),
            )
            for row in features
        ],
        right=(1, 2),
    )
    click.echo("\nbuild order (each line needs only the lines above it):")
    for numbers in layers:
        click.echo("  " + " ".join(f"{number:04d}" for number in numbers))


@click.command()
@json_option
def log(as_json: bool) -> None:
    """List the operations that ``undo`` and ``redo`` know."""
    from opencoti_build.series.journal import Journal

    journal = Journal(find_project().root)
    entries, position = journal.entries(), journal.position
    if as_json:
        print_json(
            {
                "position": position,
                "operations": [
                    {"number": e.number, "command": e.command, "files": sorted(e.after)}
                    for e in entries
                ],
            }
        )
        return
    print_rows(
        [
            (
                "*" if entry.number == position else " ",
                str(entry.number),
                entry.command,
                f"{len(entry.after)} files" + (" (undone)" if entry.number > position else ""),
            )
            for entry in entries
        ],
        right=(1,),
    )
