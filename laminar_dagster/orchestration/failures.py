"""Errors as Dagster shows them: by name, with what to do, without a secret in them."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Final

import dagster as dg

from laminar_dagster.config.redaction import redact
from laminar_dagster.core.errors import EpochWaits, LaminarError, RetryError, UnknownOutcome
from laminar_dagster.orchestration.metadata import error_metadata
from laminar_dagster.orchestration.names import ERROR_TAG
from laminar_dagster.orchestration.stream import Watcher

_RETRIES: Final = 3
_FIRST_PAUSE: Final = 2.0


@contextlib.contextmanager
def named_failures(
    context: dg.OpExecutionContext | dg.AssetExecutionContext, watcher: Watcher | None = None
) -> Iterator[None]:
    """Turn any exception into a Dagster failure with the error's kind, text and advice.

    The run is tagged with the kind of the error, so that runs can be filtered by it and sensors
    know whether a retry could help. With a service unavailable, the step is retried a few times,
    unless there is a watcher: that gets the error itself, and retries with another run.
    """
    if ERROR_TAG in context.run.tags:
        # A re-executed run inherits its parent's tags, and no tag can be removed.
        context.instance.add_run_tags(context.run.run_id, {ERROR_TAG: "none"})
    try:
        yield
    except LaminarError as error:
        if watcher:
            watcher.failed(error)
        context.instance.add_run_tags(context.run.run_id, {ERROR_TAG: error.kind})
        if watcher is None and may_pass(error) and context.retry_number < _RETRIES:
            pause = _FIRST_PAUSE * 2**context.retry_number
            context.log.warning("error[%s]: %s; again in %.0f s", error.kind, told(error), pause)
            raise dg.RetryRequested(_RETRIES, pause) from None
        raise failure_of(error) from None
    except (dg.Failure, dg.RetryRequested):
        raise
    except Exception as error:
        if watcher:
            watcher.failed(error)
        # A traceback of third-party code may quote an address with a password in it.
        context.instance.add_run_tags(context.run.run_id, {ERROR_TAG: "internal"})
        text = redact("".join(traceback.format_exception(error)))
        raise dg.Failure(f"error[internal]: {text}", allow_retries=False) from None


def may_pass(error: LaminarError) -> bool:
    """Whether a retry may succeed without any change."""
    return isinstance(error, RetryError | UnknownOutcome) and not isinstance(error, EpochWaits)


def failure_of(error: LaminarError) -> dg.Failure:
    """An error as the failure of a step."""
    fields = {name: redact(str(value)) for name, value in error.context().items()}
    advice = redact(error.advice())
    metadata = error_metadata(error, {**fields, "what_to_do": advice})
    description = f"error[{error.kind}]: {told(error)}"
    if advice:
        description += f"\n{advice}"
    return dg.Failure(description, metadata=metadata, allow_retries=False)


def told(error: LaminarError) -> str:
    """The text of an error, without secrets."""
    return redact(str(error))
