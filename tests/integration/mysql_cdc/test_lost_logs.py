"""A log that was purged, reset or shortened, another server, and a server that is not set up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import msgspec
import pytest

from infra.load import Deadline
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.core.errors import (
    AuthFailed,
    InvalidConfig,
    RetentionExpired,
    SourceReplaced,
    SourceUnavailable,
)
from laminar_dagster.core.offsets import MysqlIdentity, MysqlPosition
from laminar_dagster.core.plan import SourcePlan
from tests.integration.mysql_cdc.shop import CLOCK, NO_LIMIT, SOURCE, Shop


def purge(shop: Shop) -> None:
    """Everything but an empty new file."""
    shop.run("FLUSH BINARY LOGS")
    newest, _ = shop.log_end()
    # The server keeps a file for a moment that it has just handed out, or not yet synced.
    deadline = Deadline(30)
    while not deadline.is_over:
        shop.run(f"PURGE BINARY LOGS TO '{newest}'")
        if shop.run("SHOW BINARY LOGS")[0][0] == newest:
            return
        time.sleep(0.01)
    pytest.fail("it does not purge its log")


def test_a_purged_log_is_refused(shop: Shop) -> None:
    shop.plan()
    shop.insert([(1, "a")])
    plan = shop.plan()
    shop.insert([(2, "b")])
    purge(shop)
    with pytest.raises(RetentionExpired, match="no longer holds") as caught:
        shop.plan()
    assert "on_gap: snapshot" in caught.value.advice()
    with pytest.raises(RetentionExpired):
        shop.source().verify(plan)
    with pytest.raises(RetentionExpired):
        shop.source().check_seek(shop.ends[0])
    health = shop.source().health(shop.ends)
    assert health.headroom == 0.0


def test_a_purged_log_is_made_up_for_by_a_new_copy_where_that_was_asked_for(shop: Shop) -> None:
    shop.options["on_gap"] = "snapshot"
    shop.plan()
    shop.insert([(1, "a")])
    shop.epoch()
    shop.insert([(2, "b")])
    purge(shop)
    lost_at = shop.ends[0]
    plan = shop.plan()
    (gap,) = plan.gaps
    assert gap.lost.start == lost_at
    assert "snapshot 2" in gap.reason
    assert sorted(row["id"] for row in shop.read(plan).to_pylist()) == [1, 2]
    shop.insert([(3, "c")])
    assert [row["id"] for row in shop.epoch()] == [3]
    assert shop.plans[-1].gaps == ()


def test_a_log_that_was_reset_is_another_one(shop: Shop) -> None:
    shop.plan()
    shop.insert([(1, "a")])
    shop.plan()
    shop.reset_log()
    with pytest.raises(SourceReplaced):
        shop.plan()
    # The same places, the same bytes, in the same second: another log all the same.
    shop.run("DELETE FROM orders")
    for key in range(50):
        shop.insert([(key, "a")])
    with pytest.raises(SourceReplaced):
        shop.plan()
    with pytest.raises(SourceReplaced):
        shop.source().verify(shop.plans[-1])


def test_a_log_that_ends_before_what_was_read(shop: Shop) -> None:
    shop.plan()
    shop.insert([(1, "a")])
    end = shop.plan().ranges[0].end
    assert isinstance(end, MysqlPosition)
    beyond = MysqlPosition(binlog_file=end.binlog_file, binlog_position=end.binlog_position + 999)
    source = shop.source()
    with pytest.raises(SourceReplaced, match="ends at"):
        source.plan(shop.plans[-1], (beyond,), NO_LIMIT, CLOCK)
    with pytest.raises(SourceReplaced):
        source.check_seek(beyond)
    between = MysqlPosition(binlog_file=end.binlog_file, binlog_position=end.binlog_position - 5)
    with pytest.raises(SourceReplaced):
        source.check_seek(between)


def test_another_server(shop: Shop) -> None:
    shop.plan()
    shop.insert([(1, "a")])
    plan = shop.plan()
    assert isinstance(plan.identity, MysqlIdentity)
    if shop.is_mysql:
        # It has an identity of its own, whatever number it was given.
        ((own,),) = shop.run("SELECT @@server_uuid")
        assert plan.identity.server_uuid == own
        other = replace_identity(plan, "53b1bb1e-0000-11f0-8000-000000000000")
        with pytest.raises(SourceReplaced, match=own):
            shop.source().verify(other)
        with pytest.raises(SourceReplaced, match=own):
            shop.source().plan(other, shop.ends, NO_LIMIT, CLOCK)
        return
    assert plan.identity.server_uuid == "server_id 77"
    with (
        setting(shop, "server_id", "99", "77"),
        pytest.raises(SourceReplaced, match="server_id 99"),
    ):
        shop.plan()


@pytest.mark.parametrize(
    ("name", "value", "usual"),
    [
        ("binlog_format", "'MIXED'", "'ROW'"),
        ("binlog_row_image", "'MINIMAL'", "'FULL'"),
        ("binlog_row_metadata", "'MINIMAL'", "'FULL'"),
        ("compression", "ON", "OFF"),
    ],
)
def test_a_server_that_is_not_set_up(shop: Shop, name: str, value: str, usual: str) -> None:
    if name == "compression":
        name = "binlog_transaction_compression" if shop.is_mysql else "log_bin_compress"
    with setting(shop, name, value, usual):
        with pytest.raises(InvalidConfig, match=name) as caught:
            shop.plan()
        assert f"SET GLOBAL {name}" in caught.value.suggestion
        assert name in shop.source().health(()).message
    assert shop.keeper.newest() is None


def test_least_rights_are_enough_and_less_is_named(shop: Shop) -> None:
    shop.insert([(1, "a")])
    shop.run(
        "CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'long-enough-word'",
        f"GRANT SELECT ON {shop.database}.orders TO reader@'127.0.0.1'",
    )
    try:
        server = shop.source().reader().options.server
        shop.options["server"] = replace(server, user="reader", password="long-enough-word")
        with pytest.raises(AuthFailed, match="grant what is missing") as caught:
            shop.plan()
        assert "long-enough-word" not in str(caught.value)
        looks = "REPLICATION CLIENT, RELOAD" if shop.is_mysql else "BINLOG MONITOR"
        shop.run(f"GRANT REPLICATION SLAVE, {looks} ON *.* TO reader@'127.0.0.1'")
        if shop.is_mysql:
            with pytest.raises(AuthFailed, match="GRANT XA_RECOVER_ADMIN"):
                shop.plan()
            shop.run("GRANT XA_RECOVER_ADMIN ON *.* TO reader@'127.0.0.1'")
        assert [row["id"] for row in shop.epoch()] == [1]
        shop.insert([(2, "b")])
        assert [row["id"] for row in shop.epoch()] == [2]
        assert shop.source().health(shop.ends).healthy
    finally:
        shop.run("DROP USER reader@'127.0.0.1'")


def test_a_server_that_is_away(shop: Shop) -> None:
    server = Server("127.0.0.1", "d", "u", port=1, ssl_mode="disabled")
    shop.options["server"] = server
    with pytest.raises(SourceUnavailable, match=SOURCE):
        shop.plan()
    assert not shop.source().health(()).healthy


def test_lag_in_bytes_and_seconds(shop: Shop) -> None:
    shop.plan()
    assert shop.source().health(shop.ends).details["lag_bytes"] == "0"
    shop.insert([(1, "a" * 100)])
    health = shop.source().health(shop.ends)
    assert int(health.details["lag_bytes"]) > 100
    assert health.total_lag == int(health.details["lag_bytes"])
    assert 0 <= int(health.details["lag_seconds"]) < 3600
    shop.epoch()
    assert shop.source().health(shop.ends).total_lag == 0


def replace_identity(plan: SourcePlan, server: str) -> SourcePlan:
    """The plan, as if it had been made for another server."""
    assert isinstance(plan.identity, MysqlIdentity)
    identity = msgspec.structs.replace(plan.identity, server_uuid=server)
    return msgspec.structs.replace(plan, identity=identity)


@contextmanager
def setting(shop: Shop, name: str, value: str, usual: str) -> Iterator[None]:
    """Another value of a variable, for a while."""
    with closing(shop.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET GLOBAL {name} = {value}")
        try:
            yield
        finally:
            cursor.execute(f"SET GLOBAL {name} = {usual}")


def test_a_log_without_checksums_is_doubtful(shop: Shop) -> None:
    assert "binlog_checksum" not in shop.source().health(()).warning
    shop.run("SET GLOBAL binlog_checksum = 'NONE'")
    try:
        health = shop.source().health(())
    finally:
        shop.run("SET GLOBAL binlog_checksum = 'CRC32'")
    assert health.healthy
    assert "SET GLOBAL binlog_checksum = 'CRC32'" in health.warning
