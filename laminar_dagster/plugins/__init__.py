"""What a plug-in declares: the interface that connectors are written against.

Sources, sinks, reference tables and stores are found by the entry points of installed
distributions, ours like anybody's. An entry point names a connector, and the object that declares
it; that object is loaded when a pipeline names the connector. ``docs/plugins.md`` tells how to
write one.
"""

from laminar_dagster.config.connectors import SourceTraits
from laminar_dagster.plugins.declarations import (
    INTERFACE,
    Extra,
    ReferenceConnector,
    ReferenceContext,
    SinkConnector,
    SinkContext,
    SourceConnector,
    SourceContext,
    StoreConnector,
)

__all__ = [
    "INTERFACE",
    "Extra",
    "ReferenceConnector",
    "ReferenceContext",
    "SinkConnector",
    "SinkContext",
    "SourceConnector",
    "SourceContext",
    "SourceTraits",
    "StoreConnector",
]
