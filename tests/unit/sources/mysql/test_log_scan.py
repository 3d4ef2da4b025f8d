"""How far an epoch may read a log, and what it may not pass over."""

from __future__ import annotations

import pytest

from laminar_dagster.core.errors import DecodeFailed, TableChanged
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.mysql.events import Kind
from tests.unit.sources.mysql.hand_made_log import HandMadeLog, query_body


def test_an_epoch_ends_where_a_transaction_does() -> None:
    log = HandMadeLog().transaction(1, 2)
    end = log.place
    log.query("BEGIN").rows(3)
    found = log.scan()
    assert ((found.file, found.position), found.changes) == (end, 1)


def test_the_case_of_a_name_counts_where_the_server_says_so() -> None:
    log = HandMadeLog().transaction(1, table=("Shop", "ORDERS"))
    assert log.scan().changes == 0
    found = log.scan(ignores_case=True)
    assert (found.changes, [*found.shapes]) == (1, ["shop.orders"])


# --- what cannot be read -------------------------------------------------------------------------

# A transaction in one event, and an event of which no transaction is a part.
WHOLE = [(Kind.GTID, Kind.TRANSACTION_PAYLOAD), (Kind.INCIDENT,), (Kind.COMPRESSED_QUERY,)]


@pytest.mark.parametrize("kinds", WHOLE)
def test_what_cannot_be_read_is_not_passed_over_at_the_end_of_a_file(
    kinds: tuple[Kind, ...],
) -> None:
    log = HandMadeLog()
    for kind in kinds:
        log.add(kind, bytes(42))
    log.add(Kind.ROTATE).new_file().transaction(1)
    with pytest.raises(DecodeFailed, match=r"b\.000001:"):
        log.scan()


@pytest.mark.parametrize("kinds", WHOLE)
def test_what_cannot_be_read_is_found_where_the_log_ends(kinds: tuple[Kind, ...]) -> None:
    """And the epoch before it ends before it."""
    log = HandMadeLog().transaction(1)
    end = log.place
    for kind in kinds:
        log.add(kind, bytes(42))
    found = log.scan()
    assert ((found.file, found.position), found.changes) == (end, 1)
    log.events = log.events[4:]
    with pytest.raises(DecodeFailed):
        log.scan()


def test_compressed_rows_are_refused_once_their_transaction_ends() -> None:
    log = HandMadeLog().query("BEGIN").add(Kind.COMPRESSED_QUERY).add(Kind.COMPRESSED_WRITE)
    # A server that died leaves nothing that was ever committed.
    assert log.scan().changes == 0
    log.add(Kind.XID, bytes(8)).new_file()
    with pytest.raises(DecodeFailed, match="log_bin_compress"):
        log.scan()


@pytest.mark.parametrize("kind", [Kind.COMPRESSED_WRITE, Kind.PARTIAL_UPDATE])
def test_a_transaction_without_an_end_is_not_refused(kind: Kind) -> None:
    log = HandMadeLog().transaction(1).query("BEGIN").add(kind).new_file().transaction(2)
    found = log.scan()
    assert ((found.file, found.position), found.changes) == (log.place, 2)


# --- files of more than 4 GiB --------------------------------------------------------------------


def test_an_epoch_does_not_end_where_no_request_can_begin() -> None:
    log = HandMadeLog().transaction(1)
    first = log.place
    log.position = 2**32 - 50
    log.transaction(2, 3).transaction(4)
    found = log.scan()
    assert ((found.file, found.position), found.changes) == (first, 1)
    # What has no end when the file has one is no part of it.
    log.query("BEGIN").rows(666).new_file()
    found = log.scan()
    assert (found.file, found.position, found.changes) == ("b.000002", 4, 3)
    # They are taken together, or not at all.
    found = log.scan(limits=Admission(max_records=3))
    assert ((found.file, found.position), found.changes) == (first, 1)
    found = log.scan(limits=Admission(max_records=4))
    assert (found.file, found.position, found.changes) == ("b.000002", 4, 3)


def test_what_cannot_be_read_beyond_is_refused() -> None:
    log = HandMadeLog()
    log.position = 2**32
    log.transaction(1).query("TRUNCATE orders").new_file()
    with pytest.raises(TableChanged, match="TRUNCATE"):
        log.scan()


# --- statements ----------------------------------------------------------------------------------


def test_a_file_that_was_loaded_as_a_statement_is_refused() -> None:
    body = query_body("LOAD DATA LOCAL INFILE 'x' IGNORE INTO TABLE `orders` FIELDS")
    log = HandMadeLog().query("BEGIN").add(Kind.EXECUTE_LOAD, body[:13] + bytes(13) + body[13:])
    log.add(Kind.XID, bytes(8))
    with pytest.raises(TableChanged, match="binlog_format"):
        log.scan()


# --- savepoints ----------------------------------------------------------------------------------


def test_changes_that_a_savepoint_took_back_are_refused() -> None:
    log = HandMadeLog().query("BEGIN").rows(1).query("SAVEPOINT `s`").rows(2)
    log.query("ROLLBACK TO `s`").add(Kind.XID, bytes(8))
    with pytest.raises(DecodeFailed, match="ROLLBACK TO"):
        log.scan()


def test_changes_before_a_savepoint_stay() -> None:
    log = HandMadeLog().query("BEGIN").rows(1).query("SAVEPOINT `s`")
    log.rows(2, table=("shop", "others")).query("ROLLBACK TO `s`").rows(3)
    log.query("COMMIT")
    assert log.scan().changes == 2
    # Without a savepoint in the log, it stood before all of it.
    log.query("BEGIN").rows(4).query("ROLLBACK TO `s`").query("COMMIT")
    log.events = log.events[-5:]
    with pytest.raises(DecodeFailed, match="ROLLBACK TO"):
        log.scan()
