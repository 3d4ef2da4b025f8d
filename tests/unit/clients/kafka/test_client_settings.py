from __future__ import annotations

from laminar_dagster.clients.kafka.consumer_settings import consumer_settings
from laminar_dagster.clients.kafka.settings import without_secrets


def test_nobody_can_set_away_what_a_reader_depends_on() -> None:
    given = {
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": "false",
        "fetch.queue.backoff.ms": "7",
        "group.id": "mine",
    }
    settings = consumer_settings(given)
    assert settings["isolation.level"] == "read_committed"
    assert settings["auto.offset.reset"] == "error"
    assert settings["enable.partition.eof"] == "true"
    assert settings["enable.auto.commit"] == "false"
    assert settings["check.crcs"] == "true"
    assert settings["fetch.queue.backoff.ms"] == "7"
    assert settings["group.id"] == "mine"


def test_secrets_are_taken_out_of_texts() -> None:
    settings = {"sasl.password": "hunter2", "ssl.key.password": "", "client.id": "laminar"}
    assert without_secrets("`hunter2` of laminar", settings) == "`***` of laminar"
