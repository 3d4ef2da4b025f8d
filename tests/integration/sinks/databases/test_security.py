"""Passwords and certificates, right ones and wrong ones, on a server that has TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infra.certificates import Authority
from infra.mariadb import Mariadb
from infra.mysql import Mysql
from infra.postgres import Postgres
from laminar_dagster.core.errors import AuthFailed, SinkUnavailable
from laminar_dagster.core.ids import EpochNumber
from tests.integration.sinks.databases.mysql_place import (
    GenuineMysqlPlace,
    MariadbPlace,
    MysqlPlace,
)
from tests.integration.sinks.databases.place import DatabasePlace
from tests.integration.sinks.databases.postgres_place import PostgresPlace
from tests.integration.sinks.databases.secure_server import (
    ROWS,
    SecureMysql,
    SecurePostgres,
    SecureServer,
    refusal,
    show,
    sink_at,
)
from tests.integration.sinks.databases.servers import ALL_SERVERS, MYSQL_SERVERS, on
from tests.services import mariadb, mysql
from tests.unit.sinks.staging import staged

pytestmark = pytest.mark.slow


def signed(folder: Path) -> dict[str, Any]:
    """Authorities, and what they have signed."""
    authority = Authority(folder / "authority")
    stranger = Authority(folder / "stranger", "somebody else")
    return {
        "authority": authority,
        "stranger": stranger,
        "usual": authority.issue("server"),
        "carol": authority.issue("carol"),
        "forged": stranger.issue("carol"),
    }


@pytest.fixture(scope="module")
def secure_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    folder = tmp_path_factory.mktemp("secure")
    rules = folder / "hba.conf"
    rules.write_text("hostssl all carol all cert\nhost all all all scram-sha-256\n")
    with Postgres({"fsync": "off", "hba_file": str(rules)}) as server:
        endpoint = server.start(folder / "postgres")
        place = PostgresPlace(endpoint, endpoint.database)
        place.query("CREATE ROLE carol LOGIN SUPERUSER")
        yield SecurePostgres(place, **signed(folder))


@pytest.fixture(scope="module")
def secure_mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    folder = tmp_path_factory.mktemp("secure")
    with secured(folder, Mariadb, mariadb.WITHOUT_SYNC, MariadbPlace, "FLUSH SSL") as found:
        yield found


@pytest.fixture(scope="module")
def secure_mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    folder = tmp_path_factory.mktemp("secure")
    again = "ALTER INSTANCE RELOAD TLS"
    with secured(folder, Mysql, mysql.WITHOUT_SYNC, GenuineMysqlPlace, again) as found:
        yield found


@contextmanager
def secured(
    folder: Path,
    kind: type[Mariadb] | type[Mysql],
    fast: dict[str, str],
    place_of: type[MysqlPlace],
    again: str,
) -> Iterator[SecureServer]:
    """A server that shows a certificate, and knows two accounts."""
    files, shown = signed(folder), folder / "shown"
    shown.mkdir()
    show(files["usual"], shown)
    settings = {
        **fast,
        "ssl-ca": str(files["authority"].file),
        "ssl-cert": str(shown / "server.crt"),
        "ssl-key": str(shown / "server.key"),
    }
    with kind(settings) as server:
        endpoint = server.start(folder / kind.name)
        place = place_of(endpoint, endpoint.database)
        place.query("CREATE USER carol REQUIRE X509")
        place.query("GRANT ALL ON laminar.* TO carol")
        place.query("CREATE USER dave IDENTIFIED BY 'secret-of-dave'")
        yield SecureMysql(place, **files, shown=shown, again=again)


@pytest.fixture(scope="module", params=on(*ALL_SERVERS))
def secure(request: pytest.FixtureRequest) -> SecureServer:
    found: SecureServer = request.getfixturevalue(f"secure_{request.param}")
    return found


@pytest.fixture
def good(secure: SecureServer) -> SecureServer:
    secure.present(secure.usual)
    return secure


# --- whom a sink trusts ---------------------------------------------------------------------------


def test_the_right_authority_is_trusted(good: SecureServer) -> None:
    good.place.query("DROP TABLE IF EXISTS t, _laminar_ledger")
    sink = good.sink()
    assert good.place.is_encrypted(sink)
    sink.commit(EpochNumber(1), staged(ROWS))
    assert sink.ledger() == 1


@pytest.mark.parametrize(
    ("secure", "mode", "off"),
    [
        *on("postgres", cases=[(mode, "disable") for mode in ("prefer", "require", "verify-ca")]),
        *on(
            *MYSQL_SERVERS,
            cases=[(mode, "disabled") for mode in ("preferred", "required", "verify-ca")],
        ),
    ],
    indirect=["secure"],
)
def test_other_modes_encrypt_too(good: SecureServer, mode: str, off: str) -> None:
    name = good.place.traits.tls.mode
    assert good.place.is_encrypted(good.sink(**{name: mode}))
    assert not good.place.is_encrypted(good.sink(**{name: off}))


@pytest.mark.parametrize("is_strictest", [False, True])
def test_a_server_signed_by_a_stranger_is_not_trusted(
    good: SecureServer, is_strictest: bool
) -> None:
    tls = good.place.traits.tls
    mode = {tls.mode: tls.strictest if is_strictest else "verify-ca"}
    text = refusal(sink_at(good.place, good.stranger, **mode))
    assert "certificate verify failed" in text


@pytest.mark.parametrize("signer", ["authority", "stranger"])
@pytest.mark.parametrize(
    ("secure", "told"),
    [
        *on("postgres", cases=[(("db.example",),)]),
        *on(*MYSQL_SERVERS, cases=[(("127.0.0.1", "certificate verify failed"),)]),
    ],
    indirect=["secure"],
)
def test_a_certificate_for_another_host_is_not_trusted(
    secure: SecureServer, signer: str, told: tuple[str, ...]
) -> None:
    trusted: Authority = getattr(secure, signer)
    secure.present(trusted.issue("elsewhere", hosts=["db.example"]))
    text = refusal(sink_at(secure.place, trusted))
    for part in told:
        assert part in text
    # To know the authority is enough for those who say so.
    sink_at(secure.place, trusted, **{secure.place.traits.tls.mode: "verify-ca"}).ledger()


@pytest.mark.parametrize(
    ("secure", "told"),
    [
        *on("postgres", cases=[("certificate verify failed",)]),
        *on(*MYSQL_SERVERS, cases=[("certificate has expired",)]),
    ],
    indirect=["secure"],
)
def test_an_expired_certificate_is_not_trusted(secure: SecureServer, told: str) -> None:
    secure.present(secure.authority.issue("expired", expired=True))
    assert told in refusal(secure.sink())


@pytest.mark.parametrize(
    ("place", "modes", "told"),
    [
        *on(
            "postgres",
            cases=[(("require", "verify-ca", "verify-full"), "does not support SSL")],
        ),
        # MySQL makes itself a certificate, if it is given none.
        *on(
            "mariadb",
            cases=[(("required", "verify-ca", "verify-identity"), "the server doesn't support it")],
        ),
    ],
    indirect=["place"],
)
def test_a_server_without_tls_is_refused(
    place: DatabasePlace, modes: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    for mode in modes:
        assert told in refusal(sink_at(place, authority, **{place.traits.tls.mode: mode}))


def test_a_missing_authority_is_named(good: SecureServer) -> None:
    text = refusal(good.sink(**{good.place.traits.tls.authority: "/no/such/file.pem"}))
    assert "/no/such/file.pem" in text


# --- whom a server trusts -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("secure", "told", "fields"),
    [
        *on(
            "postgres",
            cases=[
                ("password authentication failed", {"password": "wrong-but-secret"}),
                (
                    "authentication failed",
                    {"user": "nobody-here", "password": "wrong-but-secret"},
                ),
                (
                    'database "no_such_database" does not exist',
                    {"database": "no_such_database"},
                ),
                ("certificate", {"user": "carol", "password": "wrong-but-secret"}),
            ],
        ),
        *on(
            *MYSQL_SERVERS,
            cases=[
                ("Access denied", {"password": "wrong-but-secret"}),
                ("Access denied", {"password": "wröng-but-sécret-€"}),
                ("Access denied", {"user": "nobody-here", "password": "wrong-but-secret"}),
                ("no_such_database", {"database": "no_such_database"}),
                ("Access denied", {"user": "dave", "password": "secret-of-dave"}),
                ("Access denied", {"user": "carol", "password": None}),
                ("Access denied", {"password": None}),
            ],
        ),
    ],
    indirect=["secure"],
)
def test_wrong_credentials_are_named_and_never_shown(
    good: SecureServer, told: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    text = refusal(good.sink(**fields))
    assert told in text
    for secret in ("but-secret", "but-sécret", "secret-of-dave", good.place.endpoint.password):
        assert secret not in text
    assert "check the user, the secret and what they are allowed to do" in text


@pytest.mark.service("postgres")
def test_a_missing_password_is_named(
    secure_postgres: SecureServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure_postgres.present(secure_postgres.usual)
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", "/dev/null")
    assert "no password supplied" in refusal(secure_postgres.sink(password=None))


def test_a_client_may_be_known_by_its_certificate(good: SecureServer) -> None:
    carol, forged = good.carol, good.forged
    good.sink_of_carol(carol.certificate, carol.key).ledger()
    # Whether the server's word arrives before its end may be up to the network.
    with pytest.raises((AuthFailed, SinkUnavailable)) as caught:
        good.sink_of_carol(forged.certificate, forged.key).ledger()
    assert any(word in str(caught.value) for word in ("certificate", "unknown ca", "UNKNOWN_CA"))


@pytest.mark.service("postgres")
def test_a_forged_certificate_and_an_open_key_are_refused_by_postgres(
    secure_postgres: SecureServer, tmp_path: Path
) -> None:
    secure_postgres.present(secure_postgres.usual)
    carol, forged = secure_postgres.carol, secure_postgres.forged
    text = refusal(secure_postgres.sink_of_carol(forged.certificate, forged.key))
    assert "unknown ca" in text or "certificate" in text
    key = tmp_path / "open.key"
    key.write_bytes(carol.key.read_bytes())
    key.chmod(0o644)
    assert "private key file" in refusal(secure_postgres.sink_of_carol(carol.certificate, key))


@pytest.mark.parametrize("secure", on(*MYSQL_SERVERS), indirect=True)
def test_a_key_of_another_certificate_is_refused_by_mysql(good: SecureServer) -> None:
    certificate, key = good.carol.certificate, good.forged.key
    text = refusal(good.sink_of_carol(certificate, key))
    assert "a certificate cannot be used" in text
