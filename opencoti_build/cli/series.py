"""``opencoti-build series``: list, show, check and apply; the other commands hang on here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from opencoti_build.cli import series_look, series_moves, series_work
from opencoti_build.cli.options import (
    json_option,
    make_ui,
    offline_option,
    print_json,
    quiet_option,
)
from opencoti_build.cli.series_base import (
    PIN,
    base_of,
    load_project_series,
    print_rows,
    workspace_option,
)

if TYPE_CHECKING:
    from opencoti_build.series.patch import Patch


@click.group()
def command() -> None:
    """Make, check, change and move the patches."""


for _command in (
    *(series_look.why, series_look.diff, series_look.stat, series_look.log),
    *(series_work.edit, series_work.export, series_work.new, series_work.refresh),
    *(series_work.split, series_work.fold, series_work.rename, series_work.renumber),
    *(series_work.drop, series_work.undo, series_work.redo),
    *(series_moves.rebase, series_moves.continue_),
):
    command.add_command(_command)


@command.command("list")
@json_option
def list_patches(as_json: bool) -> None:
    """List the patches with their features, gates and sizes."""
    from opencoti_build.series.stat import series_stats

    series = load_project_series()
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
    print_rows([head, *body], right=(4, 5, 6, 7))


@command.command()
@click.argument("number", type=int)
@json_option
def show(number: int, as_json: bool) -> None:
    """Show one patch: why it is there, its trailers and its files."""
    patch = load_project_series().find(number)
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
    print_rows(rows, right=(0, 1))


@command.command()
@click.option(
    "--upstream-lines",
    type=click.IntRange(min=0),
    default=300,
    show_default=True,
    help="Warn of patches that change more lines of upstream files.",
)
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@json_option
@offline_option
@quiet_option
def check(upstream_lines: int, strict: bool, as_json: bool, offline: bool, quiet: bool) -> None:
    """Try every patch and look at all of them, without a workspace."""
    from opencoti_build.series.check import lint_series
    from opencoti_build.series.finding import FindingsError
    from opencoti_build.series.outcome import DoesNotApplyError

    ui = make_ui(quiet)
    series = load_project_series()
    cache, base_tree = base_of(ui, offline)
    done = lint_series(series, base_tree, cache.objects, ui, upstream_lines=upstream_lines)
    rows = list(zip(done.statuses, done.stats, strict=True))
    if as_json:
        print_json(
            {
                "tree": done.tree,
                "patches": [
                    {
                        **status.to_json(),
                        "upstream_lines": stat.upstream_lines,
                        "own_lines": stat.own_lines,
                    }
                    for status, stat in rows
                ],
                "findings": [finding.to_json() for finding in done.findings],
            }
        )
    else:
        head = ("patch", "upstream lines", "own lines", "result")
        body = [
            (status.name, str(stat.upstream_lines), str(stat.own_lines), status.describe())
            for status, stat in rows
        ]
        print_rows([head, *body], right=(1, 2))
        for finding in done.findings:
            if finding.rule.warns:
                ui.warn(f"{finding.patch_name}: {finding.message} [{finding.rule.value}]")
    if not done.applies:
        raise DoesNotApplyError(done.statuses)
    if any(strict or not finding.rule.warns for finding in done.findings):
        raise FindingsError(done.findings, strict=strict)


@command.command()
@click.option("--force", is_flag=True, help="Throw away edits in the workspace.")
@workspace_option
@json_option
@offline_option
@quiet_option
def apply(force: bool, workspace: Path | None, as_json: bool, offline: bool, quiet: bool) -> None:
    """Bring the workspace to the pin plus all patches."""
    from opencoti_build.series.apply import apply_series

    ui = make_ui(quiet)
    series = load_project_series()
    cache, base_tree = base_of(ui, offline)
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
