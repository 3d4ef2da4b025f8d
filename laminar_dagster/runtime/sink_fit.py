"""Checks, before an epoch is published, that its sinks can take the staged output."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from laminar_dagster.core import layout
from laminar_dagster.core.errors import LaminarError, MalformedDocument, RetryError
from laminar_dagster.core.gate import SINK_FIT
from laminar_dagster.core.ids import CheckpointId
from laminar_dagster.core.manifest import FileEntry, SinkEntry
from laminar_dagster.core.ports import Sink, StagedOutput, Violation
from laminar_dagster.runtime.checked_files import read_verified
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.staged_schema import open_staged, staged_schema

log = logging.getLogger(__name__)


def find_misfits(
    pipeline: Pipeline, attempt: CheckpointId, staged: Iterable[SinkEntry]
) -> Iterator[Violation]:
    """The reasons why sinks could not take an epoch's output; an unavailable sink is skipped.

    Args:
        pipeline: The pipeline with the sinks.
        attempt: The attempt whose output is staged.
        staged: The staged output of each sink.
    """
    store = pipeline.checkpoints.objects

    def read(file: FileEntry) -> bytes:
        key = layout.checkpoint_key(attempt, file.path)
        return read_verified(store, key, file.size_bytes, file.sha256)

    def check(sink: Sink, entry: SinkEntry) -> None:
        try:
            schema = staged_schema(store, attempt, entry.files[0])
        except MalformedDocument:
            # Not an error here: an engine may stage other formats than Arrow for its sinks. A
            # damaged Arrow file is found when it is read as a whole.
            return
        parts = partial(open_staged, store, attempt)
        sink.check(schema, StagedOutput(entry, read, open=parts))

    # An epoch without files has no columns that could be compared.
    wanted = [
        (sink, entry)
        for entry in staged
        if entry.files and (sink := pipeline.sink(entry.sink_id)) is not None
    ]
    if not wanted:
        return
    with ThreadPoolExecutor(len(wanted), thread_name_prefix="check") as pool:
        asked = [(sink, pool.submit(check, sink, entry)) for sink, entry in wanted]
        for sink, checked in asked:
            try:
                checked.result()
            except RetryError as error:
                log.warning("%s; it is asked again when it commits", error)
            except LaminarError as error:
                yield Violation(SINK_FIT, str(sink.sink_id), str(error))
