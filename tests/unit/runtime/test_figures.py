"""What a checkpoint tells of event time: watermarks that are ahead of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.document import to_utc_microseconds
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.manifest import CheckpointManifest, SourceOffsetEntry
from laminar_dagster.core.offsets import KafkaPosition
from laminar_dagster.runtime.figures import newest_watermarks, watermarks_ahead
from tests.unit.core.samples import manifest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = 60_000_000


def stands(*after_now: int | None, own: int | None = None) -> CheckpointManifest:
    """A source with a watermark for each partition, in microseconds after now."""
    now = to_utc_microseconds(NOW)
    name = SourceId("clicks")
    entry = SourceOffsetEntry(
        source_id=name,
        positions=tuple(
            KafkaPosition(topic="clicks", partition=number, offset=1)
            for number in range(len(after_now))
        ),
        path=layout.offsets_path(name),
        watermarks=tuple(None if each is None else now + each for each in after_now),
        watermark=None if own is None else now + own,
    )
    return manifest(1, sources=(entry,))


def test_clocks_may_differ_by_a_minute() -> None:
    (found,) = watermarks_ahead(stands(MINUTE, MINUTE + 1, None, -MINUTE, own=-MINUTE), NOW)
    assert (found.partition, found.ahead) == ("clicks/1", timedelta(minutes=1, microseconds=1))


def test_the_sources_own_is_told_where_no_partition_is_ahead() -> None:
    """A file that is gone may have moved it: it never runs back."""
    (found,) = watermarks_ahead(stands(0, own=2 * MINUTE), NOW)
    assert str(found).startswith(
        "source clicks: the watermark, 2026-01-01T00:02:00Z, is 0:02:00 ahead of the clock"
    )


@pytest.mark.parametrize("own", [None, 2 * MINUTE])
def test_each_partition_is_told_once(own: int | None) -> None:
    found = watermarks_ahead(stands(3 * MINUTE, 2 * MINUTE, own=own), NOW)
    assert [each.partition for each in found] == ["clicks/0", "clicks/1"]


def test_a_watermark_may_be_beyond_every_calendar() -> None:
    (found,) = watermarks_ahead(stands(2**62), NOW)
    assert "µs since 1970, is 53375995 days" in str(found)


def test_before_the_first_event_there_is_nothing_to_tell() -> None:
    assert watermarks_ahead(None, NOW) == watermarks_ahead(stands(None), NOW) == ()
    assert newest_watermarks(stands(None)) == {}
    now = to_utc_microseconds(NOW)
    assert newest_watermarks(stands(None, 5, 3)) == {SourceId("clicks"): now + 5}
