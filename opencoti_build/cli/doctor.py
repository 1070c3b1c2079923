"""``opencoti-build doctor``: what is installed, what is missing, how to get it."""

from __future__ import annotations

import click

from opencoti_build.cli.options import json_option, print_json
from opencoti_build.errors import CheckError


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Say which tools are there, which are missing, and how to get them."""
    from opencoti_build.toolchains.doctor import examine

    rows = examine()
    if as_json:
        print_json([row.to_json() for row in rows])
    else:
        width = max(len(row.name) for row in rows)
        for row in rows:
            click.echo(f"{row.mark} {row.name:{width}}  {row.text}")
    missing = [row for row in rows if row.needed and not row.found]
    if missing:
        raise CheckError(
            "tools-missing",
            "missing: " + ", ".join(row.name for row in missing),
            hint="; ".join(row.cure for row in missing),
        )
