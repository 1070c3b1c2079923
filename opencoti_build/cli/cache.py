"""``opencoti-build cache``: what is in the cache, less of it, and carrying objects elsewhere."""

from __future__ import annotations

from pathlib import Path

import click

from opencoti_build.cli.options import json_option, make_ui, print_json, quiet_option


@click.group()
def command() -> None:
    """Look at the cache, make it smaller, carry compiled objects to another machine."""


@command.command()
@json_option
def info(as_json: bool) -> None:
    """Show the parts of the cache and their sizes."""
    from dataclasses import asdict

    from opencoti_build.build.cache_parts import parts
    from opencoti_build.cli.pin_table import print_table
    from opencoti_build.paths import find_cache

    cache = find_cache()
    rows = parts(cache)
    total = sum(part.size for part in rows)
    if as_json:
        print_json({"folder": str(cache.root), "parts": [asdict(p) for p in rows], "size": total})
        return
    click.echo(f"{cache.root}  {total / 1e6:.1f} MB")
    print_table(
        ["part", "MB", "files", "what"],
        [[part.name, f"{part.size / 1e6:.1f}", str(part.files), part.about] for part in rows],
    )


@command.command()
@click.option("--what", multiple=True, metavar="PART", help="Only this part (may be repeated).")
@click.option("--max-size", metavar="SIZE", help="Keep at most this much of each part (5G).")
@click.option("--older-than", metavar="AGE", help="Drop what was not used for so long (30d).")
@json_option
def prune(
    what: tuple[str, ...], max_size: str | None, older_than: str | None, as_json: bool
) -> None:
    """Drop old build folders, finished steps and compiled objects."""
    from opencoti_build.build import cache_parts
    from opencoti_build.paths import find_cache

    if max_size is None and older_than is None:
        raise click.UsageError("give --max-size, --older-than, or both")
    for name in what:
        if name not in cache_parts.PRUNED:
            raise click.UsageError(f"--what {name} is none of: {', '.join(cache_parts.PRUNED)}")
    lost = cache_parts.prune(
        find_cache(),
        what or cache_parts.PRUNED,
        max_size=None if max_size is None else cache_parts.parse_size(max_size),
        older_than=None if older_than is None else cache_parts.parse_age(older_than),
    )
    if as_json:
        print_json(lost)
        return
    for name, size in lost.items():
        click.echo(f"{name}  {size / 1e6:.1f} MB dropped")


@command.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--what", type=click.Choice(["cuda"]), default="cuda", show_default=True)
@quiet_option
@json_option
def export(file: Path, what: str, quiet: bool, as_json: bool) -> None:
    """Write the compiled objects of the CUDA library to an archive."""
    from opencoti_build.build.cache_archive import export_objects
    from opencoti_build.paths import find_cache

    moved = export_objects(find_cache(), what, _compiler(), file, make_ui(quiet))
    size = file.stat().st_size
    if as_json:
        print_json({"file": str(file), "size": size, "objects": moved.objects})
        return
    click.echo(f"{moved.objects} objects, {size / 1e6:.1f} MB  {file}")


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@quiet_option
@json_option
def import_(file: Path, quiet: bool, as_json: bool) -> None:
    """Put the objects of an archive into the cache; stopped, it can be run again."""
    from opencoti_build.build.cache_archive import import_objects, read_head
    from opencoti_build.paths import find_cache

    ui = make_ui(quiet)
    made_by, here = read_head(file).get("compiler"), _compiler()
    if made_by and here and made_by != here:
        ui.warn("the archive was made with another CUDA or C++ compiler; builds here compile again")
    moved = import_objects(find_cache(), file, ui)
    if as_json:
        print_json({"objects": moved.objects, "size": moved.size, "present": moved.present})
        return
    click.echo(f"{moved.objects} objects, {moved.size / 1e6:.1f} MB, {moved.present} were there")


def _compiler() -> dict[str, object] | None:
    """What identifies the CUDA compiler of this machine; None without one."""
    from opencoti_build.errors import BuildError
    from opencoti_build.toolchains.nvcc import find_nvcc

    try:
        return find_nvcc().to_key()
    except BuildError:
        return None
