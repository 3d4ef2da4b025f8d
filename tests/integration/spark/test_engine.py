"""The engine on a real Spark: right answers, whatever the cut, the partitions or the damage."""

from __future__ import annotations

import random
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from laminar_dagster.core.errors import ChecksumMismatch, DecodeFailed, GateFailed, InvalidConfig
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import Admission
from laminar_dagster.runtime.clock import mint_checkpoint_id
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import newest_manifest, survey
from tests.integration.spark.conftest import Build
from tests.integration.spark.project import (
    LARGE,
    PER_MINUTE,
    Project,
    random_records,
    run_until_done,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def answer_in(project: Project) -> dict[tuple[str, datetime], tuple[object, ...]]:
    rows = project.query("SELECT page, minute, clicks, total, money, mean, least, most FROM pm")
    return {
        (str(page), datetime.fromisoformat(str(minute).replace("Z", "+00:00"))): (
            clicks,
            total,
            int(Decimal(str(money)) * 100),
            mean,
            least,
            most,
        )
        for page, minute, clicks, total, money, mean, least, most in rows
    }


@pytest.mark.parametrize("limit", [40, 170, None])
def test_the_answer_does_not_depend_on_the_cut(
    project: Project, build: Build, limit: int | None
) -> None:
    chance = random.Random(1)
    project.append("a.ndjson", random_records(chance, 400))
    project.append("b.ndjson", random_records(chance, 350))
    manifests = run_until_done(build(limits=Admission(max_records=limit)))
    assert answer_in(project) == project.expected()
    assert len(project.expected()) > 5
    large = [(str(p), float(str(t))) for p, t in project.query("SELECT page, twice FROM large")]
    assert sorted(large) == project.expected_large()
    lake = DeltaTable(project.root / "lake").to_pyarrow_table()
    assert lake.num_rows == len(project.expected())
    read = sum(manifest.counts.read for manifest in manifests)
    late = sum(manifest.counts.late for manifest in manifests)
    records = [each for file in project.files.values() for each in file if each != ""]
    assert read == len(records)
    assert late == len([r for r in records if not isinstance(r, str)]) - len(project.on_time())
    assert late > 0
    assert sum(m.counts.dead_lettered for m in manifests) == len(
        [r for r in records if isinstance(r, str)]
    )


def test_files_grow_between_epochs(project: Project, build: Build) -> None:
    chance = random.Random(2)
    pipeline = build()
    for turn in range(3):
        for name in ("a.ndjson", "b.ndjson"):
            project.append(name, random_records(chance, 120, begin=turn * 60))
        EpochRunner(pipeline).run()
    assert answer_in(project) == project.expected()


def hashes(pipeline: Pipeline, manifest: CheckpointManifest) -> set[tuple[str, str]]:
    output = pipeline.checkpoints.plan(manifest.epoch)
    assert output
    parent = pipeline.checkpoints.parent(output.parent) if output.parent else None
    again = pipeline.engine.compute(output, parent, mint_checkpoint_id())
    found = {
        (part.path, part.sha256)
        for operator in again.operators
        for part in operator.partitions
        if part.origin is None
    }
    return found | {(str(sink.sink_id), sink.output_sha256) for sink in again.sinks}


def test_a_re_run_gives_every_hash_again(
    project: Project, build: Build, spark: SparkSession
) -> None:
    """Also with another number of partitions; also for sums of floats."""
    chance = random.Random(3)
    project.append("a.ndjson", random_records(chance, 300))
    project.append("b.ndjson", random_records(chance, 300))
    pipeline = build(limits=Admission(max_records=150))
    manifests = run_until_done(pipeline)
    for manifest in manifests:
        written = {
            (part.path, part.sha256)
            for operator in manifest.operators
            for part in operator.partitions
            if part.origin is None
        } | {(str(sink.sink_id), sink.output_sha256) for sink in manifest.sinks}
        spark.conf.set("spark.sql.shuffle.partitions", "5")
        try:
            assert hashes(pipeline, manifest) == written
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", "2")


def test_hopping_windows_count_a_record_in_each(project: Project, build: Build) -> None:
    project.write(
        per_minute="SELECT page, window_end AS minute, COUNT(*) AS clicks, SUM(n) AS total,"
        " SUM(price) AS money, AVG(amount) AS mean, MIN(amount) AS least, MAX(n) AS most"
        " FROM clicks GROUP BY HOP(at, INTERVAL '30' SECOND, INTERVAL '1' MINUTE), page"
    )
    project.append("a.ndjson", random_records(random.Random(4), 400))
    run_until_done(build(limits=Admission(max_records=90)))
    counted = {
        (str(p), str(m)): c for p, m, c in project.query("SELECT page,minute,clicks FROM pm")
    }
    expected: dict[tuple[str, float], int] = {}
    for record in project.on_time():
        seconds = record.at.timestamp()
        first = seconds // 30 * 30 + 30
        for end in (first, first + 30):
            if end <= project.watermark().timestamp():
                key = (record.page, end)
                expected[key] = expected.get(key, 0) + 1
    found = {
        (page, datetime.fromisoformat(minute.replace("Z", "+00:00")).timestamp()): count
        for (page, minute), count in counted.items()
    }
    assert found == expected


def test_both_parts_of_a_union_arrive(project: Project, build: Build) -> None:
    project.write(
        large="SELECT page, amount AS twice, at FROM clicks WHERE amount > 0.9"
        " UNION ALL SELECT upper(page) AS page, amount * 2 AS twice, at FROM clicks"
    )
    project.append("a.ndjson", random_records(random.Random(9), 150))
    project.append("b.ndjson", random_records(random.Random(10), 150))
    run_until_done(build(limits=Admission(max_records=80)))
    found = [(str(p), float(str(t))) for p, t in project.query("SELECT page, twice FROM large")]
    kept = [(each.page, each.amount) for each in project.on_time() if each.amount > 0.9]
    both = [(each.page.upper(), each.amount * 2) for each in project.on_time()]
    assert sorted(found) == sorted(kept + both)


def test_a_window_over_the_results_of_a_window(project: Project, build: Build) -> None:
    project.write(
        large="SELECT window_start AS at, COUNT(*) AS pages, SUM(clicks) AS twice FROM per_minute"
        " GROUP BY TUMBLE(minute, INTERVAL '2' MINUTE)"
    )
    project.append("a.ndjson", random_records(random.Random(8), 900))
    run_until_done(build(limits=Admission(max_records=130)))
    expected: dict[float, int] = {}
    for (_, minute), row in project.expected().items():
        begin = minute.timestamp() // 120 * 120
        if begin + 120 <= project.watermark().timestamp():
            expected[begin] = expected.get(begin, 0) + row[0]
    found = {
        datetime.fromisoformat(str(at).replace("Z", "+00:00")).timestamp(): total
        for at, total in project.query("SELECT at, twice FROM large")
    }
    assert found == expected
    assert len(expected) > 1


def test_a_broken_contract_publishes_nothing(project: Project, build: Build) -> None:
    folder = project.root / "dbt_like_configs" / "clicks" / "contracts"
    folder.mkdir()
    (folder / "large.yml").write_text(
        "schema_type: dataframe\nversion: 0.35.0\ncolumns:\n  twice:\n    dtype: float64\n"
        "    nullable: false\n    checks:\n      less_than_or_equal_to: 1.85\n"
    )
    project.append("a.ndjson", random_records(random.Random(5), 300))
    pipeline = build()
    with pytest.raises(GateFailed, match="twice"):
        EpochRunner(pipeline).run()
    assert newest_manifest(pipeline.checkpoints, survey(pipeline.checkpoints)) is None
    assert not (project.root / "out.db").exists() or not project.query(
        "SELECT name FROM sqlite_master WHERE name = 'large'"
    )


def test_a_damaged_state_file_is_found_by_name(project: Project, build: Build) -> None:
    chance = random.Random(6)
    project.append("a.ndjson", random_records(chance, 100))
    pipeline = build()
    report = EpochRunner(pipeline).run()
    manifest = pipeline.checkpoints.manifest(report.checkpoint_id)
    assert manifest
    store = pipeline.checkpoints.objects
    for key, _, _ in list(manifest.files()):
        if "/operators/" in key:
            data = store.read(key)
            store.put(key, data[:-1] + bytes([data[-1] ^ 1]))
    project.append("a.ndjson", random_records(chance, 300, begin=200))
    with pytest.raises(ChecksumMismatch):
        EpochRunner(pipeline).run()


def test_a_bad_record_can_be_made_to_stop_the_epoch(project: Project, build: Build) -> None:
    config = project.root / "dbt_like_configs" / "clicks" / "pipeline.yml"
    config.write_text(config.read_text() + "on_bad_record: fail\n")
    project.append("a.ndjson", ["garbage"])
    with pytest.raises(DecodeFailed) as caught:
        EpochRunner(build()).run()
    assert "a.ndjson" in caught.value.position


def test_a_query_that_does_not_type_names_its_place(project: Project, build: Build) -> None:
    project.write(large="SELECT page + array(1) AS page, amount AS twice, at FROM clicks")
    project.append("a.ndjson", random_records(random.Random(7), 10))
    with pytest.raises(InvalidConfig, match=r"large\.sql"):
        EpochRunner(build()).run()


def test_a_view_that_only_feeds_others_is_not_published(project: Project, build: Build) -> None:
    project.write(
        clean="SELECT lower(page) AS page, amount, price, n, at FROM clicks WHERE n >= 0",
        per_minute=PER_MINUTE.replace("FROM clicks WHERE n >= 0", "FROM clean"),
        large=LARGE.replace("FROM clicks", "FROM clean"),
    )
    project.append("a.ndjson", random_records(random.Random(11), 300))
    manifests = run_until_done(build(limits=Admission(max_records=170)))
    assert answer_in(project) == project.expected()
    kept = [each for each in project.on_time() if each.n >= 0]
    large = [each for each in kept if each.amount > 0.9]
    assert project.query("SELECT count(*) FROM large") == [(len(large),)]
    assert sum(m.counts.processed for m in manifests) == len(kept)
    assert sum(m.counts.filtered for m in manifests) == len(project.on_time()) - len(kept)
