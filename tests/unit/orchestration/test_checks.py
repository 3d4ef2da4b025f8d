"""The checks that warn: lag, retention, growth of the state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from msgspec import structs

from laminar_dagster.core.document import to_utc_microseconds
from laminar_dagster.core.errors import SourceReplaced, SourceUnavailable
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.ports import ReferenceFreshness
from laminar_dagster.orchestration import checks
from laminar_dagster.runtime.assembly import Adapters
from laminar_dagster.runtime.backlog import Backlog
from tests.unit.orchestration.conditions import Stage
from tests.unit.runtime.memory_reference import MemoryReference
from tests.unit.runtime.observed import ObservedSource

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def result(
    stage: Stage, name: str, *, state_bytes: int | None = None, watermark: int | None = None
) -> dg.AssetCheckResult:
    """The newest epoch's result of one check."""
    checkpoints = stage.checkpoints
    epoch = EpochNumber(stage.newest)
    plan, prepared = checkpoints.plan(epoch), checkpoints.prepared(epoch)
    assert plan and prepared
    manifest = prepared.manifest
    if state_bytes is not None:
        manifest = structs.replace(manifest, total_size_bytes=state_bytes)
    if watermark is not None:
        sources = tuple(
            structs.replace(each, watermarks=(watermark,) * len(each.positions))
            for each in manifest.sources
        )
        manifest = structs.replace(manifest, sources=sources)
    backlog: Backlog = stage.stream.backlog_after(manifest, plan)
    found = checks.results(stage.stream, plan, manifest, backlog, checkpoints)
    return next(each for each in found if each.check_name == name)


@pytest.fixture
def ran(stage: Stage) -> Stage:
    stage.arrive(1, 2, 3)
    stage.runner().run()
    return stage


def test_a_few_epochs_behind_is_no_lag(ran: Stage) -> None:
    ran.arrive(*range(40))
    found = result(ran, "lag")
    assert found.passed
    assert found.metadata["epochs_behind/numbers"] == dg.MetadataValue.int(10)


def test_more_than_the_allowed_epochs_is(ran: Stage) -> None:
    ran.arrive(*range(41))
    found = result(ran, "lag")
    assert not found.passed
    assert found.severity == dg.AssetCheckSeverity.WARN
    assert "11 epochs would take what waits; 10 are allowed" in (found.description or "")


def test_a_source_that_does_not_answer_is_no_good_news(
    ran: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> object:
        raise SourceUnavailable("numbers", "no answer")

    monkeypatch.setattr("laminar_dagster.testing.memory_pipeline.MemorySource.plan", away)
    found = result(ran, "lag")
    assert not found.passed
    assert "not known of numbers" in (found.description or "")


def test_a_source_that_no_longer_holds_what_was_read_is_told(
    ran: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran.arrive(4, 5, 6)
    ran.runner().run()
    assert result(ran, "retention").passed

    def replaced(_source: object, plan: object) -> None:
        raise SourceReplaced("numbers", "the log", "another log")

    monkeypatch.setattr("laminar_dagster.testing.memory_pipeline.MemorySource.verify", replaced)
    found = result(ran, "retention")
    assert not found.passed
    assert found.severity == dg.AssetCheckSeverity.WARN
    assert found.metadata["oldest_epoch"] == dg.MetadataValue.int(1)


def test_a_watermark_that_is_ahead_of_the_clock_is_told(ran: Stage) -> None:
    assert result(ran, "watermark_ahead", watermark=to_utc_microseconds(NOW)).passed
    found = result(ran, "watermark_ahead", watermark=253_402_300_799_000_000)
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    told = "source numbers, numbers/0: the watermark, 9999-12-31T23:59:59Z, is "
    assert (found.description or "").startswith(told)
    ahead = found.metadata["seconds_ahead"].value
    assert isinstance(ahead, float) and ahead > 1e9


def test_sources_without_event_time_have_no_watermark_to_look_at(stage: Stage) -> None:
    text = stage.files["sources.sql"].replace(
        ",\n  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND", ""
    )
    stage.files["sources.sql"] = text
    assert "watermark_ahead" not in {each.name for each in checks.epoch_checks(stage.stream)}


# --- reference tables -----------------------------------------------------------------------------


def test_a_reference_table_that_is_away_is_a_warning(stage: Stage) -> None:
    table = MemoryReference(freshness=ReferenceFreshness(timedelta(0), keeps_when_away=True))
    stage.files["references.sql"] = (
        "CREATE REFERENCE TABLE fruit (id BIGINT NOT NULL, name STRING, PRIMARY KEY (id))"
        " WITH (connector = 'file', path = 'fruit.csv', format = 'csv');"
    )
    stage.tables = (table,)
    stage.arrive(1, 2, 3)
    assert stage.run("epoch_and_commit", [1]).success
    assert result(stage, "reference_tables").passed
    table.away = True
    stage.world.clock.sleep(60)
    stage.arrive(4, 5)
    run = stage.run("epoch_and_commit", [2])
    assert run.success
    (told,) = (
        each for each in run.get_asset_check_evaluations() if each.check_name == "reference_tables"
    )
    assert (told.passed, told.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert told.metadata["tables_away"] == dg.MetadataValue.int(1)
    since = stage.world.clock.now().isoformat()
    assert told.description is not None
    assert told.description.startswith(f"fruit has been away since {since}; the copy of epoch 1 is")


def test_without_reference_tables_nothing_is_said_of_them(ran: Stage) -> None:
    assert "reference_tables" not in {each.name for each in checks.epoch_checks(ran.stream)}
    with pytest.raises(StopIteration):
        result(ran, "reference_tables")


def observed(stage: Stage) -> ObservedSource:
    """The source of the stage, which tells how it does."""
    source = ObservedSource(stage.world.log, address="file:///input")
    stage.stream.__dict__["adapters"] = Adapters((source,), stage.stream.adapters.sinks)
    return source


def test_records_that_may_expire_unread_are_a_warning(ran: Stage) -> None:
    source = observed(ran)
    ran.arrive(4, 5)
    found = result(ran, "retention_headroom")
    assert found.passed
    assert found.metadata["lag/numbers"] == dg.MetadataValue.int(2)
    assert "headroom/numbers" not in found.metadata
    source.headroom = 0.1
    assert result(ran, "retention_headroom").passed, "as much as is asked for"
    source.headroom = 0.0999
    found = result(ran, "retention_headroom")
    assert not found.passed
    assert found.severity == dg.AssetCheckSeverity.WARN
    assert found.metadata["headroom/numbers"] == dg.MetadataValue.float(0.0999)
    assert found.description == "numbers, numbers/0: 10.0% of what it holds has been read, 2 wait"


def test_how_much_headroom_is_wanted_stands_in_the_pipeline(stage: Stage) -> None:
    stage.files["pipeline.yml"] = stage.files["pipeline.yml"].replace(
        "freshness: 15m", "min_retention_headroom: 0.5"
    )
    stage.arrive(1, 2, 3)
    stage.runner().run()
    observed(stage).headroom = 0.4
    assert not result(stage, "retention_headroom").passed


def test_headroom_that_is_not_known_is_no_good_news(
    ran: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> object:
        raise SourceUnavailable("numbers", "no answer")

    monkeypatch.setattr("laminar_dagster.testing.memory_pipeline.MemorySource.plan", away)
    found = result(ran, "retention_headroom")
    assert not found.passed
    assert "not known of numbers: source numbers is away" in (found.description or "")


def test_state_that_grows_fast_is_told_once_it_is_large(ran: Stage) -> None:
    small = 32 * 1024 * 1024
    assert result(ran, "state_growth", state_bytes=small).passed, "little state may double"
    found = result(ran, "state_growth", state_bytes=small + 1)
    # Compared with itself, as there is no epoch before.
    assert found.metadata["growth"] == dg.MetadataValue.float(1.0)
    ran.arrive(4)
    ran.runner().run()
    found = result(ran, "state_growth", state_bytes=small + 2**20)
    assert not found.passed
    assert found.severity == dg.AssetCheckSeverity.WARN
