"""What went wrong, for the person or the program that called: message, hint and exit code."""

from __future__ import annotations

import traceback
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import click
from click.exceptions import MissingParameter, NoArgsIsHelpError, NoSuchCommand, NoSuchOption

from laminar_dagster.cli.output import print_json
from laminar_dagster.cli.wording import clean, count, shorter_place
from laminar_dagster.config.redaction import redact

if TYPE_CHECKING:
    from laminar_dagster.core.errors import LaminarError

INTERRUPTED: Final = 130
USAGE: Final = 2


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it is shown.

    Attributes:
        kind: Stable, for programs.
        context: The error's own fields.
        page: A help page to show in place of the message.
        mistakes: Everything that is wrong with a pipeline's files: where, problem, suggestion.
    """

    kind: str
    message: str
    hint: str = ""
    exit_code: int = 1
    context: dict[str, Any] = field(default_factory=dict)
    page: str = ""
    mistakes: tuple[dict[str, str], ...] = ()

    def as_document(self) -> dict[str, Any]:
        """As JSON values, without secrets."""
        shown = asdict(self)
        del shown["page"]
        if not self.mistakes:
            del shown["mistakes"]
        document: dict[str, Any] = _redacted(shown)
        return document

    def report(self, *, as_json: bool) -> None:
        """Print it: as JSON on standard output, or for people on standard error."""
        if as_json:
            print_json({"error": self.as_document()})
        elif self.page:
            click.echo(self.page, err=True)
        else:
            click.echo(f"error[{self.kind}]: {_line(self.message)}", err=True)
            if len(self.mistakes) > 1:
                for mistake in self.mistakes:
                    click.echo(f"  {_line(_told(mistake))}", err=True)
            if self.hint:
                click.echo(f"  hint: {_line(self.hint)}", err=True)


def failure_of(error: BaseException) -> Failure:
    """Put an exception into words."""
    match error:
        case click.Abort() | KeyboardInterrupt():
            return Failure("interrupted", "interrupted", exit_code=INTERRUPTED)
        case click.ClickException():
            return _of_click(error)
    # Imported here: a mistyped option needs none of it.
    from laminar_dagster.core.errors import LaminarError

    if isinstance(error, LaminarError):
        return _of_laminar(error)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    hint = "this is a bug, please report it; LAMINAR_DEBUG=1 shows where it happened"
    return Failure("internal", text, hint)


def _of_laminar(error: LaminarError) -> Failure:
    from laminar_dagster.cli.errors import Interrupted
    from laminar_dagster.config.mistakes import InvalidPipeline
    from laminar_dagster.core.errors import InvalidConfig

    found = Failure(error.kind, str(error), error.advice(), error.exit_code, dict(error.context()))
    if isinstance(error, InvalidConfig):
        found = replace(found, message=f"{shorter_place(error.where)}: {error.problem}")
    if isinstance(error, Interrupted):
        found = replace(found, exit_code=128 + error.signal)
    if isinstance(error, InvalidPipeline):
        # Its own fields repeat the mistakes, all in one line.
        mistakes = tuple(asdict(mistake) for mistake in error.mistakes)
        found = replace(found, context={}, mistakes=mistakes)
        if len(mistakes) > 1:
            found = replace(found, message=count(len(mistakes), "mistake"), hint="")
    return found


def print_traceback(error: BaseException) -> None:
    """Show where an exception came from."""
    text = "".join(traceback.format_exception(error))
    click.echo(redact(text), err=True, nl=False)


def _of_click(error: click.ClickException) -> Failure:
    context = error.ctx if isinstance(error, click.UsageError) else None
    page = f"`{context.command_path} --help`" if context else "`laminar --help`"
    match error:
        case NoArgsIsHelpError():
            hint = f"{page} lists them"
            return Failure("usage", "no command given", hint, USAGE, page=error.message)
        case NoSuchCommand() | NoSuchOption():
            nearest = " or ".join(f"`{each}`" for each in error.possibilities or ())
            hint = f"did you mean {nearest}?" if nearest else f"{page} lists what there is"
            message = error.message
        case MissingParameter():
            hint, message = f"{page} shows how it is used", error.format_message()
        case _:
            hint, message = f"{page} shows what it takes", error.format_message()
    message = message.removesuffix(".")
    # Click writes sentences; the errors of the package begin in lower case.
    return Failure("usage", message[:1].lower() + message[1:], hint, error.exit_code)


def _told(mistake: dict[str, str]) -> str:
    suggestion = f" ({mistake['suggestion']})" if mistake["suggestion"] else ""
    return f"{shorter_place(mistake['where'])}: {mistake['problem']}{suggestion}"


def _redacted(value: Any) -> Any:
    match value:
        case bool() | int() | float() | None:
            return value
        case dict():
            return {str(name): _redacted(each) for name, each in value.items()}
        case list() | tuple():
            return [_redacted(each) for each in value]
        case _:
            return redact(str(value))


def _line(text: str) -> str:
    return clean(redact(text))
