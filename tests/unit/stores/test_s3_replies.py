"""What the S3 store makes of a server's replies, good and bad."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from botocore.exceptions import ClientError

from laminar_dagster.core.errors import (
    AuthFailed,
    ConditionsIgnored,
    InvalidConfig,
    LaminarError,
    ObjectExists,
    ObjectMissing,
    ServiceFailed,
    StoreUnavailable,
    WriteOutcomeUnknown,
)
from laminar_dagster.stores.read_back import Backoff
from laminar_dagster.stores.s3 import S3Store
from tests.unit.stores.fake_s3 import Answer, Behaviour, fake_s3

pytestmark = pytest.mark.slow


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Behaviour]]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with fake_s3() as running:
        yield running


@pytest.fixture
def behaviour(server: tuple[str, Behaviour]) -> Behaviour:
    return server[1]


@pytest.fixture
def store(server: tuple[str, Behaviour]) -> Iterator[S3Store]:
    store = S3Store(
        "bucket",
        endpoint_url=server[0],
        region="us-east-1",
        first_pause=0.001,
        max_attempts=3,
        part_size=1000,
    )
    yield store
    store.close()


def test_the_probe_passes_a_server_that_honours_conditions(
    store: S3Store, behaviour: Behaviour
) -> None:
    store.probe()
    assert behaviour.objects == {}


def test_the_probe_refuses_a_server_that_ignores_if_none_match(
    store: S3Store, behaviour: Behaviour
) -> None:
    behaviour.ignores_if_none_match = True
    with pytest.raises(ConditionsIgnored, match="second conditional create"):
        store.probe()
    assert behaviour.objects == {}


def test_the_probe_refuses_a_server_that_ignores_if_match(
    store: S3Store, behaviour: Behaviour
) -> None:
    behaviour.ignores_if_match = True
    with pytest.raises(ConditionsIgnored, match="does not exist was replaced"):
        store.probe()
    assert behaviour.objects == {}


def test_the_probe_refuses_a_server_that_does_not_know_conditions(
    store: S3Store, behaviour: Behaviour
) -> None:
    behaviour.put_answers = [Answer(501, "NotImplemented")]
    with pytest.raises(ConditionsIgnored, match="does not know"):
        store.probe()


def test_a_conflict_of_concurrent_requests_is_tried_again(
    store: S3Store, behaviour: Behaviour
) -> None:
    behaviour.put_answers = [Answer(409, "ConditionalRequestConflict")] * 2
    store.create("a", b"mine")
    assert behaviour.objects == {"a": b"mine"}
    assert behaviour.requests == ["PUT", "GET", "PUT", "GET", "PUT"]


def test_conflicts_without_end_wrote_nothing(store: S3Store, behaviour: Behaviour) -> None:
    behaviour.put_answers = [Answer(409, "ConditionalRequestConflict")] * 3
    with pytest.raises(StoreUnavailable, match="keep conflicting"):
        store.create("a", b"mine")
    assert behaviour.objects == {}


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_error_after_the_write_is_a_success(
    store: S3Store, behaviour: Behaviour, status: int
) -> None:
    behaviour.put_answers = [Answer(status, "InternalError", carried_out=True)]
    store.create("a", b"mine")
    assert behaviour.objects == {"a": b"mine"}
    assert behaviour.requests == ["PUT", "GET"]


@pytest.mark.parametrize(("status", "error"), [(400, ServiceFailed), (502, WriteOutcomeUnknown)])
def test_a_reply_that_is_no_xml_does_not_tell(
    store: S3Store, behaviour: Behaviour, status: int, error: type[LaminarError]
) -> None:
    behaviour.put_answers = [Answer(status, "garbage", carried_out=True)]
    store.create("a", b"mine")
    assert behaviour.objects == {"a": b"mine"}
    behaviour.put_answers = [Answer(status, "garbage")] * 3
    with pytest.raises(error):
        store.create("b", b"mine")


def test_an_endpoint_that_is_no_host_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="Invalid endpoint"):
        S3Store("bucket", endpoint_url="http://a b", region="us-east-1").read("a")


def test_a_server_error_without_end_is_unknown(store: S3Store, behaviour: Behaviour) -> None:
    behaviour.put_answers = [Answer(500, "InternalError")] * 3
    with pytest.raises(WriteOutcomeUnknown, match="InternalError"):
        store.create("a", b"mine")
    assert behaviour.requests == ["PUT", "GET"] * 3


def test_refused_credentials_after_an_unanswered_request_are_unknown(
    store: S3Store, behaviour: Behaviour
) -> None:
    behaviour.put_answers = [Answer(500, "InternalError"), Answer(403, "ExpiredToken")]
    with pytest.raises(WriteOutcomeUnknown, match=r"InternalError.*ExpiredToken"):
        store.create("a", b"mine")


def test_a_condition_that_fails_on_an_unreadable_object_is_unknown(
    store: S3Store, behaviour: Behaviour
) -> None:
    behaviour.objects["a"] = b"mine or theirs"
    behaviour.get_answers = [Answer(403, "AccessDenied")] * 3
    with pytest.raises(WriteOutcomeUnknown, match="AccessDenied"):
        store.create("a", b"mine")


def test_a_write_is_sent_once_before_it_is_read_back(store: S3Store, behaviour: Behaviour) -> None:
    """Retries hidden in the client would make the outcome of each request unknowable."""
    behaviour.put_answers = [Answer(503, "SlowDown", carried_out=True)]
    behaviour.objects["other"] = b""
    store.create("a", b"mine")
    assert behaviour.requests == ["PUT", "GET"]


def test_replacing_what_is_gone_is_refused(store: S3Store, behaviour: Behaviour) -> None:
    with pytest.raises(ObjectExists):
        store.replace("a", b"mine", '"version"')
    assert behaviour.objects == {}


def test_bodies_that_are_cut_short_are_read_again(
    store: S3Store, behaviour: Behaviour, tmp_path: Path
) -> None:
    data = bytes(range(256)) * 20
    behaviour.objects = {"small": data[:900], "large": data}
    for key, wanted in behaviour.objects.items():
        behaviour.truncated_bodies = 2
        assert store.read(key) == wanted
        behaviour.truncated_bodies = 2
        assert store.read_range(key, 100, 200) == wanted[100:300]
        behaviour.truncated_bodies = 2
        store.download(key, tmp_path / key)
        assert (tmp_path / key).read_bytes() == wanted


def test_bodies_that_are_always_cut_short_are_reported(
    store: S3Store, behaviour: Behaviour, tmp_path: Path
) -> None:
    behaviour.objects = {"small": bytes(900), "large": bytes(5000)}
    for key in behaviour.objects:
        behaviour.truncated_bodies = 1000
        with pytest.raises(StoreUnavailable):
            store.read(key)
        with pytest.raises(StoreUnavailable):
            store.download(key, tmp_path / key)
    assert [*tmp_path.iterdir()] == []


def test_a_server_that_ignores_ranges_is_understood(store: S3Store, behaviour: Behaviour) -> None:
    behaviour.ignores_range = True
    data = bytes(range(256)) * 20
    behaviour.objects = {"a": data}
    assert store.read("a") == data
    assert store.read_range("a", 100, 200) == data[100:300]
    assert store.read_range("a", 6000, 1) == b""


def test_an_object_that_never_stays_the_same_is_reported(
    store: S3Store, behaviour: Behaviour, tmp_path: Path
) -> None:
    behaviour.objects = {"a": bytes(range(256)) * 20}
    behaviour.changes_after_each_read = True
    with pytest.raises(StoreUnavailable, match="changes while it is read"):
        store.read("a")
    with pytest.raises(StoreUnavailable, match="changes while it is read"):
        store.download("a", tmp_path / "a")
    assert [*tmp_path.iterdir()] == []


def test_an_upload_that_the_clients_own_retry_found_finished_is_repeated(
    store: S3Store, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents: list[bytes] = []

    def upload(content: BinaryIO, *_: Any, **__: Any) -> None:
        contents.append(content.read())
        content.close()
        if len(contents) < 3:
            raise ClientError({"Error": {"Code": "NoSuchUpload"}}, "CompleteMultipartUpload")

    monkeypatch.setattr(store._clients.retrying, "upload_fileobj", upload)
    store.put("a", bytes(5000))
    assert contents == [bytes(5000)] * 3
    contents[:] = []
    monkeypatch.setattr(store, "_backoff", Backoff(attempts=2, first=0.001))
    with pytest.raises(StoreUnavailable, match="NoSuchUpload"):
        store.put("a", bytes(5000))


def test_keys_that_could_not_be_deleted_are_tried_again(
    store: S3Store, behaviour: Behaviour
) -> None:
    behaviour.objects = {"a": b"", "b": b"", "c": b""}
    behaviour.delete_errors = [{"a": "InternalError", "b": "SlowDown"}, {"b": "SlowDown"}]
    store.delete(["a", "b", "c"])
    assert behaviour.objects == {}
    assert behaviour.requests == ["POST"] * 3


def test_keys_that_cannot_be_deleted_are_reported(store: S3Store, behaviour: Behaviour) -> None:
    behaviour.objects = {"a": b"", "b": b""}
    behaviour.delete_errors = [{"b": "InternalError"}] * 3
    with pytest.raises(StoreUnavailable, match="deleting b: InternalError"):
        store.delete(["a", "b"])
    behaviour.delete_errors = [{"b": "AccessDenied"}]
    with pytest.raises(AuthFailed, match="deleting b: AccessDenied"):
        store.delete(["b"])
    behaviour.delete_errors = [{"gone": "NoSuchKey"}]
    store.delete(["gone"])


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (404, "NoSuchKey", ObjectMissing),
        (404, "NoSuchBucket", InvalidConfig),
        (403, "AccessDenied", AuthFailed),
        (403, "RequestTimeTooSkewed", AuthFailed),
        (401, "Unauthorized", AuthFailed),
        (400, "ExpiredToken", AuthFailed),
        (400, "InvalidToken", AuthFailed),
        (400, "BadRequest", ServiceFailed),
        (400, "RequestTimeout", StoreUnavailable),
        (429, "Unheard", StoreUnavailable),
        (500, "InternalError", StoreUnavailable),
        (503, "SlowDown", StoreUnavailable),
    ],
)
def test_errors_have_their_names(
    store: S3Store, behaviour: Behaviour, status: int, code: str, error: type[LaminarError]
) -> None:
    behaviour.get_answers = [Answer(status, code)] * 3
    with pytest.raises(error):
        store.read("a")
