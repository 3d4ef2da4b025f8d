"""The protocol of an epoch: durable facts in, the next step out.

    1  Plan            epochs/N/plan.json exists: ranges, clock, parent, identities are fixed
    2  Compute         an attempt has written its state and its staged output
    3  Gate            contracts, record accounting and offset contiguity have passed
    4  Prepare         epochs/N/prepared.json exists: one attempt has won
    5  WriteManifest   the winner's manifest exists: THE COMMIT POINT of state and offsets
    6  CommitSinks     each sink's own ledger is at N
    7  MoveLatest      checkpoints/_latest points at the checkpoint, or past it
    8  Acknowledge     the sources know how far they were read
    9  Collect         what nothing reaches any more is gone

Going forward and recovering are this one function. Every step is idempotent and leaves a fact that
the next call sees; a process that dies anywhere is continued by any other from the same facts. Only
steps 2 and 3 leave nothing that others may rely on: they compute again, under names of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from laminar_dagster.core import errors
from laminar_dagster.core.ids import CheckpointId, EpochNumber, SinkId


@dataclass(frozen=True, slots=True)
class SinkFact:
    """The epoch in a sink's ledger; None when it could not be read."""

    sink_id: SinkId
    ledger: EpochNumber | None


@dataclass(frozen=True, slots=True)
class EpochFacts:
    """What is known of an epoch; ``latest`` is read first, then the ledgers, then ``newest``.

    ``latest`` is where ``_latest`` points, ``newest`` the newest epoch with a manifest, ``winner``
    the attempt in ``prepared.json``; ``attempt`` is this process's own, and ``gate`` its verdict.
    """

    epoch: EpochNumber
    latest: EpochNumber
    newest: EpochNumber
    planned: bool = False
    winner: CheckpointId | None = None
    attempt: CheckpointId | None = None
    gate: Literal[True] | errors.GateFailed | None = None
    sinks: tuple[SinkFact, ...] = ()
    acknowledged: bool = False
    collected: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Step 1. Fix what the epoch reads."""


@dataclass(frozen=True, slots=True)
class Compute:
    """Step 2. Run the job under a new attempt's name."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Step 3. Check what the attempt staged."""

    attempt: CheckpointId


@dataclass(frozen=True, slots=True)
class Prepare:
    """Step 4. Try to make the attempt the winner."""

    attempt: CheckpointId


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Step 5. Commit state and offsets."""

    winner: CheckpointId


@dataclass(frozen=True, slots=True)
class CommitSinks:
    """Step 6. Write the staged output to these sinks, in parallel."""

    sinks: tuple[SinkId, ...]


@dataclass(frozen=True, slots=True)
class MoveLatest:
    """Step 7. Every sink has confirmed: point at this checkpoint."""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Step 8. Tell the sources."""


@dataclass(frozen=True, slots=True)
class Collect:
    """Step 9. Remove what nothing reaches."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing is left to do."""


@dataclass(frozen=True, slots=True)
class AwaitSinks:
    """These sinks are unavailable, or still lack an earlier epoch. Come back later."""

    sinks: tuple[SinkId, ...]


@dataclass(frozen=True, slots=True)
class AwaitEpoch:
    """This earlier epoch is not finished. Come back later."""

    epoch: EpochNumber


@dataclass(frozen=True, slots=True)
class Halt:
    """Going on would be wrong. The error says why."""

    error: errors.StopError


Forward = Plan | Compute | Gate | Prepare | WriteManifest | CommitSinks | MoveLatest
Step = Forward | Acknowledge | Collect | Finished | AwaitSinks | AwaitEpoch | Halt


def next_step(facts: EpochFacts) -> Step:
    """What to do now. Pure: the same facts always give the same step."""
    if facts.attempt and facts.winner and facts.attempt != facts.winner:
        return Halt(errors.EpochTaken(facts.epoch, facts.winner))
    if facts.latest >= facts.epoch:
        return _after_latest(facts)
    if facts.newest >= facts.epoch:
        return _after_manifest(facts)
    if facts.newest < facts.epoch - 1:
        return Halt(errors.EpochOutOfOrder(facts.epoch, facts.newest + 1))
    if facts.winner:
        return WriteManifest(facts.winner)
    if not facts.planned:
        return Plan()
    if not facts.attempt:
        return Compute()
    match facts.gate:
        case None:
            return Gate(facts.attempt)
        case True:
            return Prepare(facts.attempt)
        case errors.GateFailed() as failure:
            return Halt(failure)


def _after_manifest(facts: EpochFacts) -> Step:
    """Sinks commit in epoch order, each at its own pace; a slow one holds back no other."""
    ready, waiting = [], []
    for sink in facts.sinks:
        if sink.ledger is None:
            waiting.append(sink.sink_id)
        elif sink.ledger > facts.newest:
            # No manifest has that epoch: the store was restored from a backup, or another
            # pipeline shares the sink.
            return Halt(errors.LedgerMismatch(sink.sink_id, facts.epoch, sink.ledger))
        elif sink.ledger == facts.epoch - 1:
            ready.append(sink.sink_id)
        elif sink.ledger < facts.epoch - 1:
            if facts.latest >= facts.epoch - 1:
                # The sink had confirmed the epochs before, and has lost them since.
                return Halt(errors.LedgerMismatch(sink.sink_id, facts.epoch, sink.ledger))
            waiting.append(sink.sink_id)
    if ready:
        return CommitSinks(tuple(ready))
    if waiting:
        return AwaitSinks(tuple(waiting))
    if facts.latest < facts.epoch - 1:
        # The epoch before may have a sink, not part of this one, that has not committed yet.
        return AwaitEpoch(facts.epoch.previous())
    return MoveLatest()


def _after_latest(facts: EpochFacts) -> Step:
    if facts.latest > facts.epoch:
        # The later epoch acknowledges more; this one's positions would set the source back.
        return Finished()
    if not facts.acknowledged:
        return Acknowledge()
    if not facts.collected:
        return Collect()
    return Finished()
