"""``opencoti-build series``: the commands that change the series."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from opencoti_build.cli.options import print_json
from opencoti_build.cli.series_base import bench_options
from opencoti_build.cli.series_moves import report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opencoti_build.series.bench import Bench, Change
    from opencoti_build.series.git import Git
    from opencoti_build.series.patch import Patch
    from opencoti_build.series.series import Series


@click.command()
@click.argument("number", type=int, required=False)
@bench_options
def edit(bench: Bench, as_json: bool, number: int | None) -> None:
    """Open a workspace at a patch (default: at the top), to edit and commit with ordinary git."""
    from opencoti_build.series.editing import edit as open_patch

    opened = open_patch(bench, number)
    if as_json:
        print_json({"workspace": str(bench.workspace), **vars(opened)})
        return
    click.echo(f"{bench.workspace}")
    click.echo(f"at {opened.name or 'the base'}, {opened.above} patches above it")
    click.echo("edit there, then 'opencoti-build series refresh' (or commit and 'series export')")


@click.command()
@click.option("--number", "numbers", type=int, multiple=True, help="For each new commit, in order.")
@click.option("--force", is_flag=True, help="Overwrite patch files that changed meanwhile.")
@bench_options
def export(bench: Bench, as_json: bool, numbers: tuple[int, ...], force: bool) -> None:
    """Write the commits of the workspace back to patches/."""
    from opencoti_build.series.editing import export as write_back

    report(bench, write_back(bench, numbers, force=force), as_json)


@click.command()
@click.argument("title")
@click.option("--number", type=int, required=True, help="Its number; see the ranges in DESIGN.")
@click.option("--feature", required=True, help="Its feature, such as kv-turbo.")
@click.option("--gate", required=True, help="What turns it on: flag|env|json NAME, or none.")
@click.option("--class", "klass", default="infra", show_default=True, help="What it is for.")
@click.option("--depends", default="", help="Numbers of patches that it needs.")
@click.option("--upstream", default="none", show_default=True, help="none, or WORD URL.")
@click.option("--why", default="", help="Why it is needed; - reads standard input.")
@click.option("--author", default="opencoti <opencoti@localhost>", show_default=True)
@bench_options
def new(
    bench: Bench,
    as_json: bool,
    title: str,
    number: int,
    feature: str,
    gate: str,
    klass: str,
    depends: str,
    upstream: str,
    why: str,
    author: str,
) -> None:
    """Make the edits in the workspace a new patch, or begin an empty one."""
    from opencoti_build.series.editing import NewPatch
    from opencoti_build.series.editing import new as make_patch

    if why == "-":
        why = sys.stdin.read()
    elif not why and sys.stdin.isatty():
        why = click.edit("") or ""
    trailers = {
        "Feature": feature,
        "Gate": gate,
        "Class": klass,
        "Depends": depends,
        "Upstream": upstream,
    }
    wanted = NewPatch(title, why.strip(), number, trailers, author)
    done = make_patch(bench, wanted)
    if done is None:
        click.echo(f"{wanted.name} is empty: edit in {bench.workspace}, then 'series refresh'")
        return
    report(bench, done, as_json)


@click.command()
@click.argument("number", type=int, required=False)
@bench_options
def refresh(bench: Bench, as_json: bool, number: int | None) -> None:
    """Take the edits of the workspace into the open patch, or into patch NUMBER."""
    from opencoti_build.series.editing import refresh as take_edits

    report(bench, take_edits(bench, number), as_json)


@click.command()
@click.argument("number", type=int)
@click.argument("files", nargs=-1, required=True)
@click.option("--number", "target", type=int, required=True, help="Number of the new patch.")
@click.option("--title", required=True, help="Subject of the new patch.")
@click.option("--why", default=None, help="Reason of the new patch [that of the old one].")
@bench_options
def split(
    bench: Bench,
    as_json: bool,
    number: int,
    files: tuple[str, ...],
    target: int,
    title: str,
    why: str | None,
) -> None:
    """Move the changes of FILES from patch NUMBER to a new one.

    To split inside a file: series edit NUMBER, then git reset HEAD^ and commit in parts.
    """
    from opencoti_build.series import rework

    command = f"series split {number:04d} --number {target:04d}"
    _run(bench, command, lambda _, s: rework.split(s, number, files, target, title, why), as_json)


@click.command()
@click.argument("into", type=int)
@click.argument("numbers", type=int, nargs=-1, required=True)
@bench_options
def fold(bench: Bench, as_json: bool, into: int, numbers: tuple[int, ...]) -> None:
    """Join patches NUMBERS into patch INTO."""
    from opencoti_build.series import rework

    command = f"series fold {into:04d} {' '.join(f'{n:04d}' for n in numbers)}"

    def change(git: Git, series: Series) -> Sequence[Patch]:
        return rework.fold(git, bench.base_tree, series, into, numbers, bench.ui)

    _run(bench, command, change, as_json)


@click.command()
@click.argument("number", type=int)
@click.argument("title")
@click.option("--keep-slug", is_flag=True, help="Change the subject alone, not the file name.")
@bench_options
def rename(bench: Bench, as_json: bool, number: int, title: str, keep_slug: bool) -> None:
    """Give patch NUMBER another subject, and the file name that follows from it."""
    from opencoti_build.series import rework

    command = f"series rename {number:04d}"
    _run(bench, command, lambda _, s: rework.rename(s, number, title, keep_slug=keep_slug), as_json)


@click.command()
@click.argument("number", type=int)
@click.argument("target", type=int)
@bench_options
def renumber(bench: Bench, as_json: bool, number: int, target: int) -> None:
    """Give patch NUMBER the number TARGET; what depends on it follows."""
    from opencoti_build.series import rework

    command = f"series renumber {number:04d} {target:04d}"
    _run(bench, command, lambda _, s: rework.renumber(s, number, target), as_json)


@click.command()
@click.argument("number", type=int)
@click.option("--force", is_flag=True, help="Also when other patches name it in Depends.")
@bench_options
def drop(bench: Bench, as_json: bool, number: int, force: bool) -> None:
    """Take patch NUMBER out of the series."""
    from opencoti_build.series import rework

    command = f"series drop {number:04d}"
    _run(bench, command, lambda _, s: rework.drop(s, number, force=force), as_json)


@click.command()
@click.option("--force", is_flag=True, help="Also when files changed since.")
@bench_options
def undo(bench: Bench, as_json: bool, force: bool) -> None:
    """Undo the last command that changed the series (again: the one before it)."""
    _turn(bench, False, force, as_json)


@click.command()
@click.option("--force", is_flag=True, help="Also when files changed since.")
@bench_options
def redo(bench: Bench, as_json: bool, force: bool) -> None:
    """Do again what was undone last."""
    _turn(bench, True, force, as_json)


def _turn(bench: Bench, redo: bool, force: bool, as_json: bool) -> None:
    entry = bench.undo(redo=redo, force=force)
    word = "redone" if redo else "undone"
    if as_json:
        print_json({word: entry.command, "files": sorted(entry.after)})
        return
    click.echo(f"{word}: {entry.command}")
    if entry.space.get("edits") and not redo:
        click.echo("the edits that it took are back in the workspace")
    for name in sorted(entry.after):
        click.echo(f"  {name}")


def _run(bench: Bench, command: str, change: Change, as_json: bool) -> None:
    report(bench, bench.change(command, change), as_json)
