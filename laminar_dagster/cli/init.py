"""``laminar init``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.errors import CannotMakeProject, FolderNotEmpty
from laminar_dagster.cli.options import TEXT, PathType, json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.tables import Block, Line
from laminar_dagster.config.example_project import project_files, with_schemas
from laminar_dagster.core.ids import PipelineName

if TYPE_CHECKING:
    from laminar_dagster.sources.kafka.discovery import FoundTopic

_EXAMPLE: Final = "clickstream"
# The files of the example that every project has.
_OF_ANY: Final = frozenset({".gitignore", "definitions.py", "workspace.yaml"})


@click.command("init")
@click.argument("folder", metavar="DIR", type=PathType(path_type=Path))
@click.option(
    "--name",
    type=TEXT,
    metavar="NAME",
    help="What the pipeline is called.  [default: clickstream, or like the topic]",
)
@click.option(
    "--from-topic",
    type=TEXT,
    metavar="TOPIC",
    help="Take the columns from what a topic of Kafka holds.",
)
@click.option("--bootstrap-servers", type=TEXT, metavar="HOST:PORT,…", help="The brokers to ask.")
@click.option(
    "--schema-registry",
    type=TEXT,
    metavar="URL",
    help="Where the topic's schema is. Without, its columns are guessed from messages of JSON.",
)
@click.option(
    "--subject",
    type=TEXT,
    metavar="NAME",
    help="Of the schema in the registry.  [default: TOPIC-value]",
)
@click.option(
    "--with",
    "options",
    type=TEXT,
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the source, such as kafka.security.protocol=SSL; any number of times. "
    "'${NAME}' within a value is taken from the environment, and written as it stands.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    folder: Path,
    name: str | None,
    from_topic: str | None,
    bootstrap_servers: str | None,
    schema_registry: str | None,
    subject: str | None,
    options: tuple[str, ...],
) -> None:
    """Make a project with a pipeline that runs, and input for it.

    With --from-topic, its source is a topic of Kafka: columns, types and event time are taken from
    the schema registry, or guessed from the topic's newest messages.

    DIR must be empty, or not there yet.
    """
    _require_empty(folder)
    found: FoundTopic | None = None
    if from_topic is None:
        if bootstrap_servers or schema_registry or subject or options:
            raise click.UsageError("the options of a topic need --from-topic", ctx)
        name = name or _EXAMPLE
        project = dict(project_files(PipelineName(name)))
    else:
        # Imported here: with it comes the client of Kafka.
        from laminar_dagster.plugins.declarations import SourceConnector
        from laminar_dagster.plugins.registry import find_usable

        find_usable(SourceConnector, "kafka", {}, "--from-topic")
        from laminar_dagster.cli.topic_project import TopicWish

        wish = TopicWish.of(from_topic, bootstrap_servers, schema_registry, subject, options)
        name = name or wish.source
        found = wish.discover(PipelineName(name))
        project = {
            path: text for path, text in project_files(PipelineName(name)) if path in _OF_ANY
        }
        project.update(wish.files(PipelineName(name), found))
    project |= with_schemas(project)
    _write(folder, project)
    pipeline, commands = name, _next_commands(folder, found)
    output_of(ctx).result(
        lambda: _document(folder, pipeline, project, commands, found),
        lambda: _blocks(folder, pipeline, project, commands, found),
    )


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


def _next_commands(folder: Path, found: FoundTopic | None) -> list[str]:
    enter = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(os.fspath(folder))}"]
    check = "laminar validate --connect" if found else "laminar validate"
    return [*enter, check, "laminar run", "laminar status", "laminar epochs show 1"]


def _document(
    folder: Path,
    name: str,
    project: dict[str, str],
    commands: list[str],
    found: FoundTopic | None,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "project": str(folder.absolute()),
        "pipeline": name,
        "files": sorted(project),
        "next": commands,
    }
    if found:
        from laminar_dagster.cli.topic_project import document as document_of_topic

        document["source"] = document_of_topic(found)
    return document


def _blocks(
    folder: Path,
    name: str,
    project: dict[str, str],
    commands: list[str],
    found: FoundTopic | None,
) -> Iterator[Block]:
    made = wording.count(len(project), "file")
    yield Line(f"Pipeline {name} is in {folder}: {made}. README.md there says what each is.")
    if found:
        columns = wording.count(len(found.columns), "column")
        how = "guessed from" if found.is_guess else "from"
        yield Line(f"Its source has {columns}, {how} {found.origin} of topic {found.topic}.")
        if found.unfit:
            unfit = wording.count(found.unfit, "message")
            yield Line(f"{unfit} of those would be dead letters all the same.")
        if found.left_out:
            names = ", ".join(found.left_out)
            yield Line(f"Left out, since no column can hold them or be called so: {names}")
        if found.is_guess:
            yield Line("A guess: look over sources.sql before you build on it.")
    yield Line()
    yield Line("Next:")
    for each in commands:
        yield Line(f"  {each}")
