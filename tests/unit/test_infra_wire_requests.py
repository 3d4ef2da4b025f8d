"""Requests as they are on the wire, told apart."""

from __future__ import annotations

import struct

from infra.wire_requests import (
    is_encrypted_mysql_commit,
    is_kafka_end_txn,
    is_mysql_commit,
    is_postgres_commit,
    kafka_kinds,
)


def test_a_commit_of_postgres() -> None:
    assert is_postgres_commit(b"Q\0\0\0\x0bCOMMIT\0")
    assert not is_postgres_commit(b"Q\0\0\0\x0dROLLBACK\0")


def test_a_commit_of_mysql() -> None:
    assert is_mysql_commit(b"\x07\0\0\0\x03COMMIT")
    assert not is_mysql_commit(b"\x09\0\0\0\x03ROLLBACK")
    assert not is_mysql_commit(b"\x07\0\0\0\x16COMMIT")
    assert not is_mysql_commit(b"\x01\0\0\0\x0e")


def test_a_commit_of_mysql_inside_of_tls() -> None:
    """A record is as long as its request, the kind of it and a tag together."""
    assert is_encrypted_mysql_commit(b"\x17\x03\x03\0\x1c" + bytes(28))
    assert not is_encrypted_mysql_commit(b"\x17\x03\x03\0\x1e" + bytes(30))
    assert not is_encrypted_mysql_commit(b"\x16\x03\x03\0\x1c" + bytes(28))
    assert not is_encrypted_mysql_commit(b"\x17\x03\x03\0\x1c" + bytes(60))


def kafka(key: int, body: bytes = b"\0\0\0\1bank") -> bytes:
    return struct.pack(">ihh", 4 + len(body), key, 3) + body


def test_the_end_of_a_transaction_of_kafka() -> None:
    assert is_kafka_end_txn(kafka(26))
    assert not is_kafka_end_txn(kafka(24))
    assert not is_kafka_end_txn(b"")


def test_also_behind_another_request_and_not_inside_one() -> None:
    assert is_kafka_end_txn(kafka(24) + kafka(26))
    assert not is_kafka_end_txn(kafka(0, b"x" * 20 + kafka(26)))


def test_all_that_a_piece_asks_for() -> None:
    assert kafka_kinds(kafka(3) + kafka(10)) == {3, 10}
    assert kafka_kinds(kafka(0, b"x" * 20 + kafka(10))) == {0}


def test_what_is_no_request_of_kafka_is_none() -> None:
    assert not is_kafka_end_txn(b"\xff" * 30)
    assert not is_kafka_end_txn(struct.pack(">ihh", 5000, 26, 3))
