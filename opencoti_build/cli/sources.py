"""``opencoti-build sources``: what the pins say and what is in the cache."""

from __future__ import annotations

import click

from opencoti_build.cli.options import json_option, make_ui, print_json


@click.group()
def command() -> None:
    """List the pins."""


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List every pin: licence, identity, ways to get it, and whether the cache holds it."""
    from opencoti_build.cli.pin_table import as_data, print_table, size_text
    from opencoti_build.paths import find_cache, find_project
    from opencoti_build.sources.batch import look
    from opencoti_build.sources.fetch import FetchContext
    from opencoti_build.sources.pins import load_pins

    pins = load_pins(find_project().vendor)
    context = FetchContext(find_cache(), make_ui(True), offline=True)
    outcomes = [look(pin, context) for pin in pins.values()]
    if as_json:
        print_json([as_data(outcome) for outcome in outcomes])
        return
    rows = []
    for outcome in outcomes:
        pin = outcome.pin
        identity = (
            f"sha256 {pin.sha256[:12]}" if pin.sha256 else f"tree {(pin.tree or 'unverified')[:12]}"
        )
        ways = ", ".join(way.kind.value for way in pin.transports)
        rows.append(
            [
                pin.name,
                pin.kind.value,
                pin.version,
                pin.license,
                identity,
                ways,
                size_text(outcome.size),
                outcome.status.value,
            ]
        )
    header = ["name", "kind", "version", "license", "identity", "transports", "size", "status"]
    print_table(header, rows)
