"""A server with a certificate, and those who might sign one."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infra.certificates import Authority, Certificate
from laminar_dagster.core.errors import AuthFailed
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.ports import Sink
from tests.integration.sinks.databases.mysql_place import MysqlPlace
from tests.integration.sinks.databases.place import DatabasePlace
from tests.integration.sinks.databases.postgres_place import PostgresPlace
from tests.unit.sinks.staging import staged

ROWS = pa.table({"k": [1]})


@dataclass(frozen=True)
class SecureServer(ABC):
    """It knows the account ``carol`` by her certificate.

    Attributes:
        authority: Whom clients trust.
        stranger: Whom they do not.
        usual: The certificate that the server begins with.
        carol: Hers, from the authority.
        forged: One in her name, from the stranger.
    """

    place: DatabasePlace
    authority: Authority
    stranger: Authority
    usual: Certificate
    carol: Certificate
    forged: Certificate

    @abstractmethod
    def present(self, certificate: Certificate) -> None:
        """Show another certificate from now on."""

    def sink(self, **fields: Any) -> Sink:
        """One that trusts nobody but the authority, unless it is told otherwise."""
        return sink_at(self.place, self.authority, **fields)

    def sink_of_carol(self, certificate: Path, key: Path) -> Sink:
        """One that shows a certificate of its own, and has no password."""
        tls = self.place.traits.tls
        files = {tls.certificate: str(certificate), tls.key: str(key)}
        return self.sink(user="carol", password=None, **files)


def sink_at(place: DatabasePlace, authority: Authority, **fields: Any) -> Sink:
    tls = place.traits.tls
    defaults = {tls.mode: tls.strictest, tls.authority: str(authority.file)}
    return place.sink(server={**defaults, **fields})


def refusal(sink: Sink) -> str:
    """What both calls are refused with, all that a log could show of it."""
    with pytest.raises(AuthFailed):
        sink.ledger()
    with pytest.raises(AuthFailed) as caught:
        sink.commit(EpochNumber(1), staged(ROWS))
    return "".join(traceback.format_exception(caught.value)) + caught.value.advice()


@dataclass(frozen=True)
class SecurePostgres(SecureServer):
    """Reads its settings again."""

    place: PostgresPlace

    def present(self, certificate: Certificate) -> None:
        for name, value in (
            ("ssl_cert_file", certificate.certificate),
            ("ssl_key_file", certificate.key),
            ("ssl_ca_file", self.authority.file),
            ("ssl", "on"),
        ):
            self.place.query(f"ALTER SYSTEM SET {name} TO '{value}'")
        self.place.query("SELECT pg_reload_conf()")
        # The next connection may come before the server has read it.
        self.place.query("SELECT pg_sleep(0.3)")


@dataclass(frozen=True)
class SecureMysql(SecureServer):
    """Reads its files again.

    Attributes:
        shown: The folder of the files that it was started with.
        again: What makes it read them.
    """

    place: MysqlPlace
    shown: Path
    again: str

    def present(self, certificate: Certificate) -> None:
        show(certificate, self.shown)
        self.place.query(self.again)


def show(certificate: Certificate, folder: Path) -> None:
    """Put a certificate where a server looks for it."""
    (folder / "server.crt").write_bytes(certificate.certificate.read_bytes())
    (folder / "server.key").write_bytes(certificate.key.read_bytes())
