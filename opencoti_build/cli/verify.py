"""``opencoti-build verify FILE``: prove a finished file without running it."""

from __future__ import annotations

from pathlib import Path

import click

from opencoti_build.cli.options import json_option, make_ui, print_json, quiet_option
from opencoti_build.errors import CheckError


@click.command("verify", help="Prove a finished file without running it.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--manifest",
    "manifest_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The release's MANIFEST.json (default: the one beside FILE, or two folders up for a GPU "
    "library, if it lists FILE).",
)
@json_option
@quiet_option
def command(file: Path, manifest_path: Path | None, as_json: bool, quiet: bool) -> None:
    """Verify ``file`` and print a table; exit 1 when a check failed."""
    from opencoti_build.verify.library import find_library, release_folder
    from opencoti_build.verify.outer import NAME, find_artifact, load_outer
    from opencoti_build.verify.single import verify_file

    ui = make_ui(quiet)
    manifest = None
    if manifest_path is not None:
        manifest = load_outer(manifest_path)
    elif (found := release_folder(file) / NAME).is_file():
        manifest = load_outer(found)
        if not (find_artifact(manifest, file.name) or find_library(manifest, file.name)):
            ui.warn(f"{found} does not list {file.name}; verified without it")
            manifest = None
    report = verify_file(file, manifest, ui)
    if as_json:
        print_json({"file": str(file), **report.to_json()})
    else:
        width = max(len(finding.check) for finding in report.findings)
        for finding in report.findings:
            verdict = "-" if finding.skipped else "ok" if finding.ok else "FAILED"
            note = finding.message
            if not finding.ok:
                facts = ", ".join(f"{key} {value}" for key, value in finding.context.items())
                note += f" [{finding.reason}]" + (f": {facts}" if facts else "")
            click.echo(f"{finding.check:<{width}}  {verdict:<6}  {_printable(note)}".rstrip())
        click.echo(f"sha256 {report.sha256}  {report.size} bytes")
    if not report.ok:
        raise CheckError(
            "verify-failed",
            f"{file.name} failed {len(report.reasons)} of {len(report.findings)} checks",
            context={"checks": ", ".join(report.reasons)},
        )


def _printable(text: str) -> str:
    """``text`` without anything that could move the cursor: a bad file chooses some of it."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
