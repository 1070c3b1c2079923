"""``opencoti-build bundle FILE -m MODEL -o OUT``: a single file with a model inside."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from opencoti_build.cli.options import json_option, make_ui, print_json, quiet_option


@click.command("bundle", help="Put a model and default arguments into a copy of a single file.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-m", "--model", required=True, help="The GGUF file.",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)  # fmt: skip
@click.option(
    "--args", "words",
    help='Default arguments in shell syntax; "..." is where the user\'s go [at the end].',
)  # fmt: skip
@click.option("-o", "--out", required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--sha256", "want_sha256", is_flag=True, help="Also print the new file's sha256.")
@json_option
@quiet_option
def command(
    file: Path,
    model: Path,
    words: str | None,
    out: Path,
    want_sha256: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write ``out``, whole or not at all."""
    from opencoti_build.pack.bundle import add_model, args_text
    from opencoti_build.pack.limits import WINDOWS_LIMIT

    ui = make_ui(quiet)
    text = None if words is None else args_text(words)
    bundle = add_model(file, model, out, text, want_sha256=want_sha256, ui=ui)
    if bundle.size >= WINDOWS_LIMIT:
        ui.warn(f"{out.name} has 4 GiB or more: Windows will not start it")
    if as_json:
        print_json({**asdict(bundle), "path": str(bundle.path)})
        return
    digest = f"  sha256 {bundle.sha256}" if bundle.sha256 else ""
    click.echo(f"{bundle.path}  {bundle.size / 1e6:.1f} MB{digest}")
