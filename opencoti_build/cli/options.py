"""Options that several commands share."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from opencoti_build.ui import Ui

F = TypeVar("F", bound=Callable[..., Any])


def quiet_option(function: F) -> F:
    """Add ``--quiet`` (no progress on stderr)."""
    return click.option("--quiet", "-q", is_flag=True, help="No progress output.")(function)


def json_option(function: F) -> F:
    """Add ``--json`` (the result as JSON on stdout)."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(
        function
    )


def offline_option(function: F) -> F:
    """Add ``--offline`` (never touch the network)."""
    return click.option(
        "--offline", is_flag=True, envvar="OPENCOTI_BUILD_OFFLINE", help="Never touch the network."
    )(function)


def cuda_option(function: F) -> F:
    """Add ``--cuda`` to a command with the options of a build; without it nvcc decides."""
    return click.option(
        "--cuda/--no-cuda",
        default=None,
        help="With the CUDA library, which takes hours to compile the first time [if there is a "
        "CUDA compiler].",
    )(function)


def build_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a build; the function gets the BuildContext that they and --tag make."""

    @click.option("--recipe", help="Recipe name in recipes/ [the tag].")
    @click.option("--target", multiple=True, help="Only this target (may be given again) [all].")
    @click.option(
        "--toolchain",
        type=click.Choice(["zig", "cosmocc"]),
        help="cosmocc: upstream llamafile's own build, for all targets at once [the recipe's].",
    )
    @click.option(
        "-j", "--jobs", type=click.IntRange(min=1), help="Compile jobs at once [number of cores]."
    )
    @offline_option
    @quiet_option
    @functools.wraps(function)
    def with_context(
        *,
        tag: str,
        recipe: str | None,
        target: tuple[str, ...],
        toolchain: str | None,
        jobs: int | None,
        offline: bool,
        quiet: bool,
        cuda: bool | None = False,
        **rest: object,
    ) -> None:
        from opencoti_build.build.context import make_context

        context = make_context(
            tag,
            recipe=recipe,
            targets=target,
            ui=make_ui(quiet),
            offline=offline,
            jobs=jobs,
            toolchain=toolchain,
        )
        if cuda:
            context = context.with_cuda()
        elif cuda is None:
            context = context.with_cuda_if_possible()
        function(context, **rest)

    return with_context


def make_ui(quiet: bool) -> Ui:
    """The Ui for one command run."""
    return Ui(quiet=quiet)


def print_json(value: object) -> None:
    """Print ``value`` as indented JSON on stdout."""
    click.echo(json.dumps(value, indent=2, sort_keys=True))
