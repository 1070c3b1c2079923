"""``opencoti-build artifact``: the single file and its release folder."""

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


@click.command()
@click.option("--tag", required=True, help="Release tag, such as c3.")
@click.option("--out", type=click.Path(path_type=Path), help="Release folder [dist/TAG].")
@build_options
@offline_option
@json_option
@quiet_option
def command(
    tag: str,
    out: Path | None,
    recipe: str | None,
    target: tuple[str, ...],
    jobs: int | None,
    offline: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Build the single file and write its release folder."""
    from opencoti_build.build.context import make_context
    from opencoti_build.build.pipeline import Pipeline
    from opencoti_build.release.folder import make_release

    context = make_context(
        tag, recipe=recipe, targets=target, ui=make_ui(quiet), offline=offline, jobs=jobs
    )
    folder = out or Path.cwd() / "dist" / tag
    release = make_release(Pipeline.prepare(context), folder)
    if as_json:
        print_json({"folder": str(folder), "manifest": release.manifest})
        return
    for path in release.artifacts:
        click.echo(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
