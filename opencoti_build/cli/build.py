"""``opencoti-build build``: one component, without packing it."""

from __future__ import annotations

from pathlib import Path

import click

from opencoti_build.cli.options import (
    build_options,
    json_option,
    make_ui,
    offline_option,
    print_json,
    quiet_option,
)


@click.group()
def command() -> None:
    """Build one component."""


@command.command()
@click.option("--tag", default="dev", show_default=True, help="Tag in the version string.")
@click.option("--out", type=click.Path(path_type=Path), help="Copy the engine's files there.")
@build_options
@offline_option
@json_option
@quiet_option
def engine(
    tag: str,
    out: Path | None,
    recipe: str | None,
    target: tuple[str, ...],
    jobs: int | None,
    offline: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Build the engine: the executable and its CPU modules."""
    from opencoti_build.build.context import make_context
    from opencoti_build.build.pipeline import Pipeline
    from opencoti_build.build.steps import place

    context = make_context(
        tag, recipe=recipe, targets=target, ui=make_ui(quiet), offline=offline, jobs=jobs
    )
    pipeline = Pipeline.prepare(context)
    rows = []
    for item in context.targets:
        built = pipeline.engine(item)
        folder = built.folder
        if out:
            folder = out if len(context.targets) == 1 else out / str(item.target)
            for path in built.files():
                (folder / path.name).unlink(missing_ok=True)
                place(path, folder / path.name)
        done = built.compiled
        rows.append(
            {
                "target": str(item.target),
                "folder": str(folder),
                "size": sum(path.stat().st_size for path in built.files()),
                "compiled": done.compiled if done else 0,
                "from_ccache": done.from_ccache if done else 0,
            }
        )
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(f"{row['target']}  {int(str(row['size'])) / 1e6:.1f} MB  {row['folder']}")
