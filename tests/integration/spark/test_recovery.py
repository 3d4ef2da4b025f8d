"""Recovery with a real Spark: real state files, damaged, made again, and gone on with."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.errors import CannotRebuild, ChecksumMismatch
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import Admission
from laminar_dagster.core.recovery import RepairKind
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.runtime.state_reader import read_state
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.spark.arrow_files import file_table
from tests.integration.spark.conftest import Build
from tests.integration.spark.project import Project, random_records, run_until_done
from tests.integration.spark.test_engine import answer_in


def newest_of(pipeline: Pipeline) -> CheckpointManifest:
    pipeline.checkpoints.forget()
    manifest = newest_manifest(pipeline.checkpoints, survey(pipeline.checkpoints))
    assert manifest
    return manifest


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_checkpoint_and_recovery_preserves_window_state(
    project: Project, build: Build, tmp_path: Path
) -> None:
    chance = random.Random(11)
    project.append("a.ndjson", random_records(chance, 300))
    project.append("b.ndjson", random_records(chance, 280))
    pipeline = build(limits=Admission(max_records=60))
    for _ in range(4):
        EpochRunner(pipeline).run()
    manifest = newest_of(pipeline)
    state = read_state(pipeline.checkpoints, manifest, "per_minute").rows
    assert state.num_rows
    root = project.root / "state"
    whole = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    # Some state files of the newest epochs, its dead letters, and documents around them.
    files = [
        layout.checkpoint_key(manifest.origin_of(part).checkpoint_id, part.path)
        for part in manifest.operators[0].partitions
        if manifest.origin_of(part).epoch >= 3
    ]
    assert len(files) >= 2
    (root / files[0]).unlink()
    for key in files[1:]:
        flip(root / key)
    letters = [
        root / "checkpoints" / manifest.checkpoint_id / each.path
        for entry in manifest.dead_letters
        for each in entry.files
    ]
    for path in letters:
        path.write_bytes(b"")
    (root / layout.LATEST).unlink()
    flip(root / layout.manifest_key(manifest.checkpoint_id))
    flip(root / layout.definition_key(pipeline.fingerprint))

    result = RecoveryManager(build()).recover()
    rebuilt = {each.damage.key for each in result.repairs if each.kind is RepairKind.REBUILT}
    assert rebuilt >= set(files)
    assert result.epoch == 4
    assert {path: path.read_bytes() for path in whole} == whole
    again = read_state(pipeline.checkpoints, newest_of(pipeline), "per_minute").rows
    assert again.equals(state)

    into = tmp_path / "restored"
    RecoveryManager(build()).recover(operators=("per_minute",), into=into)
    written = sorted((into / "per_minute").iterdir())
    assert written
    assert sum(file_table(path.read_bytes()).num_rows for path in written) >= state.num_rows

    run_until_done(build(limits=Admission(max_records=60)))
    assert answer_in(project) == project.expected()


def test_staged_output_that_a_sink_still_needs_is_made_again(
    project: Project, build: Build
) -> None:
    """Killed between the manifest and the sinks, and the output is damaged then."""
    chance = random.Random(12)
    project.append("a.ndjson", random_records(chance, 240))
    project.append("b.ndjson", random_records(chance, 240))
    pipeline = build(limits=Admission(max_records=120))
    EpochRunner(pipeline).run()
    runner = EpochRunner(pipeline)
    epoch = runner.next_epoch()
    runner.prepare(epoch)
    manifest = pipeline.checkpoints.winner(epoch).manifest
    staged = [file.path for sink in manifest.sinks for file in sink.files]
    assert staged
    for path in staged:
        flip(project.root / "state" / layout.checkpoint_key(manifest.checkpoint_id, path))
    with pytest.raises(ChecksumMismatch):
        EpochRunner(build()).run()
    result = RecoveryManager(build()).recover()
    assert {each.damage.key for each in result.repairs} >= {
        layout.checkpoint_key(manifest.checkpoint_id, path) for path in staged
    }
    run_until_done(build(limits=Admission(max_records=120)))
    assert answer_in(project) == project.expected()


def test_input_that_is_gone_is_named(project: Project, build: Build) -> None:
    project.append("a.ndjson", random_records(random.Random(13), 100))
    project.append("b.ndjson", random_records(random.Random(14), 100))
    pipeline = build()
    EpochRunner(pipeline).run()
    manifest = newest_of(pipeline)
    part = manifest.operators[0].partitions[0]
    (project.root / "state" / layout.checkpoint_key(manifest.checkpoint_id, part.path)).unlink()
    text = (project.root / "input" / "a.ndjson").read_text()
    (project.root / "input" / "a.ndjson").write_text(text.replace('"n": 1', '"n": 2'))
    with pytest.raises(CannotRebuild) as caught:
        RecoveryManager(build()).recover()
    assert "a.ndjson" in caught.value.reason
    assert any("a.ndjson: byte 0 to byte" in each for each in caught.value.ranges)
