"""The ``laminar`` command: its entry point, and what happens when something goes wrong."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from laminar_dagster.cli.failures import failure_of, print_traceback
from laminar_dagster.cli.lazy import LazyCommand, LazyGroup
from laminar_dagster.cli.options import PathType, json_option
from laminar_dagster.cli.output import Output, print_json

_COMMANDS: Final = {
    "init": LazyCommand(
        "laminar_dagster.cli.init",
        "Make a project with a pipeline that runs.",
    ),
    "validate": LazyCommand(
        "laminar_dagster.cli.validate",
        "Tell every mistake in the pipelines' files.",
    ),
    "sql": LazyCommand(
        "laminar_dagster.cli.sql",
        "Ask a pipeline about its parts: SHOW, DESCRIBE.",
    ),
    "run": LazyCommand(
        "laminar_dagster.cli.run",
        "Run epochs, until nothing is left to read.",
    ),
    "status": LazyCommand(
        "laminar_dagster.cli.status",
        "Show how far a pipeline is, and what waits.",
    ),
    "epochs": LazyCommand(
        "laminar_dagster.cli.epochs.group",
        "List epochs, and show all that one did.",
    ),
    "schema": LazyCommand(
        "laminar_dagster.cli.schema",
        "Print the JSON schema of pipeline.yml, for editors.",
    ),
    "plan": LazyCommand(
        "laminar_dagster.cli.plan",
        "Show what a changed pipeline does to its state.",
    ),
    "rescale": LazyCommand(
        "laminar_dagster.cli.rescale",
        "Spread the state over another number of buckets.",
    ),
    "verify": LazyCommand(
        "laminar_dagster.cli.verify",
        "Run an epoch again and compare every hash.",
    ),
    "recover": LazyCommand(
        "laminar_dagster.cli.recover",
        "Mend a damaged store, and restore a checkpoint.",
    ),
    "fork": LazyCommand(
        "laminar_dagster.cli.branches.fork",
        "Replay epochs with a changed model, in a branch.",
    ),
    "branch": LazyCommand(
        "laminar_dagster.cli.branches.group",
        "List, run, compare and drop branches.",
    ),
    "promote": LazyCommand(
        "laminar_dagster.cli.branches.promote",
        "Put a branch in its pipeline's place; correct the sinks.",
    ),
    "state": LazyCommand(
        "laminar_dagster.cli.state.group",
        "Show what the open windows hold, and what changed.",
    ),
    "dead-letters": LazyCommand(
        "laminar_dagster.cli.dead_letters.group",
        "List, show and replay records that were set aside.",
    ),
    "txn": LazyCommand(
        "laminar_dagster.cli.txn.group",
        "List and end transactions that sinks left open.",
    ),
    "warm-up": LazyCommand(
        "laminar_dagster.cli.warm_up",
        "Keep Spark's classes, so that it starts faster.",
    ),
    "checkpoints": LazyCommand(
        "laminar_dagster.cli.checkpoints.group",
        "List, show and verify checkpoints; collect garbage.",
    ),
}

_EPILOG: Final = """\b
Exit codes:
  0   done
  1   failed, with a named error
  2   bad usage or configuration
  3   refused: it would lose or duplicate data
  4   integrity: corrupt or missing files
  5   fenced: another writer holds the epoch
  75  a service is away, try again
"""


class _Root(LazyGroup):
    """The command itself. Every error ends here, in words and in an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, report and exit; with ``standalone_mode`` off, as click does it."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        given = list(sys.argv[1:] if args is None else args)
        output = Output(as_json=_wants_json(given))
        _write_anything()
        try:
            outcome = super().main(
                given, prog_name or "laminar", complete_var, False, obj=output, **extra
            )
            # Click swallows the reader that went away only when it hears of it.
            sys.stdout.flush()
            code = outcome if isinstance(outcome, int) else 0
        except BrokenPipeError:
            code = _reader_is_gone()
        except (Exception, KeyboardInterrupt) as error:
            code = _report(error, output)
        sys.exit(code)


def _report(error: BaseException, output: Output) -> int:
    failure = failure_of(error)
    try:
        if os.environ.get("LAMINAR_DEBUG") == "1":
            print_traceback(error)
        failure.report(as_json=output.as_json)
    except BrokenPipeError:
        _reader_is_gone()
    return failure.exit_code


def _wants_json(args: list[str]) -> bool:
    """Known before anything is parsed, so that a mistake in the arguments is told in JSON too."""
    own = args[: args.index("--")] if "--" in args else args
    return "--json" in own


def _write_anything() -> None:
    """Let a character that the terminal does not have be written as its number."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")


def _reader_is_gone() -> int:
    """As ``laminar … | head`` does. The interpreter must not complain when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    found = version("laminar-dagster")
    if isinstance(ctx.obj, Output) and ctx.obj.as_json:
        print_json({"version": found})
    else:
        click.echo(f"laminar {found}")
    ctx.exit()


@click.group(
    "laminar",
    cls=_Root,
    lazy=_COMMANDS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--project",
    metavar="DIR",
    type=PathType(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="The project's folder, from which relative paths are taken.  [default: here]",
)
@json_option
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(ctx: click.Context, project: Path) -> None:
    """Exactly-once stream processing as a sequence of Dagster runs."""
    ctx.meta["laminar.project"] = project


def main() -> NoReturn:
    """The console script."""
    cli()
    raise AssertionError("click exits")
