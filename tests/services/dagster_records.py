"""What Dagster's GraphQL answers, as frozen records, with the fragments that ask for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

RunStatus = Literal[
    "QUEUED",
    "NOT_STARTED",
    "MANAGED",
    "STARTING",
    "STARTED",
    "SUSPENDED",
    "SUCCESS",
    "FAILURE",
    "CANCELING",
    "CANCELED",
]
ENDED: Final[frozenset[RunStatus]] = frozenset({"SUCCESS", "FAILURE", "CANCELED"})

METADATA: Final = """
metadataEntries {
  __typename label
  ... on TextMetadataEntry { text }
  ... on MarkdownMetadataEntry { mdStr }
  ... on UrlMetadataEntry { url }
  ... on PathMetadataEntry { path }
  ... on JsonMetadataEntry { jsonString }
  ... on IntMetadataEntry { intRepr }
  ... on FloatMetadataEntry { floatValue }
  ... on BoolMetadataEntry { boolValue }
  ... on TimestampMetadataEntry { timestamp }
  ... on PipelineRunMetadataEntry { runId }
  ... on AssetMetadataEntry { assetKey { path } }
  ... on TableMetadataEntry { table { records } }
  ... on TableSchemaMetadataEntry { schema { columns { name type constraints { nullable } } } }
  ... on TableColumnLineageMetadataEntry {
    lineage { columnName columnDeps { assetKey { path } columnName } }
  }
}
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A run, as the list of runs shows it."""

    FIELDS = "runId status jobName rootRunId parentRunId tags { key value } runConfigYaml"

    run_id: str
    status: RunStatus
    job: str
    tags: Mapping[str, str]
    parent_run_id: str | None
    root_run_id: str | None
    run_config: str

    @property
    def partition(self) -> str | None:
        """The partition it is for, if it is for one."""
        return self.tags.get("dagster/partition")

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Run:
        """Read one."""
        return cls(
            answer["runId"],
            answer["status"],
            answer["jobName"],
            _pairs(answer["tags"]),
            answer["parentRunId"],
            answer["rootRunId"],
            answer["runConfigYaml"],
        )


@dataclass(frozen=True, slots=True)
class Materialization:
    """A materialization of an asset. ``metadata`` is by label, as plain Python values."""

    FIELDS = f"runId partition tags {{ key value }} {METADATA}"

    run_id: str
    partition: str | None
    tags: Mapping[str, str]
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Materialization:
        """Read one."""
        metadata = _metadata(answer["metadataEntries"])
        return cls(answer["runId"], answer["partition"], _pairs(answer["tags"]), metadata)


@dataclass(frozen=True, slots=True)
class CheckExecution:
    """An execution of an asset check.

    Attributes:
        severity: None when it was not evaluated, as in a run that failed before.
    """

    FIELDS = f"runId status partition evaluation {{ severity description {METADATA} }}"

    run_id: str
    status: Literal["IN_PROGRESS", "SUCCEEDED", "FAILED", "EXECUTION_FAILED", "SKIPPED"]
    partition: str | None
    severity: Literal["WARN", "ERROR"] | None
    description: str | None
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> CheckExecution:
        """Read one."""
        evaluation = answer["evaluation"] or {}
        return cls(
            answer["runId"],
            answer["status"],
            answer["partition"],
            evaluation.get("severity"),
            evaluation.get("description"),
            _metadata(evaluation.get("metadataEntries", ())),
        )


@dataclass(frozen=True, slots=True)
class Tick:
    """An evaluation of a sensor or schedule."""

    FIELDS = "status runIds runKeys skipReason cursor error { message stack }"

    status: Literal["STARTED", "SKIPPED", "SUCCESS", "FAILURE"]
    run_ids: tuple[str, ...]
    run_keys: tuple[str, ...]
    skip_reason: str | None
    cursor: str | None
    error: str | None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Tick:
        """Read one."""
        return cls(
            answer["status"],
            tuple(answer["runIds"]),
            tuple(answer["runKeys"]),
            answer["skipReason"],
            answer["cursor"],
            error_text(answer["error"]) if answer["error"] else None,
        )


@dataclass(frozen=True, slots=True)
class Backfill:
    """A backfill of assets."""

    FIELDS = f"status error {{ message stack }} runs {{ {Run.FIELDS} }}"

    status: str
    runs: tuple[Run, ...]
    error: str | None

    @property
    def has_ended(self) -> bool:
        """Whether no more runs will come of it."""
        return self.status in ("FAILED", "CANCELED") or self.status.startswith("COMPLETED")

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Backfill:
        """Read one."""
        error = error_text(answer["error"]) if answer["error"] else None
        return cls(answer["status"], tuple(map(Run.of, answer["runs"])), error)


@dataclass(frozen=True, slots=True)
class Event:
    """A line of a run's event log.

    Attributes:
        kind: For example ``STEP_FAILURE``; None for what a user logged.
        error: Message and stack of it and its causes; empty if it carries none.
    """

    FIELDS = """
    ... on MessageEvent { message level stepKey eventType }
    ... on ErrorEvent { error { message stack causes { message stack } } }
    """

    kind: str | None
    level: str
    step: str | None
    message: str
    error: str

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Event:
        """Read one."""
        error = answer.get("error")
        return cls(
            answer["eventType"],
            answer["level"],
            answer["stepKey"],
            answer["message"],
            error_text(error) if error else "",
        )

    def __str__(self) -> str:
        """As one paragraph of a log."""
        head = " - ".join(each for each in (self.level, self.step, self.kind, self.message) if each)
        return f"{head}\n{self.error}" if self.error else head


def error_text(answer: Mapping[str, Any]) -> str:
    """Message and stack of an error and of its causes."""
    parts = [answer["message"].strip(), "".join(answer.get("stack", ())).rstrip()]
    parts.extend(error_text(cause) for cause in answer.get("causes", ()))
    return "\n".join(each for each in parts if each)


def _pairs(answer: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {each["key"]: each["value"] for each in answer}


def _metadata(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {each["label"]: _value(each) for each in entries}


def _value(entry: Mapping[str, Any]) -> Any:
    match entry["__typename"].removesuffix("MetadataEntry"):
        case "Int":
            # GraphQL's own Int has 32 bits.
            return int(entry["intRepr"])
        case "Json":
            return json.loads(entry["jsonString"])
        case "Asset":
            return "/".join(entry["assetKey"]["path"])
        case "Table":
            return [json.loads(each) for each in entry["table"]["records"]]
        case "TableSchema":
            columns = entry["schema"]["columns"]
            return {each["name"]: each["type"] for each in columns}
        case "TableColumnLineage":
            return {
                each["columnName"]: [
                    ("/".join(dep["assetKey"]["path"]), dep["columnName"])
                    for dep in each["columnDeps"]
                ]
                for each in entry["lineage"]
            }
        case "Null":
            return None
        case _:
            (value,) = (each for key, each in entry.items() if key not in ("__typename", "label"))
            return value
