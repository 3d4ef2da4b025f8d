"""A store on S3 is damaged, and a topic is read once more to mend it: `laminar recover`, whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from infra.kafka import KafkaEndpoint
from infra.s3 import S3Endpoint
from infra.spark_connect import SparkConnectEndpoint
from laminar_dagster.core import layout
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.stores.url import open_store
from tests.integration.proof.answer import PER_MINUTE, Answer
from tests.integration.proof.kafka_clicks import ClickTopic
from tests.integration.proof.published import manifests_of, read_minutes
from tests.integration.proof.stream import MODELS, SINKS, Layout, write_pipeline
from tests.services.kafka import delete_records, delete_topic

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("kafka"),
    pytest.mark.service("s3"),
    pytest.mark.service("spark_connect"),
    pytest.mark.proof("recovery from S3 and Kafka"),
]

_LAMINAR: Final = Path(sys.executable).with_name("laminar")
_PREFIX: Final = "shop/"
_REFUSED: Final = 3


class Bucket:
    """All objects of a store, by key, and ways to damage them."""

    def __init__(self, client: S3Client, name: str) -> None:
        self._client, self._name = client, name

    def objects(self) -> dict[str, bytes]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._name, Prefix=_PREFIX
        )
        keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return {key.removeprefix(_PREFIX): self._read(key) for key in keys}

    def flip(self, key: str) -> None:
        data = bytearray(self._read(_PREFIX + key))
        data[len(data) // 2] ^= 1
        self._client.put_object(Bucket=self._name, Key=_PREFIX + key, Body=bytes(data))

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self._name, Key=_PREFIX + key)

    def _read(self, key: str) -> bytes:
        return self._client.get_object(Bucket=self._name, Key=key)["Body"].read()


def test_a_damaged_store_is_mended_from_the_topic(
    tmp_path: Path,
    kafka_service: KafkaEndpoint,
    s3_service: S3Endpoint,
    s3_client: S3Client,
    s3_bucket: str,
    spark_connect: SparkConnectEndpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = ClickTopic(kafka_service, f"clicks-{uuid.uuid4().hex}")
    address = f"s3://{s3_bucket}/shop"
    minutes = SINKS[: SINKS.index("CREATE SINK lake")]
    models = {"per_minute": MODELS["per_minute"]}
    write_pipeline(tmp_path, Layout(address, 90, topic.source, models, minutes))
    environment = {**spark_connect.environment(), **s3_service.environment()}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    topic.write(60, begin=0)
    assert _laminar(tmp_path, "run", "--until-caught-up", "--no-dagster")[0] == 0
    newest, (lost, *flipped) = _newest(address, tmp_path)
    bucket = Bucket(s3_client, s3_bucket)
    whole = bucket.objects()

    # The newest state and the records around it.
    flipped += [layout.manifest_key(newest.checkpoint_id), layout.plan_key(newest.epoch)]
    for key in flipped:
        bucket.flip(key)
    bucket.delete(lost)
    bucket.delete(layout.LATEST)
    code, report = _laminar(tmp_path, "recover", "--json")
    assert code == 0, report
    assert bucket.objects() == whole, "the same bytes under the same keys"

    topic.write(40, begin=120)
    assert _laminar(tmp_path, "run", "--until-caught-up", "--no-dagster")[0] == 0
    answer = Answer()
    topic.add_to(answer, tmp_path / "answer")
    assert read_minutes(tmp_path)[1] == answer.rows(PER_MINUTE)

    # What the topic holds no more cannot be made again, and nothing is changed.
    _, (lost, *_) = _newest(address, tmp_path)
    bucket.delete(lost)
    before = bucket.objects()
    delete_records(kafka_service, topic.name, topic.ends())
    code, report = _laminar(tmp_path, "recover", "--json")
    assert code == _REFUSED, report
    assert topic.name in json.dumps(report)
    assert bucket.objects() == before
    delete_topic(kafka_service, topic.name)


def _newest(address: str, root: Path) -> tuple[CheckpointManifest, list[str]]:
    """The newest manifest, and where its state is."""
    manifest = manifests_of(CheckpointStore(open_store(address, root)))[-1]
    keys = [
        layout.checkpoint_key(manifest.origin_of(part).checkpoint_id, part.path)
        for part in manifest.operators[0].partitions
    ]
    return manifest, keys


def _laminar(root: Path, *arguments: str) -> tuple[int, Any]:
    done = subprocess.run(
        [_LAMINAR, *arguments],
        cwd=root,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    if "--json" in arguments:
        return done.returncode, json.loads(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.returncode, done.stdout
