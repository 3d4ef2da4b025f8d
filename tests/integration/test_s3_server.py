"""The S3 server's promises that the store adapter relies on, and the life of a service."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from infra import service
from infra.errors import ServiceFailed
from infra.ports import free_port, is_listening
from infra.s3 import S3, S3Endpoint
from tests.services.faulty_wire import WireFactory
from tests.services.s3 import connect

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.service("s3")


def refused_with(status: int, request: Callable[[], object]) -> bool:
    with pytest.raises(ClientError) as caught:
        request()
    return caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def read(client: S3Client, bucket: str, key: str) -> bytes:
    return client.get_object(Bucket=bucket, Key=key)["Body"].read()


def test_create_only_if_absent(s3_client: S3Client, s3_bucket: str) -> None:
    s3_client.put_object(Bucket=s3_bucket, Key="a/b", Body=b"first", IfNoneMatch="*")
    assert refused_with(
        412,
        lambda: s3_client.put_object(Bucket=s3_bucket, Key="a/b", Body=b"2nd", IfNoneMatch="*"),
    )
    assert read(s3_client, s3_bucket, "a/b") == b"first"


def test_replace_only_if_unchanged(s3_client: S3Client, s3_bucket: str) -> None:
    first = s3_client.put_object(Bucket=s3_bucket, Key="k", Body=b"1")["ETag"]
    s3_client.put_object(Bucket=s3_bucket, Key="k", Body=b"2", IfMatch=first)
    assert refused_with(
        412, lambda: s3_client.put_object(Bucket=s3_bucket, Key="k", Body=b"3", IfMatch=first)
    )
    assert read(s3_client, s3_bucket, "k") == b"2"


@pytest.mark.parametrize("round_", range(5))
def test_of_many_concurrent_creates_one_wins(
    s3_client: S3Client, s3_bucket: str, round_: int
) -> None:
    writers = 8
    together = threading.Barrier(writers)

    def create(writer: int) -> bool:
        together.wait()
        try:
            s3_client.put_object(
                Bucket=s3_bucket, Key="plan.json", Body=b"%d" % writer, IfNoneMatch="*"
            )
        except ClientError:
            return False
        return True

    with ThreadPoolExecutor(writers) as pool:
        won = list(pool.map(create, range(writers)))
    assert won.count(True) == 1
    assert read(s3_client, s3_bucket, "plan.json") == b"%d" % won.index(True)


def test_a_swallowed_reply_leaves_the_object_written(
    s3_service: S3Endpoint, s3_client: S3Client, s3_bucket: str, faulty_wire: WireFactory
) -> None:
    wire = faulty_wire(s3_service.host, s3_service.port)
    client = connect(s3_service, url=wire.url)
    wire.swallow_next_reply(when=lambda request: request.startswith(b"PUT"))
    with pytest.raises(ConnectionClosedError):
        client.put_object(Bucket=s3_bucket, Key="k", Body=b"written", IfNoneMatch="*")
    client.close()
    assert wire.swallowed == 1
    assert read(s3_client, s3_bucket, "k") == b"written"


def test_a_request_cut_on_the_way_leaves_nothing(
    s3_service: S3Endpoint, s3_client: S3Client, s3_bucket: str, faulty_wire: WireFactory
) -> None:
    wire = faulty_wire(s3_service.host, s3_service.port)
    client = connect(s3_service, url=wire.url)
    wire.cut_next_request(when=lambda request: request.startswith(b"PUT"))
    with pytest.raises(ConnectionClosedError):
        client.put_object(Bucket=s3_bucket, Key="k", Body=b"never", IfNoneMatch="*")
    client.close()
    assert s3_client.list_objects_v2(Bucket=s3_bucket)["KeyCount"] == 0


def test_it_listens_on_loopback_only(s3_service: S3Endpoint) -> None:
    assert s3_service.host == "127.0.0.1"
    own_addresses = {
        str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    }
    # Another loopback address tells as well: a server bound to every address answers there.
    for address in {"127.0.0.2"} | own_addresses - {"127.0.0.1"}:
        assert not is_listening(s3_service.port, address)


def test_secrets_are_neither_on_the_command_line_nor_in_the_representation(
    tmp_path: Path,
) -> None:
    with S3() as server:
        endpoint = server.start(tmp_path)
        command_line = Path(f"/proc/{server.identity.pid}/cmdline").read_bytes()
    assert endpoint.secret_key not in repr(endpoint)
    assert endpoint.secret_key.encode() not in command_line


def test_two_servers_run_side_by_side_and_stop(tmp_path: Path) -> None:
    with S3() as one, S3() as two:
        first, second = one.start(tmp_path / "1"), two.start(tmp_path / "2")
        assert first.port != second.port
        assert first.secret_key != second.secret_key
        connect(first).create_bucket(Bucket="only-in-first")
        assert connect(second).list_buckets()["Buckets"] == []
        one.stop()
        assert not is_listening(first.port)
        assert is_listening(second.port)
    assert not is_listening(second.port)


def test_a_port_taken_in_between_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        taken = squatter.getsockname()[1]
        offered = iter([taken, taken])
        monkeypatch.setattr(service, "free_port", lambda: next(offered, None) or free_port())
        with S3() as server:
            assert server.start(tmp_path).port != taken


def test_a_failed_start_shows_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGW_CERT", str(tmp_path / "no-such-certificate"))
    with S3() as server, pytest.raises(ServiceFailed, match="TLS"):
        server.start(tmp_path)
