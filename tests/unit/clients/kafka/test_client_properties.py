"""librdkafka says which properties it has, and which values they take."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.kafka.cluster import Cluster
from laminar_dagster.clients.kafka.properties import names, problem_with, property_mistakes
from laminar_dagster.core.errors import InvalidConfig


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "me"),
        ("sasl.password", "s3cret-word"),
        ("ssl.ca.location", "/no/such/file.pem"),
        ("ssl.key.location", "/no/such/file.key"),
        ("ssl.endpoint.identification.algorithm", "https"),
        ("fetch.wait.max.ms", "50"),
        ("linger.ms", "5"),
        ("acks", "all"),
        ("max.in.flight", "1"),
    ],
)
def test_what_it_has(name: str, text: str) -> None:
    assert problem_with(name, text) is None


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("securty.protocol", "security.protocol"),
        ("security_protocol", "security.protocol"),
        ("ssl.ca.loction", "ssl.ca.location"),
        ("sasl.pasword", "sasl.password"),
        ("fetch.wait.max.mss", "fetch.wait.max.ms"),
        ("compresion.type", "compression.type"),
    ],
)
def test_what_is_misspelt(name: str, nearest: str) -> None:
    assert problem_with(name, "x") == (
        f"librdkafka has no property `{name}` (option `kafka.{name}`)",
        f"did you mean `kafka.{nearest}`?",
    )


@pytest.mark.parametrize("name", ["", "nothing.of.the.kind", "logger", "error_cb", "stats_cb"])
def test_what_is_nothing(name: str) -> None:
    problem = problem_with(name, "x")
    assert problem
    assert problem[0].startswith("librdkafka has no property")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("security.protocol", "SASL_SLS"),
        ("fetch.wait.max.ms", "soon"),
        ("fetch.wait.max.ms", "300001"),
        ("enable.sparse.connections", "maybe"),
        ("debug", "everything"),
    ],
)
def test_what_it_does_not_take(name: str, text: str) -> None:
    problem = problem_with(name, text)
    assert problem
    assert problem[0].startswith(f"`kafka.{name}`: ")
    assert "laminar" not in problem[0]


def test_a_mistake_is_told_by_its_option() -> None:
    options = {"topic": "t", "kafka.sasl.usrname": "me", "kafka.client.id": "x"}
    ((option, problem, hint),) = property_mistakes(options)
    assert option == "kafka.sasl.usrname"
    assert "sasl.usrname" in problem
    assert hint == "did you mean `kafka.sasl.username`?"


def test_its_names_are_its_own() -> None:
    known = names()
    assert {"security.protocol", "sasl.password", "ssl.ca.location", "acks"} <= set(known)
    assert all("_LAST" not in each for each in known)


def test_a_file_that_is_missing_is_told_when_a_client_is_made(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        settings = {
            "bootstrap.servers": f"127.0.0.1:{unused.getsockname()[1]}",
            "security.protocol": "ssl",
            "ssl.ca.location": str(tmp_path / "none.pem"),
        }
        cluster = Cluster(Asker.source("clicks"), settings, patience=0.1)
        with pytest.raises(InvalidConfig, match=r"source clicks: librdkafka says: .*ssl\.ca\.loc"):
            cluster.describe()
