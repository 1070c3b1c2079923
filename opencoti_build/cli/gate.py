"""``opencoti-build gate``: measure what the patched engine promises, and say how."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opencoti_build.cli.options import build_options, json_option, print_json
from opencoti_build.errors import CheckError

if TYPE_CHECKING:
    from opencoti_build.build.context import BuildContext
    from opencoti_build.gates.gate import Options
    from opencoti_build.gates.result import Result


@click.group()
def command() -> None:
    """Prove the patched engine against the unpatched base."""


def measure_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add what is measured with; the function gets the Options that they make."""

    @click.option("--on", default="", help="Server arguments that turn a feature on.")
    @click.option("--limit", type=float, help="The feature's limit, in the gate's unit.")
    @click.option("--engine-args", default="", help="Arguments for both engines, such as -ngl 99.")
    @click.option("--full", is_flag=True, help="All cases, also those that take long.")
    @click.option(
        "--max-seconds",
        type=click.FloatRange(min=1),
        default=30.0,
        show_default=True,
        help="How long one measurement of speed may go on.",
    )
    @functools.wraps(function)
    def with_options(
        context: BuildContext,
        *,
        on: str,
        limit: float | None,
        engine_args: str,
        full: bool,
        max_seconds: float,
        **rest: object,
    ) -> None:
        from opencoti_build.gates.gate import Options

        options = Options(
            full=full,
            on=tuple(shlex.split(on)),
            engine_args=tuple(shlex.split(engine_args)),
            limit=limit,
            max_seconds=max_seconds,
        )
        function(context, options=options, **rest)

    return with_options


@command.command("list")
@json_option
def list_gates(as_json: bool) -> None:
    """Say what each gate proves, from what, and its limit."""
    from opencoti_build.gates.gate import Options
    from opencoti_build.gates.registry import load_gates

    rows = [
        {
            "gate": gate.name,
            "proves": gate.proves,
            "inputs": gate.inputs,
            "limit": gate.limit,
            "default": gate.default,
            "cases": len(gate.cases(Options())),
        }
        for gate in load_gates().values()
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(f"{row['gate']}" + ("" if row["default"] else "  (only when named)"))
        click.echo(f"  proves  {row['proves']}")
        click.echo(f"  from    {row['inputs']}; {row['cases']} cases")
        click.echo(f"  limit   {row['limit']}")


@command.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--tag", default="dev", show_default=True, help="Release tag.")
@click.option("--case", "only", default="", help="Only the cases of this name (or pattern).")
@click.option("--again", is_flag=True, help="Measure what is kept already.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("gates.json"),
    show_default=True,
    help="Where the results are written.",
)
@click.option(
    "--device",
    type=click.Path(file_okay=False, path_type=Path),
    help="Run nothing: make this folder, to be run on another machine.",
)
@click.option(
    "--library",
    "libraries",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --device: a GPU library for both engines (may be given again).",
)
@build_options
@measure_options
@json_option
def run(
    context: BuildContext,
    names: tuple[str, ...],
    only: str,
    again: bool,
    out: Path,
    device: Path | None,
    libraries: tuple[Path, ...],
    options: Options,
    as_json: bool,
) -> None:
    """Run gates (default: all but those that must be named) and write gates.json."""
    from opencoti_build.gates.local import LocalRun
    from opencoti_build.gates.registry import load_gates, select_gates
    from opencoti_build.gates.result import render, replace_file

    gates = select_gates(load_gates(), names)
    local = LocalRun(context, gates, options)
    suite = local.suite(again=again, only=only)
    if device is not None:
        from opencoti_build.gates.pack import pack_folder

        pack_folder(local, suite, device, libraries)
        click.echo(f"{device}: run 'python3 run.py' in it, then 'opencoti-build gate merge' here")
        return
    results = suite.run(gates)
    local.keep(results)
    replace_file(out, render(local.identity, results))
    report(context, results, as_json)


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--tag", default="dev", show_default=True, help="Release tag.")
@build_options
@json_option
def merge(context: BuildContext, file: Path, as_json: bool) -> None:
    """Take in the gates.json of another machine (see 'gate run --device')."""
    from opencoti_build.gates.local import merge_file
    from opencoti_build.gates.subject import PATCHED
    from opencoti_build.gates.subjects import SubjectBuilder

    workspace = SubjectBuilder(context).workspace(PATCHED)
    report(context, merge_file(context, workspace, file), as_json)


@command.command()
@click.option("--tag", default="dev", show_default=True, help="Release tag.")
@click.option("--slots", type=click.IntRange(min=1), multiple=True, help="Slots [1 and 4].")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--model", help="Model pin [smollm2-135m-instruct].")
@build_options
@measure_options
@json_option
def bench(
    context: BuildContext,
    slots: tuple[int, ...],
    threads: int,
    model: str | None,
    options: Options,
    as_json: bool,
) -> None:
    """Speed of the patched engine with --on against the same without (no --on: against base)."""
    from opencoti_build.gates.bench import bench_rows

    rows = bench_rows(context, options, slots or (1, 4), threads, model)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(f"{row['load']:<18}  {row['speed']}")


def report(context: BuildContext, results: list[Result], as_json: bool) -> None:
    """Print the table; raise CheckError ``gate-failed`` when a case failed."""
    from opencoti_build.gates.gate import Verdict
    from opencoti_build.gates.result import table

    if as_json:
        print_json([result.to_json() for result in results])
    else:
        click.echo(table(results))
    counts = {verdict: sum(r.verdict is verdict for r in results) for verdict in Verdict}
    words = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    context.ui.info(words or "no case has this name")
    if failed := [result for result in results if result.verdict is Verdict.FAIL]:
        raise CheckError(
            "gate-failed",
            f"{len(failed)} of {len(results)} cases failed",
            context={"gates": ", ".join(dict.fromkeys(result.gate for result in failed))},
        )
