"""The known connectors and their options, as declared by the layer that has the adapters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from laminar_dagster.config.mistakes import Report, listed, nearest
from laminar_dagster.config.model import Column
from laminar_dagster.config.sql.syntax import Options
from laminar_dagster.config.variables import (
    empty_variables,
    has_variable,
    looks_secret,
    missing_variables,
)

# Options that locate something. They are refused when empty: a path built from an empty variable
# could be the root, or the project's own folder.
_PLACES: Final = frozenset(
    {
        "avro.schema",
        "bootstrap.servers",
        "database",
        "host",
        "key",
        "key.columns",
        "ledger.topic",
        "path",
        "pattern",
        "publication",
        "schema",
        "slot",
        "table",
        "tables",
        "topic",
        "topic.pattern",
        "topics",
        "user",
    }
)


@dataclass(frozen=True, slots=True)
class SourceTraits:
    """Properties of a source that follow from its connector and options.

    Attributes:
        columns: Columns that it adds to the declared ones. Their names begin with an underscore.
        hidden: Added columns that ``SELECT *`` leaves out.
        delay_micros: Delay of the watermark, where ``WATERMARK FOR`` names none.
        delay_option: The option that sets this delay, if it is given.
        lacks_retractions: Where it adds ``_weight``: what to set so that every update carries a
            retraction of the old row, and sums by weight are right. Empty if every update does.
        replaces_rows: Where it adds ``_weight``: a row may replace an older one without a
            retraction of it (upsert).
        enforces_keys: The database enforces the PRIMARY KEY, and the adapter checks that it has
            one. Otherwise the key is only an author's claim about messages that anybody may write.
    """

    columns: tuple[Column, ...] = ()
    hidden: frozenset[str] = frozenset()
    delay_micros: int = 0
    delay_option: str = ""
    lacks_retractions: str = ""
    replaces_rows: bool = False
    enforces_keys: bool = False


Kind = Literal["source", "reference table", "sink"]

# From the options of a source or sink: each bad option, its problem, and what to do.
OptionCheck = Callable[[Mapping[str, str]], Iterable[tuple[str, str, str]]]
# The same for a connector of a kind, by its name.
ConnectorCheck = Callable[[Kind, str, Mapping[str, str]], Iterable[tuple[str, str, str]]]


def _unchecked(
    _kind: Kind, _connector: str, _options: Mapping[str, str]
) -> Iterable[tuple[str, str, str]]:
    return ()


@dataclass(frozen=True, slots=True)
class Connectors:
    """The options of each connector by its name. A name that ends in ``*`` is a prefix.

    Attributes:
        traits: For connectors of sources with traits: a function from the options of a source. It
            ignores invalid values, which the adapter refuses.
        mistakes: Checks options beyond their names: yields an option, what is wrong with it, and
            what to do. Also where the connector itself cannot be used. The adapter checks the
            same, but only here is the option's line in the file known.
        doubts: Like ``mistakes``, for what is allowed but discouraged: warnings.
    """

    sources: Mapping[str, Collection[str]]
    sinks: Mapping[str, Collection[str]]
    references: Mapping[str, Collection[str]] = field(default_factory=dict)
    traits: Mapping[str, Callable[[Mapping[str, str]], SourceTraits]] = field(default_factory=dict)
    mistakes: ConnectorCheck = _unchecked
    doubts: ConnectorCheck = _unchecked

    def traits_of(self, connector: str, options: Mapping[str, str]) -> SourceTraits:
        """The traits of a source with this connector and these options."""
        read = self.traits.get(connector)
        return read(options) if read is not None else SourceTraits()


def check_options(
    options: Options,
    kind: Kind,
    owner: str,
    connectors: Connectors | None,
    environment: Mapping[str, str],
    report: Report,
) -> str:
    """The connector that options name; notes unknown options, and secrets in plain text."""
    connector = options.values.get("connector", "")
    if not connector:
        hint = nearest("connector", options.values, "for example connector = 'file'")
        report.add(options.where, f"{kind} `{owner}` has no `connector`", hint)
        return ""
    for name, written in options.written.items():
        if looks_secret(name, written) and written and not has_variable(written):
            hint = f"write '${{{_variable(name)}}}' and set it in the environment"
            report.warn(options.places[name], f"the option `{name}` holds a secret", hint)
    for name, value in options.values.items():
        empty = empty_variables(options.written[name], environment)
        if name in _PLACES and empty:
            problem = f"the option `{name}` takes `${{{empty[0]}}}`, which is set, and empty"
            report.add(options.places[name], problem, "set it to something, or unset it")
        elif (
            name in _PLACES
            and not value.strip()
            # A variable that is not set was reported when the option was filled in.
            and not missing_variables(options.written[name], environment)
        ):
            report.add(options.places[name], f"the option `{name}` is empty")
    if connectors is None:
        return connector
    available = {
        "source": connectors.sources,
        "reference table": connectors.references,
        "sink": connectors.sinks,
    }[kind]
    if connector not in available:
        hint = nearest(connector, available, listed(available, f"connectors of a {kind}"))
        shown = "" if has_variable(options.written["connector"]) else f" `{connector[:80]}`"
        problem = f"{kind} `{owner}` asks for a connector{shown} that does not exist"
        report.add(options.places["connector"], problem, hint)
        return connector
    known = available[connector]
    for name in options.values:
        if name != "connector" and not _is_known(name, known):
            hint = nearest(name, known, listed(known, "options"))
            problem = f"connector `{connector}` has no option `{name[:80]}`"
            report.add(options.places[name], problem, hint)
    for check, note in ((connectors.mistakes, report.add), (connectors.doubts, report.warn)):
        for name, problem, hint in check(kind, connector, options.values):
            note(options.places.get(name, options.where), problem, hint)
    return connector


def _is_known(name: str, known: Collection[str]) -> bool:
    return name in known or any(each.endswith("*") and name.startswith(each[:-1]) for each in known)


def _variable(option: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in option).upper()
