"""Errors of Dagster's own: its home, its storage, its runs."""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.core.errors import FailedError, InvalidName, RetryError, UsageError


@dataclass(eq=False)
class InvalidDagsterHome(UsageError):
    """``DAGSTER_HOME`` names no folder, or one that cannot be used."""

    home: str
    reason: str

    kind = "invalid_dagster_home"
    text = "DAGSTER_HOME is {home}: {reason}"
    hint = "set DAGSTER_HOME to a folder of yours, by its whole path, or run with --no-dagster"


@dataclass(eq=False)
class EpochNotReached(UsageError):
    """A run was launched for an epoch that others come before.

    Attributes:
        partition: The key of the next epoch.
    """

    epoch: int
    next_epoch: int
    partition: str

    kind = "epoch_not_reached"
    text = "epoch {epoch} cannot be run yet: the next one is epoch {next_epoch}"
    hint = "launch partition {partition}, or leave the partition out"


@dataclass(eq=False)
class InvalidPartition(InvalidName):
    """The key of a partition that is not the number of an epoch."""

    hint = "launch the partition of an epoch, or leave the partition out: it is the next one then"


@dataclass(eq=False)
class DagsterUnavailable(RetryError):
    """The storage of Dagster's instance is unavailable, or full."""

    home: str
    reason: str

    kind = "dagster_unavailable"
    text = "Dagster's storage of {home} does not answer: {reason}"
    hint = "what was committed stays committed; try again, or run with --no-dagster"


@dataclass(eq=False)
class RunNotCarriedOut(FailedError):
    """Dagster ended a run before its steps had finished, without an error of a step."""

    run_id: str
    reason: str

    kind = "run_not_carried_out"
    text = "Dagster did not carry out run {run_id}: {reason}"
    hint = "nothing is lost: the next run finishes the epoch"
