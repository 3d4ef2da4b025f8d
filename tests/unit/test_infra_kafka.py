"""The Kafka broker's settings, which need no broker."""

from __future__ import annotations

import base64
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from infra.certificates import Certificate
from infra.kafka import Listener, new_cluster_id, security_of

_PASSWORDS = {"ann": "a-1", "bob": "b_2"}
_CERTIFICATE = Certificate(Path("/c.crt"), Path("/c.key"), Path("/c.pem"))


@given(st.binary(min_size=16, max_size=16))
def test_a_cluster_is_named_by_sixteen_bytes_and_never_like_an_option(number: bytes) -> None:
    name = new_cluster_id(number)
    assert len(base64.urlsafe_b64decode(name + "==")) == 16
    assert not name.startswith("-")


def test_a_plain_listener_needs_no_settings() -> None:
    assert security_of(Listener("OPEN"), _PASSWORDS) == {}


def test_a_listener_with_passwords_knows_its_users() -> None:
    settings = security_of(Listener("LOGIN", "SASL_PLAINTEXT"), _PASSWORDS)
    assert settings["listener.name.login.plain.sasl.jaas.config"].endswith(
        'PlainLoginModule required user_ann="a-1" user_bob="b_2";'
    )
    # The cluster knows these users; the listener needs no more than the mechanism.
    assert "a-1" not in settings["listener.name.login.scram-sha-512.sasl.jaas.config"]
    assert settings["listener.name.login.sasl.enabled.mechanisms"] == (
        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    )


def test_a_listener_with_a_certificate_asks_clients_for_theirs_only_if_told() -> None:
    shows = security_of(Listener("TLS", "SSL", _CERTIFICATE), _PASSWORDS)
    assert shows == {
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.tls.ssl.keystore.location": "/c.pem",
    }
    asks = security_of(Listener("TLS", "SSL", _CERTIFICATE, Path("/ca.pem")), _PASSWORDS)
    assert asks["listener.name.tls.ssl.client.auth"] == "required"
    assert asks["listener.name.tls.ssl.truststore.location"] == "/ca.pem"


def test_a_listener_advertises_itself_unless_something_stands_before_it() -> None:
    assert Listener("OPEN").advertise(9092) == ("127.0.0.1", 9092)
