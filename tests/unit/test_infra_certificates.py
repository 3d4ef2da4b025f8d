"""Certificates: the right ones are believed in a real handshake, and the wrong ones are not."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509

from infra.certificates import Authority, Certificate, general_name


def handshake(server: Certificate, trusted: Path, host: str = "127.0.0.1") -> None:
    """Let a client meet a server in memory; raises what either of them raises."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server.certificate, server.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=str(trusted)).wrap_bio(
        to_client, to_server, server_hostname=host
    )
    listening = serving.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, listening):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_certificate_is_good_for_this_machine(tmp_path: Path, host: str) -> None:
    authority = Authority(tmp_path)
    handshake(authority.issue("server"), authority.file, host)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [("expired", "expired"), ("elsewhere", "not valid for '127.0.0.1'"), ("stranger", "issuer")],
)
def test_a_wrong_certificate_is_refused(tmp_path: Path, wrong: str, reason: str) -> None:
    authority = Authority(tmp_path / "ours")
    stranger = Authority(tmp_path / "theirs", "a stranger")
    served = {
        "expired": authority.issue("expired", expired=True),
        "elsewhere": authority.issue("elsewhere", hosts=["elsewhere.invalid"]),
        "stranger": stranger.issue("stranger"),
    }
    with pytest.raises(ssl.SSLCertVerificationError, match=reason):
        handshake(served[wrong], authority.file)


def test_nobody_else_can_read_a_key_and_java_gets_both_in_one_file(tmp_path: Path) -> None:
    made = Authority(tmp_path).issue("server")
    for file in (made.key, made.both):
        assert file.stat().st_mode & 0o777 == 0o600
    assert made.both.read_bytes() == made.key.read_bytes() + made.certificate.read_bytes()
    assert made.key.read_text().startswith("-----BEGIN PRIVATE KEY-----")


def test_an_address_is_not_a_name() -> None:
    assert isinstance(general_name("127.0.0.1"), x509.IPAddress)
    assert isinstance(general_name("localhost"), x509.DNSName)
