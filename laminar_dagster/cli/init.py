"""``laminar init``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.errors import CannotMakeProject, FolderNotEmpty
from laminar_dagster.cli.options import TEXT, PathType, json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.sample_clicks import sample_files
from laminar_dagster.cli.tables import Block, Line
from laminar_dagster.core.ids import PipelineName

_TEMPLATE: Final = "project_template"
_SUFFIX: Final = ".template"
_PLACEHOLDER: Final = "__pipeline__"


@click.command("init")
@click.argument("folder", metavar="DIR", type=PathType(path_type=Path))
@click.option(
    "--name",
    type=TEXT,
    metavar="NAME",
    default="clickstream",
    show_default=True,
    help="What the pipeline is called.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, folder: Path, name: str) -> None:
    """Make a project with a pipeline that runs, and input for it.

    DIR must be empty, or not there yet.
    """
    project = dict(project_files(PipelineName(name)))
    _require_empty(folder)
    _write(folder, project)
    commands = _next_commands(folder)
    output_of(ctx).result(
        lambda: _document(folder, name, project, commands),
        lambda: _blocks(folder, name, project, commands),
    )


def project_files(name: PipelineName) -> Iterator[tuple[str, str]]:
    """The path and the text of every file of the example project."""
    template = files("laminar_dagster") / _TEMPLATE
    for path, file in sorted(_walk(template)):
        text = file.read_text("utf-8").replace(_PLACEHOLDER, name)
        yield path.replace(_PLACEHOLDER, name).removesuffix(_SUFFIX), text
    for path, text in sample_files():
        yield f"input/{path}", text


def _walk(folder: Traversable, above: str = "") -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        path = f"{above}{each.name}"
        if each.is_dir():
            yield from _walk(each, f"{path}/")
        elif path.endswith(_SUFFIX):
            yield path, each


def _require_empty(folder: Path) -> None:
    try:
        if any(folder.iterdir()):
            raise FolderNotEmpty(str(folder))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise CannotMakeProject(str(folder), _reason(error)) from None


def _write(folder: Path, project: dict[str, str]) -> None:
    for name, text in project.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Never over a file that appeared meanwhile.
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except (OSError, ValueError) as error:
            raise CannotMakeProject(str(path), _reason(error)) from None


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def _next_commands(folder: Path) -> list[str]:
    enter = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(os.fspath(folder))}"]
    return [*enter, "laminar validate", "laminar run", "laminar status", "laminar epochs show 1"]


def _document(
    folder: Path, name: str, project: dict[str, str], commands: list[str]
) -> dict[str, Any]:
    return {
        "project": str(folder.absolute()),
        "pipeline": name,
        "files": sorted(project),
        "next": commands,
    }


def _blocks(
    folder: Path, name: str, project: dict[str, str], commands: list[str]
) -> Iterator[Block]:
    made = wording.count(len(project), "file")
    yield Line(f"Pipeline {name} is in {folder}: {made}. README.md there says what each is.")
    yield Line()
    yield Line("Next:")
    for each in commands:
        yield Line(f"  {each}")
