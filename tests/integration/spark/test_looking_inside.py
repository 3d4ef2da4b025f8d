"""State as a table, and records that were set aside, of a pipeline that ran on Spark."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import AlreadyReplayed, UnknownOperator
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import Admission
from laminar_dagster.runtime.dead_letters import letters_of, read_letters, replay_letters
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.state_reader import compare_states, read_state
from tests.integration.spark.conftest import Build
from tests.integration.spark.project import SOURCES, Project, Record, random_records, run_until_done


def run(pipeline: Pipeline) -> CheckpointManifest:
    manifest = pipeline.checkpoints.manifest(EpochRunner(pipeline).run().checkpoint_id)
    assert manifest
    return manifest


def open_windows(project: Project) -> dict[tuple[datetime, str], tuple[int, int]]:
    """What the state must hold: on-time records of windows that are not closed."""
    groups: dict[tuple[datetime, str], list[int]] = defaultdict(list)
    for record in project.on_time():
        end = record.at.replace(second=0, microsecond=0) + timedelta(minutes=1)
        if record.n >= 0 and end > project.watermark():
            groups[end, record.page].append(record.n)
    return {key: (len(found), sum(found)) for key, found in groups.items()}


def test_the_state_is_what_the_open_windows_hold(project: Project, build: Build) -> None:
    chance = random.Random(1)
    pipeline = build()
    states = []
    for turn in range(3):
        project.append("a.ndjson", random_records(chance, 150, begin=turn * 75))
        state = read_state(pipeline.checkpoints, run(pipeline), "per_minute")
        assert state.keys == ("window_end", "page")
        found = {
            (row["window_end"], row["page"]): (row["count(*)"], row["sum(n)"])
            for row in state.rows.to_pylist()
        }
        assert found == open_windows(project)
        assert len(found) > 3
        states.append((state, found))
    (old, before), (new, after) = states[1:]
    changes = {
        (row["window_end"], row["page"]): row for row in compare_states(old, new).to_pylist()
    }
    assert set(changes) == {key for key in {*before, *after} if before.get(key) != after.get(key)}
    for key, row in changes.items():
        assert row["count(*) before"] == before.get(key, (None, None))[0]
        assert row["count(*) after"] == after.get(key, (None, None))[0]
        kind = "changed" if key in before and key in after else "added" if key in after else "gone"
        assert row["change"] == kind
    assert compare_states(new, new).num_rows == 0
    with pytest.raises(UnknownOperator):
        manifest = run(pipeline)
        read_state(pipeline.checkpoints, manifest, "nobody")


def test_bad_and_late_records_are_kept_and_bad_ones_replayed(
    project: Project, build: Build
) -> None:
    narrow = SOURCES.replace("n INT", "n SMALLINT")
    model = "SELECT page, window_start AS minute, COUNT(*) AS clicks FROM clicks"
    model += " GROUP BY TUMBLE(at, INTERVAL '1' HOUR), page"
    project.write(sources=narrow, per_minute=model)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    good = Record("p1", 0.95, 100, 1, at + timedelta(minutes=1))
    late = Record("late", 0.95, 100, 1, at)
    large = Record("p2", 0.97, 100, 70_000, at + timedelta(minutes=2)).line()
    project.append("a.ndjson", [good, late, large, "nonsense"])
    pipeline = build()
    bad, behind = letters_of(run(pipeline))
    assert (bad.kind, bad.rows, behind.kind, behind.rows) == ("bad", 2, "late", 1)
    (table,) = read_letters(pipeline.checkpoints, bad)
    assert table.column("raw").to_pylist() == [large.encode(), b"nonsense"]
    assert table.column("partition").to_pylist() == ["a.ndjson", "a.ndjson"]
    (lateness,) = read_letters(pipeline.checkpoints, behind)
    assert lateness.column("page").to_pylist() == ["late"]
    # The author sees that the column is too narrow, mends the source, and has them read again.
    project.write(per_minute=model)
    pipeline = build()
    replayed = replay_letters(pipeline.checkpoints, pipeline.sources, bad)
    assert (replayed.records, replayed.cut_off) == (2, 0)
    with pytest.raises(AlreadyReplayed):
        replay_letters(pipeline.checkpoints, pipeline.sources, bad)
    counts = run(pipeline).counts
    assert (counts.read, counts.processed, counts.dead_lettered) == (2, 1, 1)
    assert sorted(project.query("SELECT page FROM large")) == [("P1",), ("P2",)]
    assert run_until_done(pipeline)[-1].counts.read == 0


def test_many_epochs_of_letters(project: Project, build: Build) -> None:
    project.append("a.ndjson", random_records(random.Random(2), 300))
    pipeline = build(limits=Admission(max_records=120))
    manifests = run_until_done(pipeline)
    bad = [each for m in manifests for each in letters_of(m) if each.kind == "bad"]
    records = [each for each in project.files["a.ndjson"] if isinstance(each, str) and each]
    tables = [table for each in bad for table in read_letters(pipeline.checkpoints, each)]
    raws = pa.concat_tables(tables).column("raw").to_pylist()
    assert [raw.decode() for raw in raws] == records
    assert sum(m.counts.dead_lettered for m in manifests) == len(records)
