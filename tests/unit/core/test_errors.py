"""The tree of errors: stable kinds, one exit code a group, picklable, drawn as it is."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re
import typing
from typing import Any

import pytest

from laminar_dagster.core import errors
from laminar_dagster.core.errors import (
    FailedError,
    FencedError,
    IntegrityError,
    InvalidConfig,
    LaminarError,
    RefusedError,
    RetryError,
    StopError,
    UnknownOutcome,
    UsageError,
)

CLASSES: list[type[LaminarError]] = [getattr(errors, name) for name in errors.__all__]
GROUPS: dict[type[LaminarError], int] = {
    RetryError: 75,
    UnknownOutcome: 75,
    UsageError: 2,
    RefusedError: 3,
    IntegrityError: 4,
    FencedError: 5,
    FailedError: 1,
}
INNER = {LaminarError, StopError, *GROUPS}

# A kind is read by programs. Whoever changes one changes their contract.
SNAPSHOT = {
    "BranchMismatch": ("branch_mismatch", 3),
    "CannotFork": ("cannot_fork", 3),
    "CannotReplay": ("cannot_replay", 3),
    "CannotRetract": ("cannot_retract", 3),
    "PipelineMovesOn": ("pipeline_moves_on", 75),
    "RecoveryOvertaken": ("recovery_overtaken", 75),
    "UnknownBranch": ("unknown_branch", 2),
    "VersionReplaced": ("version_replaced", 3),
    "AcknowledgeFailed": ("acknowledge_failed", 75),
    "AllCheckpointsCorrupt": ("all_checkpoints_corrupt", 4),
    "AlreadyReplayed": ("already_replayed", 3),
    "AuthFailed": ("auth_failed", 2),
    "BufferOverflow": ("buffer_overflow", 1),
    "ServiceFailed": ("service_failed", 1),
    "CannotRebuild": ("cannot_rebuild", 3),
    "CheckpointListFailed": ("checkpoint_list_failed", 75),
    "ChecksumMismatch": ("checksum_mismatch", 4),
    "CommitOutcomeUnknown": ("commit_outcome_unknown", 75),
    "ComputeFailed": ("compute_failed", 1),
    "ConditionsIgnored": ("conditions_ignored", 3),
    "ConnectionLost": ("connection_lost", 75),
    "EpochWaits": ("epoch_waits", 75),
    "DecodeFailed": ("decode_failed", 1),
    "DeltaWithoutBase": ("delta_without_base", 4),
    "EpochNotCommitted": ("epoch_not_committed", 2),
    "EpochNotPrepared": ("epoch_not_prepared", 75),
    "EpochOutOfOrder": ("epoch_out_of_order", 3),
    "EpochTaken": ("epoch_taken", 5),
    "FailedError": ("failed", 1),
    "FencedError": ("fenced", 5),
    "FencedOut": ("fenced_out", 5),
    "GateFailed": ("gate_failed", 1),
    "IntegrityError": ("integrity", 4),
    "InvalidCheckpointId": ("invalid_checkpoint_id", 2),
    "InvalidConfig": ("invalid_config", 2),
    "InvalidManifest": ("invalid_manifest", 4),
    "InvalidName": ("invalid_name", 2),
    "InvalidState": ("invalid_state", 2),
    "LaminarError": ("error", 1),
    "LedgerMismatch": ("ledger_mismatch", 3),
    "OutputMismatch": ("output_mismatch", 3),
    "MalformedDocument": ("malformed_document", 4),
    "ManifestWriteFailed": ("manifest_write_failed", 75),
    "ModelFailed": ("model_failed", 1),
    "NoCheckpointAvailable": ("no_checkpoint_available", 1),
    "NonDeterministicOperator": ("non_deterministic_operator", 3),
    "NotReproduced": ("not_reproduced", 3),
    "ObjectExists": ("object_exists", 5),
    "ObjectMissing": ("object_missing", 4),
    "OperatorMismatch": ("operator_mismatch", 3),
    "PipelineChanged": ("pipeline_changed", 3),
    "RecoveryTimeout": ("recovery_timeout", 1),
    "ReferenceUnavailable": ("reference_unavailable", 75),
    "ReferenceUnfit": ("reference_unfit", 1),
    "RefusedError": ("refused", 3),
    "RegistryUnavailable": ("registry_unavailable", 75),
    "RestoreFailed": ("restore_failed", 4),
    "RetentionExpired": ("retention_expired", 3),
    "RetryError": ("retry", 75),
    "SchemaChanged": ("schema_changed", 3),
    "SeekFailed": ("seek_failed", 3),
    "SinkUnavailable": ("sink_unavailable", 75),
    "SlotNotFound": ("slot_not_found", 3),
    "SourceReplaced": ("source_replaced", 3),
    "TableChanged": ("table_changed", 3),
    "SourceUnavailable": ("source_unavailable", 75),
    "SparkLost": ("spark_lost", 1),
    "StateIncompatible": ("state_incompatible", 3),
    "StopError": ("stop", 1),
    "StoreSetBack": ("store_set_back", 3),
    "StoreUnavailable": ("store_unavailable", 75),
    "TimelineChanged": ("timeline_changed", 3),
    "TransactionAbortFailed": ("transaction_abort_failed", 1),
    "TransactionBeginFailed": ("transaction_begin_failed", 1),
    "TransactionInitFailed": ("transaction_init_failed", 75),
    "UnknownOperator": ("unknown_operator", 2),
    "EpochWithoutCheckpoint": ("epoch_without_checkpoint", 2),
    "IncompleteCheckpoint": ("incomplete_checkpoint", 2),
    "JavaMissing": ("java_missing", 2),
    "NoEpochs": ("no_epochs", 2),
    "NoLetters": ("no_dead_letters", 2),
    "NoPipelines": ("no_pipelines", 2),
    "SeveralPipelines": ("several_pipelines", 2),
    "UnknownCheckpoint": ("unknown_checkpoint", 2),
    "UnknownEpoch": ("unknown_epoch", 2),
    "UnknownPipeline": ("unknown_pipeline", 2),
    "UnknownView": ("unknown_view", 2),
    "UnlikeColumns": ("unlike_columns", 2),
    "UnknownOutcome": ("unknown_outcome", 75),
    "UnknownSource": ("unknown_source", 2),
    "UnsupportedVersion": ("unsupported_version", 4),
    "UpkeepFenced": ("upkeep_fenced", 5),
    "UpkeepWaits": ("upkeep_waits", 75),
    "UsageError": ("usage", 2),
    "WriteFailed": ("write_failed", 1),
    "WriteOutcomeUnknown": ("write_outcome_unknown", 75),
}


def example(kind: type[LaminarError]) -> LaminarError:
    """An error of that kind, with a value of the right type in every field."""
    hints = typing.get_type_hints(kind)
    values: dict[Any, Any] = {
        str: "a {brace} and \n a line",
        int: 7,
        float: 1.5,
        tuple[str, ...]: ("a", "b"),
    }
    return kind(*(values[hints[field.name]] for field in dataclasses.fields(kind)))


def descendants(kind: type[LaminarError]) -> set[type[LaminarError]]:
    below = set(kind.__subclasses__())
    return below.union(*(descendants(each) for each in below))


def test_kinds_and_exit_codes_are_stable() -> None:
    assert {each.__name__: (each.kind, each.exit_code) for each in CLASSES} == SNAPSHOT


def test_every_error_of_the_package_is_exported() -> None:
    ours = {
        each for each in descendants(LaminarError) if each.__module__.startswith(errors.__name__)
    }
    assert ours | {LaminarError} == set(CLASSES)
    assert errors.__all__ == sorted(errors.__all__)


def test_no_two_errors_share_a_kind() -> None:
    assert len({each.kind for each in CLASSES}) == len(CLASSES)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", each.kind) for each in CLASSES)


@pytest.mark.parametrize("kind", [each for each in CLASSES if each not in INNER])
def test_every_error_is_in_one_group_and_has_its_exit_code(kind: type[LaminarError]) -> None:
    groups = [group for group in GROUPS if issubclass(kind, group)]
    assert len(groups) == 1
    assert kind.exit_code == GROUPS[groups[0]]
    assert kind.__bases__[0] is groups[0]
    assert issubclass(kind, StopError) == (groups[0] not in (RetryError, UnknownOutcome))


@pytest.mark.parametrize("kind", CLASSES)
def test_text_and_advice_can_be_shown(kind: type[LaminarError]) -> None:
    error = example(kind)
    assert str(error)
    assert isinstance(error.advice(), str)
    for field, value in error.context().items():
        if isinstance(value, str):
            shown = str(error) + error.advice()
            assert value in shown or repr(value) in shown, f"{field} is not told"


@pytest.mark.parametrize("kind", [each for each in CLASSES if each not in INNER])
def test_every_error_says_what_to_do(kind: type[LaminarError]) -> None:
    assert kind.text != LaminarError.text
    assert example(kind).advice()


@pytest.mark.parametrize("kind", CLASSES)
def test_errors_cross_processes(kind: type[LaminarError]) -> None:
    error = example(kind)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert again.context() == error.context()
        assert str(again) == str(error)


def test_an_error_made_with_keywords_crosses_processes() -> None:
    error = InvalidConfig(where="pipeline.yml:3", problem="unknown key")
    again = pickle.loads(pickle.dumps(error))
    assert again.context() == {
        "where": "pipeline.yml:3",
        "problem": "unknown key",
        "suggestion": "",
    }


@pytest.mark.parametrize("kind", [each for each in CLASSES if each is not LaminarError])
def test_errors_travel_as_plain_data(kind: type[LaminarError]) -> None:
    error = example(kind)
    again = LaminarError.from_record(error.to_record())
    assert type(again) is kind
    assert again.context() == error.context()
    told = LaminarError.from_record(json.loads(json.dumps(error.to_record())))
    assert type(told) is kind


def test_a_record_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no error has the kind 'colour'"):
        LaminarError.from_record({"kind": "colour", "context": {}})


def test_the_tree_in_the_documentation_is_the_tree() -> None:
    drawn: dict[str, str] = {}
    codes: dict[str, int] = {}
    group = ""
    assert errors.__doc__
    for line in errors.__doc__.splitlines():
        # A class that stands on a line of its own, with its explanation, is a group.
        head = re.match(r"^[\s│├└─]*── (\w+)  +[a-z]", line)
        code = re.search(r"exit (\d+)$", line)
        if head:
            group = head[1]
            if code:
                codes[group] = int(code[1])
            continue
        for name in re.findall(r"\b([A-Z][A-Za-z]+)\b", re.sub(r"\(.*\)", "", line)):
            if name in SNAPSHOT and group:
                assert name not in drawn, f"{name} is drawn twice"
                drawn[name] = group
    expected = {each.__name__: each.__bases__[0].__name__ for each in CLASSES if each not in INNER}
    assert drawn == expected
    assert codes == {each.__name__: code for each, code in GROUPS.items()}
