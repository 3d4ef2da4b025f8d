"""Real X.509 certificates for servers and clients on loopback, right ones and wrong ones."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from infra.ports import LOOPBACK

_HOSTS: Final = (LOOPBACK, "localhost")
_VALID: Final = timedelta(days=30)
# Clocks of one machine agree; this is for clients that compare whole minutes.
_EARLY: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, in PEM files that only their owner can read.

    Attributes:
        certificate: The certificate alone.
        key: Its private key, without a password.
        both: Key and certificate in one file, as Java wants a keystore.
    """

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates. Nobody knows it who was not given its `file`.

    Attributes:
        file: Its own certificate, which clients are told to trust.
    """

    def __init__(self, folder: Path, name: str = "laminar test authority") -> None:
        """Make an authority that keeps all it signs in ``folder``."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        certificate = (
            _builder(self._name, self._name, self._key.public_key(), now - _EARLY, now + _VALID)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / "ca.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *, hosts: Sequence[str] = _HOSTS, expired: bool = False
    ) -> Certificate:
        """Sign a certificate that serves for a server and for a client.

        Args:
            name: Its common name, and that of its files.
            hosts: Names and addresses it is good for.
            expired: It ended an hour ago.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        begins, ends = (now - _VALID, now - _EARLY) if expired else (now - _EARLY, now + _VALID)
        certificate = (
            _builder(self._name, subject, key.public_key(), begins, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(
                x509.SubjectAlternativeName([general_name(host) for host in hosts]), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        public = certificate.public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return Certificate(
            certificate=self._write(f"{name}.crt", public),
            key=self._write(f"{name}.key", private),
            both=self._write(f"{name}.pem", private + public),
        )

    def _write(self, name: str, content: bytes) -> Path:
        file = self._folder / name
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(content)
        return file


def general_name(host: str) -> x509.GeneralName:
    """``host`` as a certificate names it: an address is not a name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    issuer: x509.Name,
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begins: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
