"""``opencoti-build artifact``: the single file and its release folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from opencoti_build.cli.options import build_options, cuda_option, json_option, print_json

if TYPE_CHECKING:
    from opencoti_build.build.context import BuildContext


@click.command()
@click.option("--tag", required=True, help="Release tag, such as c3.")
@click.option("--out", type=click.Path(path_type=Path), help="Release folder [dist/TAG].")
@cuda_option
@build_options
@json_option
def command(context: BuildContext, out: Path | None, as_json: bool) -> None:
    """Build the single file and write its release folder."""
    from opencoti_build.build.prepare import prepare
    from opencoti_build.release.folder import make_release

    folder = out or Path.cwd() / "dist" / context.tag
    release = make_release(prepare(context), folder)
    if as_json:
        print_json({"folder": str(folder), "manifest": release.manifest})
        return
    targets = cast("dict[str, dict[str, list[dict[str, int]]]]", release.manifest["targets"])
    for name, target in targets.items():
        size = sum(file["size"] for file in target["files"])
        click.echo(f"engine {name}  {size / 1e6:.1f} MB")
    for path in release.artifacts:
        click.echo(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
