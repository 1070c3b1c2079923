"""The ``opencoti-build`` program: lazy subcommands, error rendering, exit codes."""

from __future__ import annotations

import errno
import importlib
import sys
from typing import NoReturn

import click

from opencoti_build import __version__
from opencoti_build.errors import BugError, OpencotiError, UsageError
from opencoti_build.interrupt import STATUS, Terminated, heed_sigterm

# name -> (module, one-line help shown without importing the module)
COMMANDS: dict[str, tuple[str, str]] = {
    "artifact": ("opencoti_build.cli.artifact", "Build the single file and its release folder."),
    "build": ("opencoti_build.cli.build", "Build one component (the engine for a target)."),
    "bundle": ("opencoti_build.cli.bundle", "Put a model into a copy of a single file."),
    "cache": ("opencoti_build.cli.cache", "Show, shrink, export and import the cache."),
    "doctor": ("opencoti_build.cli.doctor", "Say which tools are there and how to get the others."),
    "fetch": ("opencoti_build.cli.fetch", "Bring pinned sources and models into the cache."),
    "gate": ("opencoti_build.cli.gate", "Prove the patched engine against the unpatched base."),
    "plan": ("opencoti_build.cli.plan", "Show each build step, whether it is cached, and why not."),
    "series": ("opencoti_build.cli.series", "Make, check, change and move the patches."),
    "sources": ("opencoti_build.cli.sources", "List the pins, and look for newer upstreams."),
    "verify": ("opencoti_build.cli.verify", "Prove a finished file without running it."),
}


class LazyGroup(click.Group):
    """Imports a subcommand's module only when it is used, so that --help stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, COMMANDS[name][1]) for name in sorted(COMMANDS)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="opencoti-build")
def cli() -> None:
    """Turn an upstream pin, a patch series and a recipe into one file that serves a local LLM."""


def render_error(error: OpencotiError) -> str:
    """The error as the user sees it: message and reason, facts, hint."""
    lines = [f"error: {error.message} [{error.reason}]"]
    lines += [f"  {key}: {value}" for key, value in error.context.items()]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    return "\n".join(lines)


def system_error(error: OSError) -> OpencotiError:
    """What the operating system refused, as an error that the user can cure."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return UsageError(
        "disk-full" if full else "system-error",
        "the disk is full" if full else f"the system refused: {error.strerror or error}",
        hint="free some space and run the same command again" if full else None,
        context={"file": error.filename} if error.filename else None,
    )


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with the code of DESIGN section 7."""
    args = sys.argv[1:] if argv is None else argv
    heed_sigterm()
    try:
        # Not standalone: click then raises, and returns the status where a command ended early.
        status = cli.main(args=args, prog_name="opencoti-build", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt) as stop:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        # Click puts its own exception in front of the signal's.
        ended = isinstance(stop, Terminated) or isinstance(stop.__context__, Terminated)
        sys.exit(STATUS if ended else 130)
    except OpencotiError as error:
        print(render_error(error), file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        failure = system_error(error)
        print(render_error(failure), file=sys.stderr)
        sys.exit(failure.exit_code)
    except Exception as error:
        if not isinstance(error, BugError):
            import traceback

            traceback.print_exc()
        print(f"bug: {error}\nplease report this with the command you ran", file=sys.stderr)
        sys.exit(70)


if __name__ == "__main__":
    main()
