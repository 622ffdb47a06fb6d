"""The `draftmark` command: one file a subcommand, imported light; the work is imported when a command runs."""

import sys
from typing import Final

import typer

from draftmark.errors import DraftmarkError

INTERRUPTED: Final = 130

app = typer.Typer(
    name="draftmark",
    help="How much context your GPUs can carry without falling over, what it costs, and why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run one command; an error meant for the user becomes one line and an exit code."""
    try:
        app(standalone_mode=True)
    except DraftmarkError as error:
        print(f"draftmark: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("draftmark: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
