"""``opencoti-build series rebase`` and ``continue``, and how every change is reported."""

from __future__ import annotations

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
from opencoti_build.cli.series_base import (
    PIN,
    base_of,
    bench_options,
    make_bench,
    print_rows,
    workspace_option,
)
from opencoti_build.errors import SeriesError
from opencoti_build.paths import find_project

if TYPE_CHECKING:
    from opencoti_build.series.bench import Bench, Done
    from opencoti_build.series.resolve import Stop
    from opencoti_build.series.session import State


@click.command()
@click.option("--onto", metavar="PIN", help="The pin to move the series to.")
@click.option("--dry-run", is_flag=True, help="Only try every patch and print the table.")
@click.option("--continue", "how", flag_value="continue", help="Take the resolution, go on.")
@click.option("--skip", "how", flag_value="skip", help="Leave the open patch out, go on.")
@click.option("--abort", "how", flag_value="abort", help="End it; nothing was changed.")
@click.option("--remembered", is_flag=True, help="Take remembered resolutions without a stop.")
@workspace_option
@json_option
@offline_option
@quiet_option
def rebase(
    onto: str | None,
    dry_run: bool,
    how: str | None,
    remembered: bool,
    workspace: Path | None,
    as_json: bool,
    offline: bool,
    quiet: bool,
) -> None:
    """Move the series to another pin; it then takes the place of the present one."""
    if (onto is None) == (how is None):
        raise click.UsageError("give --onto PIN, or one of --continue, --skip, --abort")
    ui = make_ui(quiet)
    bench = make_bench(ui, offline, workspace)
    if onto is None:
        go_on(bench, str(how), remembered, as_json)
        return
    _, tree = base_of(ui, offline, onto)
    if dry_run:
        _try(bench, tree, as_json)
        return
    files = _pin_files(onto)
    report(
        bench,
        bench.start(f"series rebase --onto {onto}", tree, files, remembered=remembered),
        as_json,
    )


@click.command("continue")
@click.option("--skip", "how", flag_value="skip", help="Leave the open patch out, go on.")
@click.option("--abort", "how", flag_value="abort", help="End it; nothing was changed.")
@click.option("--remembered", is_flag=True, help="Take remembered resolutions without a stop.")
@bench_options
def continue_(bench: Bench, as_json: bool, how: str | None, remembered: bool) -> None:
    """Go on after a conflict, in a rebase or in any other command that stopped at one."""
    go_on(bench, how or "continue", remembered, as_json)


def go_on(bench: Bench, how: str, remembered: bool, as_json: bool) -> None:
    """Continue, skip or abort the open session."""
    if how == "abort":
        state = bench.abort()
        click.echo(f"aborted: {state.command}; patches and workspace are as they were")
        return
    report(bench, bench.resume(how, remembered=remembered), as_json)


def report(bench: Bench, done: Done | Stop, as_json: bool) -> None:
    """Print what a command did; a stop at a conflict is a SeriesError ``series-conflict``."""
    from opencoti_build.series.bench import Done

    if not isinstance(done, Done):
        _stopped(bench, done, as_json)
        return
    finished = done.finished
    if as_json:
        data: dict[str, object] = {"written": list(done.written), "removed": list(done.removed)}
        data["tree"] = finished.tree if finished else done.space.tree if done.space else None
        if finished:
            data["table"] = [vars(row) for row in finished.state.rows]
            data["gone"] = dict(finished.state.gone)
            data["edits"] = [vars(edit) for edit in finished.proof.edits]
        print_json(data)
        return
    if finished and finished.state.old != finished.state.new:
        print_table(finished.state)
        click.echo(
            f"proof: {finished.proof.same} changed files differ between the patched trees as "
            f"between the bases, {len(finished.proof.edits)} by named edits"
        )
        for edit in finished.proof.edits:
            click.echo(f"  {edit}")
    for word, names in (("wrote", done.written), ("removed", done.removed)):
        for name in names:
            click.echo(f"{word} {name}")
    if not done.written and not done.removed:
        click.echo("nothing to write: the patches hold all of it")
    if done.space:
        click.echo(f"tree {done.space.tree}, {done.space.rewritten_files} files written")


def print_table(state: State) -> None:
    """The table of a rebase: every patch and what became of it when it was tried."""
    rows = []
    for row in state.rows:
        end = state.gone.get(row.name, "resolved" if row.name in state.resolved else "")
        word = row.word if end in ("", row.word) else f"{row.word}, {end}"
        rows.append((row.name, word, row.detail.partition(": ")[2]))
    print_rows(rows)


def _stopped(bench: Bench, stop: Stop, as_json: bool) -> None:
    state = bench.session.load()
    root = bench.session.root
    if as_json:
        print_json(
            {
                "stopped": stop.name,
                "workspace": str(root),
                "files": [
                    {"path": f.path, "kind": f.kind.value, "known": f.path in stop.known}
                    for f in stop.files
                ],
                "table": [vars(row) for row in state.rows],
            }
        )
    else:
        print_table(state)
    context: dict[str, object] = {"workspace": root}
    for file in stop.files:
        known = " (resolved as remembered: look at it)" if file.path in stop.known else ""
        context[file.path] = f"{file.kind.value}{known}"
    raise SeriesError(
        "series-conflict",
        f"{stop.name} needs a hand",
        hint=f"edit the files in {root}, then run 'opencoti-build series continue' "
        "(--skip leaves the patch out, --abort ends it all)",
        context=context,
    )


def _try(bench: Bench, tree: str, as_json: bool) -> None:
    """Print the table; patches that need a hand are a DoesNotApplyError."""
    from opencoti_build.series.check import check_series
    from opencoti_build.series.outcome import DoesNotApplyError, Outcome

    statuses = check_series(bench.series(), tree, bench.objects, bench.ui, old=bench.base_tree)
    if as_json:
        print_json([{**s.to_json(), "word": s.outcome.word} for s in statuses])
    else:
        print_rows([(s.name, s.outcome.word, s.describe().partition(": ")[2]) for s in statuses])
    if not all(s.outcome.good or s.outcome is Outcome.ALREADY_APPLIED for s in statuses):
        raise DoesNotApplyError(statuses)


def _pin_files(onto: str) -> dict[str, str]:
    """The pin file of the base with the contents of the pin ``onto``."""
    from opencoti_build.sources.pinfile import find_file

    project = find_project()
    new, old = find_file(project.vendor, onto), find_file(project.vendor, PIN)
    text = new.read_text(encoding="utf-8").replace(f'name = "{onto}"', f'name = "{PIN}"', 1)
    return {old.relative_to(project.root).as_posix(): text}
