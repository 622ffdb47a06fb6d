"""The `draftmark` command: one file a subcommand, imported light; the work is imported when a command runs."""

import io
import os
import sys
from typing import Annotated, Final, cast

import typer

from draftmark.cli import (
    demo,
    diagnose,
    explain,
    import_,
    inspect,
    kernel,
    observe,
    plan,
    report,
    runs,
    selftest,
    serve,
    stop,
    sweep,
)
from draftmark.errors import DraftmarkError

INTERRUPTED: Final = 130
_USAGE_ERROR: Final = cast("type[Exception]", typer.BadParameter.__mro__[1])
"""What typer raises for a command line it does not understand; it has no public name for it."""

app = typer.Typer(
    name="draftmark",
    help="How much context your GPUs can carry without falling over, what it costs, and why.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(plan.plan)
app.command()(observe.observe)
app.command()(serve.serve)
app.command()(stop.stop)
app.command()(diagnose.diagnose)
app.command()(inspect.inspect)
app.command()(sweep.sweep)
app.command()(explain.explain)
app.command()(report.report)
app.command()(runs.runs)
app.command()(runs.export)
app.command()(selftest.selftest)
app.command("import")(import_.import_)
app.command()(demo.demo)
app.add_typer(kernel.app, name="kernel")


def _version(wanted: bool) -> None:
    if wanted:
        from draftmark import __version__

        print(f"draftmark {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run one command; what is meant for the user becomes one line on standard error and an exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a sign gets another one, not a traceback
    try:
        code = app(args=sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except DraftmarkError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _forget_output()
        sys.exit(1)
    except OSError as error:
        _forget_output()
        _fail(f"{error.filename or 'standard output'}: {error.strerror}; free the disk, or choose another place", 2)
    except _USAGE_ERROR as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "draftmark"
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        _fail(f"{' '.join(message.split()).removesuffix('.')}; see `{command} --help`", 2)


def _forget_output() -> None:
    """Whatever could not be written is not tried again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> None:
    print(f"draftmark: {message}", file=sys.stderr)
    sys.exit(code)
