"""A launcher's end of the wire: replies in order, and the loss of a keeper."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from laminar_dagster.orchestration.warm.connection import ConnectionLost, KeeperConnection
from laminar_dagster.orchestration.warm.protocol import (
    Accepted,
    Ask,
    Lines,
    Request,
    Submit,
    Unknown,
    line,
    news,
    orders,
    replies,
    requests,
)

Serve = Callable[[Callable[[socket.socket], None]], Path]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Something that listens, once, and does what the test says."""
    monkeypatch.chdir(tmp_path)
    path = Path("s")
    listener = socket.socket(socket.AF_UNIX)
    threads = []

    def start(answer: Callable[[socket.socket], None]) -> Path:
        listener.bind(str(path))
        listener.listen()

        def accept() -> None:
            peer, _ = listener.accept()
            with peer:
                answer(peer)

        thread = threading.Thread(target=accept)
        thread.start()
        threads.append(thread)
        return path

    yield start
    for thread in threads:
        thread.join(5)
    listener.close()


def hear(peer: socket.socket, count: int) -> list[Request | None]:
    lines = Lines(peer)
    heard = [lines.next(requests) for _ in range(count)]
    lines.close()
    return heard


def no_loss() -> None:
    raise AssertionError("nothing was lost")


def test_each_request_has_its_reply(serve: Serve) -> None:
    def answer(peer: socket.socket) -> None:
        lines = Lines(peer)
        assert lines.next(requests) == Submit(run_id="a")
        peer.sendall(line(Accepted(worker_pid=7, ahead=0)))
        assert lines.next(requests) == Ask(run_id="b")
        peer.sendall(line(Unknown()))
        assert lines.next(requests) is None
        lines.close()

    connection = KeeperConnection(serve(answer), no_loss)

    assert connection.ask(Submit(run_id="a"), 5) == Accepted(worker_pid=7, ahead=0)
    assert connection.ask(Ask(run_id="b"), 5) == Unknown()
    connection.close()
    assert not connection.is_open


def test_a_keeper_that_goes_away_is_noticed_without_asking(serve: Serve) -> None:
    lost = threading.Event()
    connection = KeeperConnection(serve(lambda peer: None), lost.set)

    assert lost.wait(5)
    assert not connection.is_open
    with pytest.raises(ConnectionLost):
        connection.ask(Ask(run_id="a"), 5)
    connection.close()


@pytest.mark.parametrize("last_words", [b"", b'{"type":"Unknown"}', b"nonsense\n"])
def test_a_reply_that_never_came_whole_is_none(serve: Serve, last_words: bytes) -> None:
    def answer(peer: socket.socket) -> None:
        hear(peer, 1)
        peer.sendall(last_words)

    lost = threading.Event()
    connection = KeeperConnection(serve(answer), lost.set)

    with pytest.raises(ConnectionLost):
        connection.ask(Ask(run_id="a"), 5)
    assert lost.wait(5)
    connection.close()


def test_a_reply_that_is_late_is_not_taken_for_another(serve: Serve) -> None:
    connection = KeeperConnection(serve(lambda peer: assert_ended(peer)), no_loss)

    with pytest.raises(ConnectionLost, match="no reply within"):
        connection.ask(Ask(run_id="a"), 0.05)
    assert not connection.is_open


def assert_ended(peer: socket.socket) -> None:
    heard = hear(peer, 2)
    assert heard == [Ask(run_id="a"), None]


def test_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match="No such file"):
        KeeperConnection(Path("s"), no_loss)


@pytest.mark.parametrize("decoder", [requests, replies, orders, news])
@pytest.mark.parametrize("text", [b"{}", b"[]", b'{"type":"Submit"}', b'{"type":"Other"}', b"\xff"])
def test_foreign_words_are_refused(decoder: msgspec.json.Decoder[object], text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decoder.decode(text)
