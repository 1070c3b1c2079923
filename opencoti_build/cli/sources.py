"""``opencoti-build sources``: what the pins say, what is in the cache, and what is newer."""

from __future__ import annotations

import click

from opencoti_build.cli.options import json_option, make_ui, print_json, quiet_option


@click.group()
def command() -> None:
    """List the pins, and look for newer upstreams."""


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


@command.command("track")
@click.argument("name", metavar="PIN")
@click.option("--write", is_flag=True, help="Write the pin; without it nothing is changed.")
@click.option("--as", "new_name", metavar="NAME", help="Write it as another pin, for a rebase.")
@json_option
@quiet_option
def track_command(name: str, write: bool, new_name: str | None, as_json: bool, quiet: bool) -> None:
    """Look for a newer release of PIN and show what it changes for our patches.

    Nothing moves by itself: --write moves the pin, --write --as NAME leaves it and writes the
    newer one beside it, for 'series rebase --onto NAME'.
    """
    from dataclasses import replace

    from opencoti_build.paths import find_cache, find_project, write_atomic
    from opencoti_build.series.series import load_series
    from opencoti_build.series.upstream import base_move
    from opencoti_build.sources.fetch import FetchContext, ensure_tree
    from opencoti_build.sources.pinfile import find_file
    from opencoti_build.sources.pins import find_pin, load_pins
    from opencoti_build.sources.track import render_pin, track

    project, ui = find_project(), make_ui(quiet)
    context = FetchContext(find_cache(), ui)
    pin = find_pin(load_pins(project.vendor), name)
    old_tree = ensure_tree(pin, context)
    tracked = track(pin, context)
    new = replace(tracked.new, name=new_name or name)
    move = base_move(old_tree, str(new.tree), load_series(project.patches), context.cache.objects)
    path = None
    if write and (tracked.moved or new_name):
        old_file = find_file(project.vendor, name)
        path = old_file.with_name(f"{new.name}.toml") if new_name else old_file
        comment = f"{new.transports[0].label}, found with 'opencoti-build sources track {name}'."
        write_atomic(path, render_pin(new, comment).encode())
    if as_json:
        print_json(
            {
                "pin": name,
                "moved": tracked.moved,
                "old": {"version": pin.version, "tree": old_tree, "from": pin.transports[0].label},
                "new": {"version": new.version, "tree": new.tree, "from": new.transports[0].label},
                "files": move.files,
                "touched": [vars(file) for file in move.touched],
                "written": str(path.relative_to(project.root)) if path else None,
            }
        )
        return
    if not tracked.moved:
        click.echo(f"{name}: {pin.transports[0].label} is the newest")
        return
    click.echo(f"{name}: {pin.transports[0].label} ({pin.version}, tree {old_tree[:12]})")
    click.echo(f"  to {new.transports[0].label} ({new.version}, tree {str(new.tree)[:12]})")
    click.echo(f"{move.files} files change: +{move.added} -{move.deleted} lines")
    click.echo(f"{len(move.touched)} of them are touched by patches:")
    for file in move.touched:
        size = "gone" if file.gone else f"+{file.added} -{file.deleted}"
        click.echo(f"  {file.path}  {size}  {' '.join(file.patches)}")
    if path:
        click.echo(f"wrote {path.relative_to(project.root)}")
    else:
        click.echo("nothing was written (--write, or --write --as NAME)")
