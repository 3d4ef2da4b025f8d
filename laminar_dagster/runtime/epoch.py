"""Takes an epoch from wherever it stands to its end.

``core.protocol`` decides each step from facts; this module gathers the facts, and ``runtime.steps``
takes the step. A run that was killed is continued by calling ``run`` again, in this process, in
another, or on another machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Literal, assert_never

from laminar_dagster.core import protocol
from laminar_dagster.core.errors import (
    AuthFailed,
    ComputeFailed,
    EpochNotPrepared,
    EpochTaken,
    EpochWaits,
    GateFailed,
    IntegrityError,
    InvalidState,
    LaminarError,
    RetryError,
    UnknownOutcome,
)
from laminar_dagster.core.ids import CheckpointId, EpochNumber, SinkId, SourceId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.points import Point, reach
from laminar_dagster.core.recovery import Standing, facts_of
from laminar_dagster.core.transactions import EpochTransactionRecord
from laminar_dagster.core.upkeep import Promotion
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.deployment import require_fit_to_publish
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.published import require_same_output, require_unpublished
from laminar_dagster.runtime.survey import find_epoch, survey

log = logging.getLogger(__name__)

_BEFORE_COMMIT: Final = (protocol.Plan, protocol.Compute, protocol.Gate, protocol.Prepare)


@dataclass(frozen=True, slots=True)
class StepTaken:
    """A step that was taken, and how long it took."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class EpochReport:
    """What a run did for an epoch that is now finished.

    Attributes:
        unacknowledged: Sources that could not be acknowledged.
        transactions: The transactions of the sinks that this run has asked to commit.
    """

    epoch: EpochNumber
    checkpoint_id: CheckpointId
    steps: tuple[StepTaken, ...]
    unacknowledged: tuple[SourceId, ...] = ()
    transactions: tuple[EpochTransactionRecord, ...] = ()

    @property
    def is_finisher(self) -> bool:
        """Whether this run, and not an earlier one, saw every sink confirm the epoch."""
        return any(each.name == protocol.MoveLatest.__name__ for each in self.steps)


@dataclass(slots=True)
class _Memory:
    """The facts of an epoch that only this run knows, and that a crash loses."""

    has_planned: bool = False
    attempt: steps.Attempt | None = None
    gate: Literal[True] | GateFailed | None = None
    acknowledged: bool = False
    unacknowledged: tuple[SourceId, ...] = ()
    collected: bool = False
    taken: list[StepTaken] = field(default_factory=list)
    failed_sinks: dict[SinkId, LaminarError] = field(default_factory=dict)
    unsure_sinks: set[SinkId] = field(default_factory=set)
    attested_sinks: set[SinkId] = field(default_factory=set)

    def remember(self, failures: dict[SinkId, LaminarError]) -> None:
        """Skip failed sinks in this run; after a first unknown outcome, read the ledger again."""
        for sink_id, error in failures.items():
            if isinstance(error, UnknownOutcome) and sink_id not in self.unsure_sinks:
                self.unsure_sinks.add(sink_id)
            else:
                self.failed_sinks[sink_id] = error


class EpochRunner:
    """Runs the epochs of a pipeline, one after the other."""

    def __init__(
        self, pipeline: Pipeline, on_step: Callable[[EpochNumber, str], None] | None = None
    ) -> None:
        """Run a pipeline whose store has been probed.

        Args:
            pipeline: The pipeline.
            on_step: Called as every step begins, with the epoch and the step's name.
        """
        self._pipeline = pipeline
        self._on_step = on_step
        self._has_asked_sinks = False

    def next_epoch(self) -> EpochNumber:
        """The oldest epoch that is not finished, or else a new one."""
        standing = survey(self._pipeline.checkpoints)
        return standing.unfinished[0] if standing.unfinished else standing.newest_epoch.next()

    def run(self, epoch: EpochNumber | None = None) -> EpochReport:
        """Take an epoch to its end; by default the oldest unfinished one, or else a new one.

        Raises:
            FencedError: Another process has the epoch.
            GateFailed: The output was refused; nothing is published.
            RefusedError, IntegrityError: Going on would be wrong.
            RetryError, UnknownOutcome: A service is unavailable; run again later.
        """
        epoch = self.next_epoch() if epoch is None else epoch
        return self._report(epoch, self._advance(epoch, lambda _step: False))

    def prepare(self, epoch: EpochNumber) -> EpochReport:
        """The first half: plan, compute, gate and prepare. Nothing is committed.

        An epoch that is prepared already, by any process, is left as it is.

        Raises:
            LaminarError: As ``run``.
        """
        wanted = (*_BEFORE_COMMIT, protocol.Halt)
        return self._report(epoch, self._advance(epoch, lambda step: not isinstance(step, wanted)))

    def commit(self, epoch: EpochNumber) -> EpochReport:
        """The second half: manifest, sinks, latest, acknowledge, collect. Computes nothing.

        Raises:
            EpochNotPrepared: There is nothing to commit yet.
            LaminarError: As ``run``.
        """
        memory = self._advance(epoch, lambda step: isinstance(step, _BEFORE_COMMIT))
        if self._pipeline.checkpoints.prepared(epoch) is None:
            raise EpochNotPrepared(epoch)
        return self._report(epoch, memory)

    def _report(self, epoch: EpochNumber, memory: _Memory) -> EpochReport:
        manifest, tracker = self._manifest(epoch), self._pipeline.transactions
        known = (tracker.record(each.sink_id, epoch) for each in manifest.sinks)
        return EpochReport(
            epoch,
            manifest.checkpoint_id,
            tuple(memory.taken),
            memory.unacknowledged,
            tuple(filter(None, known)),
        )

    def _advance(self, epoch: EpochNumber, is_enough: Callable[[protocol.Step], bool]) -> _Memory:
        """Take step after step, until the epoch is finished or the next step is not wanted."""
        memory = _Memory(collected=epoch % self._pipeline.collect_every != 0)
        while True:
            standing = survey(self._pipeline.checkpoints)
            self._require_fit(standing, epoch)
            step = protocol.next_step(self._facts(standing, epoch, memory))
            if isinstance(step, protocol.Finished) or is_enough(step):
                return memory
            name = type(step).__name__
            if self._on_step:
                self._on_step(epoch, name)
            begun = self._pipeline.clock.monotonic()
            reach(Point.STEP_BEGINS, name)
            try:
                self._take(step, epoch, memory)
            except (IntegrityError, ComputeFailed) as error:
                self._require_untaken(step, epoch, error)
                raise
            reach(Point.STEP_ENDS, name)
            seconds = self._pipeline.clock.monotonic() - begun
            memory.taken.append(StepTaken(name, seconds))
            log.info("epoch %d: %s took %.3f s", epoch, name, seconds)

    def _require_untaken(
        self, step: protocol.Step, epoch: EpochNumber, error: IntegrityError | ComputeFailed
    ) -> None:
        """Tell damage from files that another process collected while this one was paused.

        A file that is missing on an executor arrives as ``ComputeFailed``.

        Raises:
            EpochTaken: The epoch has a winner by now, so what it builds on may be collected.
        """
        if not isinstance(step, protocol.Compute | protocol.Gate):
            return
        self._pipeline.checkpoints.forget()
        winner = self._pipeline.checkpoints.prepared(epoch)
        if winner:
            raise EpochTaken(epoch, winner.checkpoint_id) from error

    def _require_fit(self, standing: Standing, epoch: EpochNumber) -> None:
        """Refuse to continue another version's promotion, which may be for other sinks.

        A version that lacks a sink would take it for removed, and finish the epoch without it.

        Raises:
            PipelineChanged: The promotion is for another version.
        """
        planned = None
        if standing.find(epoch).planned:
            planned = self._pipeline.checkpoints.plan(epoch)
        if planned and isinstance(planned.upkeep, Promotion):
            require_fit_to_publish(self._pipeline, planned)

    def _facts(
        self, standing: Standing, epoch: EpochNumber, memory: _Memory
    ) -> protocol.EpochFacts:
        manifest = standing.find(epoch).manifest
        ledgers: dict[SinkId, EpochNumber | None] = {}
        for entry in manifest.sinks if manifest else ():
            if entry.sink_id in memory.failed_sinks:
                # Skipped for the rest of this run: asking an unavailable sink costs its timeout.
                continue
            sink = self._pipeline.sink(entry.sink_id)
            try:
                # A sink that was removed from the pipeline counts as committed.
                ledgers[entry.sink_id] = sink.ledger() if sink else epoch
            except (RetryError, AuthFailed) as error:
                memory.failed_sinks[entry.sink_id] = error
        facts = facts_of(standing, epoch, ledgers, frozenset(memory.failed_sinks))
        if any(ledger and ledger > facts.newest for ledger in ledgers.values()):
            # The survey may be stale: another process may have begun newer epochs since.
            facts = replace(facts, newest=survey(self._pipeline.checkpoints).newest_epoch)
        if memory.attempt is None:
            return replace(facts, acknowledged=memory.acknowledged, collected=memory.collected)
        return replace(
            facts,
            # The survey omits finished epochs, and another attempt may have won this one.
            winner=facts.winner or self._winner(standing, epoch),
            attempt=memory.attempt.record.checkpoint_id,
            gate=memory.gate,
            acknowledged=memory.acknowledged,
            collected=memory.collected,
        )

    def _winner(self, standing: Standing, epoch: EpochNumber) -> CheckpointId | None:
        return self._manifest(epoch).checkpoint_id if epoch <= standing.confirmed else None

    def _take(self, step: protocol.Step, epoch: EpochNumber, memory: _Memory) -> None:
        pipeline = self._pipeline
        match step:
            case protocol.Plan():
                if not self._has_asked_sinks:
                    # Once per process: a later epoch that the store loses is found by ``_attest``.
                    require_unpublished(pipeline, epoch)
                    self._has_asked_sinks = True
                steps.plan(pipeline, epoch)
                memory.has_planned = True
            case protocol.Compute():
                if not memory.has_planned:
                    require_unpublished(pipeline, epoch)
                memory.attempt = steps.compute(pipeline, epoch)
            case protocol.Gate():
                memory.gate = steps.gate(pipeline, _own(memory.attempt))
            case protocol.Prepare():
                steps.prepare(pipeline, _own(memory.attempt))
            case protocol.WriteManifest():
                steps.write_manifest(pipeline, epoch)
            case protocol.CommitSinks(sinks):
                manifest = self._manifest(epoch)
                self._attest(manifest, memory, {*sinks, *memory.failed_sinks})
                failures = steps.commit_sinks(pipeline, manifest, sinks)
                memory.remember(failures)
                memory.attested_sinks.update(set(sinks) - set(failures))
            case protocol.MoveLatest():
                manifest = self._manifest(epoch)
                self._attest(manifest, memory, set())
                steps.move_latest(pipeline, manifest)
            case protocol.Acknowledge():
                memory.unacknowledged = steps.acknowledge(pipeline, self._manifest(epoch))
                memory.acknowledged = True
            case protocol.Collect():
                steps.collect_garbage(pipeline)
                memory.collected = True
            case protocol.AwaitSinks(sinks):
                raise memory.failed_sinks.get(sinks[0], EpochWaits(epoch, epoch.previous()))
            case protocol.AwaitEpoch(behind):
                raise EpochWaits(epoch, behind)
            case protocol.Halt(error):
                raise error
            case protocol.Finished():
                pass
            case _:
                assert_never(step)

    def _attest(self, manifest: CheckpointManifest, memory: _Memory, others: set[SinkId]) -> None:
        """Check that sinks which another process has committed hold this epoch's output."""
        asked = {entry.sink_id for entry in manifest.sinks} - memory.attested_sinks - others
        require_same_output(self._pipeline, manifest, asked)
        memory.attested_sinks |= asked

    def _manifest(self, epoch: EpochNumber) -> CheckpointManifest:
        """The manifest of a committed epoch, from its prepared record if it has been collected."""
        found = find_epoch(self._pipeline.checkpoints, epoch)
        if found.manifest:
            return found.manifest
        if found.prepared:
            return found.prepared.manifest
        raise InvalidState(f"epoch {epoch}", "not committed", "read its manifest")


def _own(attempt: steps.Attempt | None) -> steps.Attempt:
    if attempt is None:
        raise InvalidState("the epoch", "without an attempt of this process", "go on with it")
    return attempt
