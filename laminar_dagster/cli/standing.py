"""How far sinks are, and what comes next, in words."""

from __future__ import annotations

from typing import Any, assert_never

from laminar_dagster.cli import wording
from laminar_dagster.cli.failures import failure_of
from laminar_dagster.core import protocol
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.runtime.standing import SinkStanding


def sink_words(sink: SinkStanding, newest: EpochNumber) -> str:
    """How far a sink is, for people."""
    match sink.state:
        case "new":
            return "new: takes part from the next epoch on"
        case "at":
            return f"at epoch {newest}"
        case "behind":
            assert sink.ledger is not None
            return f"behind by {wording.count(newest - sink.ledger, 'epoch')}"
        case "ahead":
            return f"ahead: the newest checkpoint is of epoch {newest}"
        case "away":
            return f"away: {sink.error}"
        case _:
            assert_never(sink.state)


def sink_document(sink: SinkStanding) -> dict[str, Any]:
    """How far a sink is, as JSON values."""
    return {
        "sink": sink.sink_id,
        "state": sink.state,
        "ledger": sink.ledger,
        "error": failure_of(sink.error).as_document() if sink.error else None,
    }


def describe_step(step: protocol.Step) -> str:
    """A step that is still to be taken, as a part of a sentence."""
    match step:
        case protocol.Plan():
            return "plan what it reads"
        case protocol.Compute():
            return "compute: its plan is fixed, and nothing is published yet"
        case protocol.Gate():
            return "check the output"
        case protocol.Prepare():
            return "prepare the output"
        case protocol.WriteManifest():
            return "write the manifest: its output is complete and checked"
        case protocol.CommitSinks(sinks):
            return f"commit to {', '.join(sinks)}"
        case protocol.MoveLatest():
            return "mark it as the latest: every sink has confirmed"
        case protocol.Acknowledge() | protocol.Collect() | protocol.Finished():
            return "nothing"
        case protocol.AwaitSinks(sinks):
            return f"wait for {', '.join(sinks)}"
        case protocol.AwaitEpoch(epoch):
            return f"wait for epoch {epoch}"
        case protocol.Halt(error):
            return f"stop: {error}"
        case _:
            assert_never(step)
