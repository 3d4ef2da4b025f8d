"""The partitions of epochs, and the epochs that a run is for.

Dagster's command line checks partitions before a run exists, against those that its instance has.
On a fresh instance there are none: no daemon has run, and no sensor has added any. So a partition
is valid here if it is that of an epoch which can be run.
"""

from collections.abc import Callable
from typing import Any, Final

import click
import dagster as dg

from laminar_dagster.config.redaction import redact
from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.orchestration.errors import EpochNotReached
from laminar_dagster.orchestration.names import epoch_of, epochs_of
from laminar_dagster.orchestration.names import partition_key as key_of
from laminar_dagster.orchestration.private_api import PARTITION_NAME_TAG, set_partition

# The tags of a run that was launched for a partition, or for a range of them.
_PARTITION_TAGS: Final = frozenset(
    {PARTITION_NAME_TAG, "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"}
)


class LaunchRefused(click.ClickException):
    """An error before a run exists. Dagster's command line shows its text, and no traceback."""

    def __init__(self, error: LaminarError) -> None:
        """Take the error's text, advice and exit code."""
        advice = f"\n{redact(error.advice())}" if error.advice() else ""
        super().__init__(f"error[{error.kind}]: {redact(str(error))}{advice}")
        self.exit_code = error.exit_code  # type: ignore[misc] # click declares it for the class


class EpochPartitions(dg.DynamicPartitionsDefinition):
    """A partition for each epoch; the next one is valid before any sensor has added it.

    It is dynamic to Dagster, whose other processes see no more of it than its name.
    """

    newest_possible: Callable[[], EpochNumber]

    def __new__(cls, name: str, newest_possible: Callable[[], EpochNumber]) -> "EpochPartitions":
        """Make one.

        Args:
            name: Of the partitions in Dagster's instance.
            newest_possible: The newest epoch that can be run now.
        """
        made: EpochPartitions = super().__new__(cls, name=name)
        made.newest_possible = newest_possible
        return made

    def validate_partition_key(self, partition_key: str, context: Any) -> None:
        """Refuse what is no epoch, or one that cannot be run yet; add a partition that is missing.

        Raises:
            LaunchRefused: Says which epoch can be run.
        """
        store = context.dynamic_partitions_store
        if store is None or store.has_dynamic_partition(self.name, partition_key):
            return
        try:
            epoch = epoch_of(partition_key)
            newest = self.newest_possible()
            if epoch > newest:
                raise EpochNotReached(epoch, newest, key_of(newest))
        except LaminarError as error:
            raise LaunchRefused(error) from None
        if isinstance(store, dg.DagsterInstance):
            store.add_dynamic_partitions(str(self.name), [partition_key])

    def get_partition_keys_in_range(self, partition_key_range: dg.PartitionKeyRange) -> list[str]:
        """The keys from one to another: epochs follow each other without a gap."""
        if partition_key_range.start == partition_key_range.end:
            return [partition_key_range.start]
        first, last = epoch_of(partition_key_range.start), epoch_of(partition_key_range.end)
        return [key_of(EpochNumber(number)) for number in range(first, last + 1)]


def epoch_resource(choose: Callable[[], EpochNumber]) -> dg.ResourceDefinition:
    """Gives a run that was launched without a partition the partition of an epoch.

    A resource is made before the first step: Dagster asks for the run's partition even before the
    step's own code does. It holds None, or the error with which no epoch could be chosen.

    Args:
        choose: Gives the epoch.
    """

    def give_partition(context: dg.InitResourceContext) -> LaminarError | None:
        run, instance = context.run, context.instance
        if run is None or instance is None or not {*run.tags}.isdisjoint(_PARTITION_TAGS):
            return None
        try:
            # Of several processes that carry out steps of one run, the first has chosen.
            stored = instance.get_run_by_id(run.run_id)
            key = stored.tags.get(PARTITION_NAME_TAG) if stored else None
            set_partition(instance, run, key or key_of(choose()))
        except LaminarError as error:
            return error
        return None

    return dg.ResourceDefinition(
        give_partition,
        description="Chooses the epoch of a run that is launched without a partition.",
    )


def epochs_of_run(
    context: dg.AssetExecutionContext, partitions: str, resource: str
) -> tuple[EpochNumber, ...]:
    """The epochs that a run is for, the oldest first. Dagster's instance has all of them then.

    Args:
        context: Of a step of the run.
        partitions: The name of the partitions definition.
        resource: The name of the resource by ``epoch_resource``.

    Raises:
        InvalidPartition: A partition of the run is not that of an epoch.
        LaminarError: No epoch could be chosen.
    """
    error = getattr(context.resources, resource)
    if isinstance(error, LaminarError):
        raise error
    epochs = epochs_of(context.partition_keys)
    context.instance.add_dynamic_partitions(partitions, [*map(key_of, epochs)])
    return epochs
