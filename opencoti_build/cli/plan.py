"""``opencoti-build plan``: each step, whether it is stored, and which input changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from opencoti_build.cli.options import build_options, json_option, print_json

if TYPE_CHECKING:
    from opencoti_build.build.context import BuildContext


@click.command()
@click.option("--tag", default="dev", show_default=True, help="Release tag.")
@build_options
@json_option
def command(context: BuildContext, as_json: bool) -> None:
    """Show each build step, whether it is cached, and which input changed when it is not."""
    from opencoti_build.build.pipeline import Pipeline

    pipeline = Pipeline.prepare(context)
    states = pipeline.states()
    if as_json:
        rows = [
            {
                "step": state.step.name,
                "key": state.step.key,
                "cached": state.cached,
                "changed": list(state.changed),
            }
            for state in states
        ]
        print_json({"workspace_tree": pipeline.workspace.tree, "steps": rows})
        return
    click.echo(f"workspace  tree {pipeline.workspace.tree}")
    width = max(len(state.step.name) for state in states)
    for state in states:
        click.echo(f"{state.step.name:{width}}  {state.step.key[:12]}  {state.why}")
