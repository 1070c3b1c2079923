"""``opencoti-build fetch``: bring pinned sources and models into the cache."""

from __future__ import annotations

from pathlib import Path

import click

from opencoti_build.cli.options import (
    json_option,
    make_ui,
    offline_option,
    print_json,
    quiet_option,
)

_WHAT = {"source": "source tree", "model": "model file", "toolchain": "toolchain"}


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="Fetch every source and model.")
@click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="DIR_OR_ARCHIVE",
    help="Look in this folder or archive first (may be repeated).",
)
@offline_option
@quiet_option
@json_option
def command(
    names: tuple[str, ...],
    everything: bool,
    mirrors: tuple[Path, ...],
    offline: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Bring pinned sources and models into the cache.

    Without a NAME: what the default recipe needs. Models are optional.
    """
    from opencoti_build.cli.pin_table import as_data, print_table, size_text
    from opencoti_build.paths import find_cache, find_project
    from opencoti_build.sources.batch import choose, failure, fetch_all
    from opencoti_build.sources.fetch import FetchContext
    from opencoti_build.sources.pins import PinKind, load_pins

    if names and everything:
        raise click.UsageError("give names or --all, not both")
    ui = make_ui(quiet)
    pins = load_pins(find_project().vendor)
    chosen = choose(pins, names, everything=everything)
    places = tuple(mirror.absolute() for mirror in mirrors)
    context = FetchContext(find_cache(), ui, offline, places)
    outcomes = fetch_all(chosen, context, skip_unlocked=everything)
    if as_json:
        print_json([as_data(outcome) for outcome in outcomes])
    else:
        rows = [
            [
                outcome.pin.name,
                outcome.pin.version,
                _WHAT[outcome.pin.kind.value],
                str(outcome.where or "-"),
                size_text(outcome.size),
                outcome.status.value,
            ]
            for outcome in outcomes
        ]
        print_table(["name", "version", "what", "where", "size", "status"], rows)
    error = failure(outcomes)
    if not (names or everything or error):
        models = [name for name, pin in pins.items() if pin.kind is PinKind.MODEL]
        ui.info(f"models are optional: opencoti-build fetch {' '.join(models)}")
    if error:
        raise error
