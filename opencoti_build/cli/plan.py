"""``opencoti-build plan``: each step, whether it is stored, and which input changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from opencoti_build.cli.options import build_options, cuda_option, json_option, print_json

if TYPE_CHECKING:
    from opencoti_build.build.context import BuildContext


@click.command()
@click.option("--tag", default="dev", show_default=True, help="Release tag.")
@cuda_option
@build_options
@json_option
def command(context: BuildContext, as_json: bool) -> None:
    """Show each build step, whether it is cached, and which input changed when it is not."""
    from opencoti_build.build.pipeline import Pipeline
    from opencoti_build.build.prepare import prepare

    pipeline = prepare(context)
    # Upstream's set-up has to run before the tree of its workspace is known.
    if isinstance(pipeline, Pipeline):
        what, tree = "workspace", pipeline.workspace.tree
    else:
        what, tree = "source", pipeline.workspace.base_tree
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
        print_json({f"{what}_tree": tree, "steps": rows})
        return
    click.echo(f"{what:9}  tree {tree}")
    width = max(len(state.step.name) for state in states)
    for state in states:
        click.echo(f"{state.step.name:{width}}  {state.step.key[:12]}  {state.why}")
