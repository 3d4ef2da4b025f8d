"""A project for a topic: a source with its columns, a view and a sink, to go on with."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click
from sqlglot.tokens import Tokenizer

from laminar_dagster.config.variables import fill, has_variable, looks_secret
from laminar_dagster.core.ids import PipelineName
from laminar_dagster.sources.formats.found_columns import FoundColumn
from laminar_dagster.sources.kafka.discovery import FoundTopic, discover_topic
from laminar_dagster.sources.kafka.options import read_options

if TYPE_CHECKING:
    from laminar_dagster.sources.kafka.options import KafkaOptions

# Of the options of a source, those that have an option of the command, or are found out.
_OWN: Final = {
    "bootstrap.servers": "--bootstrap-servers",
    "connector": "",
    "format": "",
    "include.metadata": "",
    "schema.registry.url": "--schema-registry",
    "topic": "--from-topic",
    "topic.pattern": "--from-topic",
    "topics": "--from-topic",
}
_PLAIN: Final = re.compile(r"[A-Za-z]\w*", re.ASCII)
# Names that a column of event time often has, the likeliest first.
_EVENT_TIMES: Final = (
    *("event_time", "event_timestamp", "eventtime", "ts", "timestamp", "time", "occurred_at"),
    *("created_at", "createdat", "created", "updated_at", "date"),
)
# All words of SQL, such as both of ORDER BY: quoted, they are names.
_WORDS: Final = frozenset(word for keyword in Tokenizer.KEYWORDS for word in keyword.split())
_METADATA_TIME: Final = "_timestamp"
_DELAY: Final = "INTERVAL '10' SECOND"


@dataclass(frozen=True, slots=True)
class TopicWish:
    """What the command was asked for.

    Attributes:
        options: Of the source, as they are to be written.
        subject: Of the schema registry; empty for the usual one.
    """

    topic: str
    options: Mapping[str, str]
    subject: str = ""

    @classmethod
    def of(
        cls,
        topic: str,
        servers: str | None,
        registry: str | None,
        subject: str | None,
        more: tuple[str, ...],
    ) -> TopicWish:
        """From the options of the command.

        Raises:
            UsageError: Something is missing, or is not an option of a source.
        """
        if not servers:
            raise click.UsageError("--from-topic needs --bootstrap-servers")
        if subject and not registry:
            raise click.UsageError("--subject is a name in a registry: give --schema-registry")
        options = {"connector": "kafka", "topic": topic, "bootstrap.servers": servers}
        if registry:
            options["schema.registry.url"] = registry
        for each in more:
            name, equals, value = each.partition("=")
            if not equals or not name.strip() or not value.strip():
                raise click.UsageError(f"--with takes NAME=VALUE, not {name!r}")
            if name in _OWN:
                instead = f"give {_OWN[name]}" if _OWN[name] else "it is found out"
                raise click.UsageError(f"--with does not take {name}: {instead}")
            if looks_secret(name, value) and not has_variable(value):
                raise click.UsageError(
                    f"--with {name} would write a secret into a file: put it into a variable of "
                    "the environment, and give that, as '${VARIABLE}'"
                )
            options[name] = value
        return cls(topic, options, subject or "")

    @property
    def source(self) -> str:
        """What the source is called."""
        name = re.sub(r"\W+", "_", self.topic, flags=re.ASCII).strip("_").lower()
        return name if _PLAIN.fullmatch(name) else f"topic_{name}".rstrip("_")

    def discover(self, pipeline: PipelineName) -> FoundTopic:
        """Ask the cluster, and the registry.

        Raises:
            UsageError: A variable is not set.
            LaminarError: As ``discover_topic``; or an option is wrong.
        """

        def missing(name: str) -> None:
            raise click.UsageError(f"the environment variable {name} is not set")

        filled = {
            name: fill(text, os.environ, missing)
            for name, text in self._with_group(pipeline).items()
            if name != "connector"
        }
        options: KafkaOptions = read_options(filled, "--from-topic", Path())
        return discover_topic(options, self.subject)

    def files(self, pipeline: PipelineName, found: FoundTopic) -> Iterator[tuple[str, str]]:
        """The files of the pipeline, and a page about it.

        Raises:
            InvalidPipeline: The pipeline would not load; says what of the topic is in the way.
        """
        folder = f"dbt_like_configs/{pipeline}"
        view = f"{self.source}_rows"
        files = {
            f"{folder}/pipeline.yml": _pipeline(pipeline, self.topic),
            f"{folder}/sources.sql": self._source(pipeline, found),
            f"{folder}/models/{view}.sql": _view(self.source, found),
            f"{folder}/sinks.sql": _sink(self.source, view),
        }
        _require_loadable(files, folder)
        yield from files.items()
        yield "README.md", _readme(pipeline, self.topic, found, folder, view)

    def _with_group(self, pipeline: PipelineName) -> dict[str, str]:
        return {"group.id": f"laminar-{pipeline}", **self.options}

    def _source(self, pipeline: PipelineName, found: FoundTopic) -> str:
        """The statement, with what is known of it in comments."""
        time = event_time(found)
        options = {**self._with_group(pipeline), "format": found.format}
        if time == _METADATA_TIME:
            options["include.metadata"] = "true"
        width = max(len(_name(each.name)) for each in found.columns)
        columns = [f"    {_name(each.name):{width}}  {_type(each)}" for each in found.columns]
        watermark = f"    WATERMARK FOR {_name(time)} AS {_name(time)} - {_DELAY}"
        given = [f"    {_option(name)} = {_text(value)}" for name, value in options.items()]
        return "\n".join(
            [
                *(f"-- {line}" for line in _remarks(found)),
                f"CREATE SOURCE TABLE {_name(self.source)} (",
                *(f"{line}," for line in columns),
                *(f"    -- {line}" for line in _about_time(time, found)),
                watermark,
                ") WITH (",
                *(f"{line}," for line in given[:-1]),
                given[-1],
                ");",
                "",
            ]
        )


def event_time(found: FoundTopic) -> str:
    """The column that is likeliest to be event time; Kafka's own, where there is none."""
    times = {each.name.lower(): each.name for each in found.columns if each.type == "timestamp"}
    for name in (*_EVENT_TIMES, *times):
        if name in times:
            return times[name]
    return _METADATA_TIME


def document(found: FoundTopic) -> dict[str, Any]:
    """What was found, for programs."""
    return {
        "topic": found.topic,
        "partitions": found.partitions,
        "format": found.format,
        "origin": found.origin,
        "is_guess": found.is_guess,
        "unfit_messages": found.unfit,
        "columns": [
            {"name": each.name, "type": each.type, "nullable": each.nullable}
            for each in found.columns
        ],
        "left_out": list(found.left_out),
        "event_time": event_time(found),
    }


def _require_loadable(files: Mapping[str, str], folder: str) -> None:
    # Imported here: with the connectors come their clients.
    from laminar_dagster.runtime.loading import load_pipelines

    with TemporaryDirectory() as scratch:
        for name, text in files.items():
            path = Path(scratch, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        load_pipelines([Path(scratch, folder)], Path(scratch))


# --- the files ----------------------------------------------------------------------------------


def _remarks(found: FoundTopic) -> Iterator[str]:
    if found.is_guess:
        yield f"Guessed from {found.origin} of the topic; others may be different. Look it over:"
        yield "types, which columns are never null, and what a number with a point really is."
    else:
        yield f"From {found.origin}."
    if found.unfit:
        yield f"Of these messages {found.unfit:,} do not suit it: they would be dead letters."
    if found.left_out:
        names = ", ".join(re.sub(r"\s", " ", each) for each in found.left_out)
        yield f"Left out, since no column can hold them or be called so: {names}"


def _about_time(time: str, found: FoundTopic) -> Iterator[str]:
    if time == _METADATA_TIME:
        yield "No column is a moment: this is the time of the message, as Kafka has it."
    else:
        others = [e.name for e in found.columns if e.type == "timestamp" and e.name != time]
        yield "Event time is a guess" + (f"; there is also {', '.join(others)}." if others else ".")
    yield "A record may come up to ten seconds after a later one. After that it is late."


def _pipeline(pipeline: PipelineName, topic: str) -> str:
    return (
        f'name: "{pipeline}"\n'
        f"description: What comes in topic {topic}, kept in Delta Lake.\n"
        f"store: .laminar/{pipeline}/store      # a path, or s3://bucket/prefix\n"
        "on_bad_record: dead_letter    # keep what cannot be decoded aside; or: fail\n"
    )


def _view(source: str, found: FoundTopic) -> str:
    columns = ",\n".join(f"    {_name(each.name)}" for each in found.columns)
    return (
        "-- A bare SELECT: the view is called like its file. It keeps every record as it is.\n"
        f"SELECT\n{columns}\nFROM {_name(source)}\n"
    )


def _sink(source: str, view: str) -> str:
    return (
        "-- Each sink commits an epoch in one transaction of its own, together with its ledger.\n"
        f"CREATE SINK {_name(f'{source}_lake')} FROM {_name(view)} WITH (\n"
        "    connector = 'delta',\n"
        f"    path = 'output/{view}'\n"
        ");\n"
    )


def _readme(pipeline: str, topic: str, found: FoundTopic, folder: str, view: str) -> str:
    how = "guessed from" if found.is_guess else "taken from"
    return f"""# {pipeline}

What comes in topic {topic}, cut into epochs and kept in Delta Lake: exactly once, also when it is
killed. The columns of the source are {how} {found.origin}.

```console
$ laminar validate --connect    # every mistake in the files below; asks the cluster as well
$ laminar run                   # epochs until nothing is left to read
$ laminar status                # how far it is, what waits, what the sinks hold
```

| file | what it is |
|---|---|
| `{folder}/sources.sql` | the topic: its columns, event time, how late is late |
| `{folder}/models/{view}.sql` | the view: what to make of it |
| `{folder}/sinks.sql` | where the rows of the view go |
| `{folder}/pipeline.yml` | name, store, limits |
| `definitions.py`, `workspace.yaml` | for `dagster dev` |
"""


def _type(column: FoundColumn) -> str:
    """As the project writes types; what is within angle brackets has names in it."""
    kind = column.type if "<" in column.type else column.type.upper()
    return kind if column.nullable else f"{kind} NOT NULL"


def _name(name: str) -> str:
    if name == _METADATA_TIME:
        return name
    is_plain = _PLAIN.fullmatch(name) and name.upper() not in _WORDS
    return name if is_plain else "`" + name.replace("`", "``") + "`"


def _option(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
