"""``opencoti-build build``: one component, without packing it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opencoti_build.cli.options import build_options, json_option, print_json
from opencoti_build.paths import atomic_path

if TYPE_CHECKING:
    from opencoti_build.build.context import BuildContext


@click.group()
def command() -> None:
    """Build one component."""


@command.command()
@click.option("--tag", default="dev", show_default=True, help="Tag in the version string.")
@click.option("--out", type=click.Path(path_type=Path), help="Copy the engine's files there.")
@build_options
@json_option
def engine(context: BuildContext, out: Path | None, as_json: bool) -> None:
    """Build the engine: the executable and its CPU modules."""
    from opencoti_build.build.prepare import prepare
    from opencoti_build.build.reference import Reference

    pipeline = prepare(context)
    rows = []
    if isinstance(pipeline, Reference):
        program = pipeline.build().program
        folder = _copy([program], out) if out else program.parent
        size = program.stat().st_size
        rows.append({"target": "all", "folder": str(folder), "size": size})
        engines = []
    else:
        engines = pipeline.engines()
    for built in engines:
        folder = built.folder
        if out:
            many = len(context.targets) > 1
            folder = _copy(built.files(), out / str(built.target) if many else out)
        done = built.compiled
        rows.append(
            {
                "target": str(built.target),
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


@command.command()
@click.option("--tag", default="dev", show_default=True, help="Tag of the engine beside it.")
@click.option("--arch", multiple=True, help="Only this GPU architecture, such as 90 or 120f.")
@click.option("--out", type=click.Path(path_type=Path), help="Copy the library there.")
@build_options
@json_option
def cuda(context: BuildContext, arch: tuple[str, ...], out: Path | None, as_json: bool) -> None:
    """Build the CUDA library of the first target that can have one."""
    from opencoti_build.build.pipeline import Pipeline
    from opencoti_build.digest import sha256_file
    from opencoti_build.errors import UsageError
    from opencoti_build.recipe import check_architectures
    from opencoti_build.verify.gpu import code_sizes

    context = context.with_cuda()
    recipe, library = context.cuda_libraries[0]
    try:
        names = check_architectures(arch) if arch else library.architectures
    except ValueError as error:
        raise UsageError("bad-architecture", str(error)) from None
    path = Pipeline.prepare(context).cuda(recipe, names)
    if out:
        with atomic_path(out / path.name, 0o755) as temporary:
            shutil.copyfile(path, temporary)
        path = out / path.name
    sizes = code_sizes(path)
    row = {"architectures": list(names), "file": str(path), "size": path.stat().st_size,
           "sha256": sha256_file(path), "architecture_sizes": sizes}  # fmt: skip
    if as_json:
        print_json(row)
        return
    for name, size in sizes.items():
        click.echo(f"device code {name}  {size / 1e6:.1f} MB")
    click.echo(f"{' '.join(names)}  {path.stat().st_size / 1e6:.1f} MB  {path}")


def _copy(files: Iterable[Path], folder: Path) -> Path:
    """Copies, never links: the stored step must not change with the user's files."""
    for path in files:
        with atomic_path(folder / path.name, 0o755) as temporary:
            shutil.copyfile(path, temporary)
    return folder
