"""The S3 store: the contract against a real server, and what it makes of a broken wire."""

from __future__ import annotations

import os
import pickle
import random
import socket
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from infra.s3 import S3Endpoint
from laminar_dagster.core.errors import (
    AuthFailed,
    InvalidConfig,
    InvalidName,
    LaminarError,
    MalformedDocument,
    ObjectExists,
    ObjectMissing,
    StoreUnavailable,
    WriteOutcomeUnknown,
)
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.stores.s3 import S3Store
from laminar_dagster.stores.url import open_store
from laminar_dagster.testing.store_contract import ObjectStoreContract
from tests.services.faulty_wire import FaultyWire, WireFactory

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.service("s3")

LATER = timedelta(days=1)
MEBIBYTE = 1024 * 1024


@pytest.fixture(autouse=True)
def credentials(s3_service: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's credentials where boto3 looks for them, and nothing else there."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_service.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


class Stores:
    """Makes stores on one bucket, and closes them."""

    def __init__(self, bucket: str, endpoint: str) -> None:
        self.bucket = bucket
        self.endpoint = endpoint
        self.made: list[S3Store] = []

    def __call__(self, prefix: str = "base", **options: Any) -> S3Store:
        settings: dict[str, Any] = {
            "endpoint_url": self.endpoint,
            "first_pause": 0.001,
            "max_attempts": 3,
        }
        store = S3Store(options.pop("bucket", self.bucket), prefix, **settings | options)
        self.made.append(store)
        return store


@pytest.fixture
def stores(s3_bucket: str, s3_service: S3Endpoint) -> Iterator[Stores]:
    stores = Stores(s3_bucket, s3_service.url)
    yield stores
    for store in stores.made:
        store.close()


@pytest.fixture
def wire(faulty_wire: WireFactory, s3_service: S3Endpoint) -> FaultyWire:
    return faulty_wire(s3_service.host, s3_service.port)


class TestS3Store(ObjectStoreContract):
    @pytest.fixture
    def store(self, stores: Stores) -> ObjectStore:
        return stores()

    @pytest.fixture
    def sibling(self, stores: Stores) -> ObjectStore:
        return stores("/base/")


class TestS3StoreAtTheRootOfABucket(ObjectStoreContract):
    many = 30

    @pytest.fixture
    def store(self, stores: Stores) -> ObjectStore:
        return stores("")

    @pytest.fixture
    def sibling(self, stores: Stores) -> ObjectStore:
        return stores("/")


# --- a broken wire --------------------------------------------------------------------------------


def is_put(request: bytes) -> bool:
    return request.startswith(b"PUT ")


def is_get(request: bytes) -> bool:
    return request.startswith(b"GET ")


def is_post(request: bytes) -> bool:
    return request.startswith(b"POST ")


def test_a_create_whose_reply_is_lost_succeeds(stores: Stores, wire: FaultyWire) -> None:
    store = stores(endpoint_url=wire.url)
    wire.swallow_next_reply(when=is_put)
    store.create("a", b"mine")
    assert wire.swallowed == 1
    assert [(info.key, info.size) for info in stores().list("")] == [("a", 4)]
    assert stores().read("a") == b"mine"


def test_a_create_whose_request_is_lost_is_sent_again(stores: Stores, wire: FaultyWire) -> None:
    store = stores(endpoint_url=wire.url)
    wire.cut_next_request(when=is_put)
    store.create("a", b"mine")
    assert wire.cuts == 1
    assert stores().read("a") == b"mine"


def test_a_lost_reply_does_not_hide_a_lost_race(stores: Stores, wire: FaultyWire) -> None:
    stores().create("a", b"theirs")
    wire.swallow_next_reply(when=is_put)
    with pytest.raises(ObjectExists):
        stores(endpoint_url=wire.url).create("a", b"mine")
    assert wire.swallowed == 1
    assert stores().read("a") == b"theirs"


def test_a_create_that_cannot_be_read_back_is_unknown(stores: Stores, wire: FaultyWire) -> None:
    store = stores(endpoint_url=wire.url, max_attempts=1)
    wire.swallow_next_reply(when=is_put)
    wire.cut_next_request(when=is_get)
    with pytest.raises(WriteOutcomeUnknown):
        store.create("a", b"mine")
    assert (wire.swallowed, wire.cuts) == (1, 2)
    assert stores().read("a") == b"mine"


def test_a_create_that_was_not_there_when_read_back_is_unknown(
    stores: Stores, wire: FaultyWire
) -> None:
    """The request may still be under way to the server."""
    wire.cut_next_request(when=is_put)
    with pytest.raises(WriteOutcomeUnknown):
        stores(endpoint_url=wire.url, max_attempts=1).create("a", b"mine")
    assert stores().read_versioned("a") is None


def test_a_replace_whose_reply_is_lost_succeeds(stores: Stores, wire: FaultyWire) -> None:
    store = stores(endpoint_url=wire.url)
    store.create("a", b"1")
    found = store.read_versioned("a")
    assert found is not None
    wire.swallow_next_reply(when=is_put)
    store.replace("a", b"2", found.version)
    assert wire.swallowed == 1
    assert stores().read("a") == b"2"


def test_a_replace_whose_request_is_lost_is_sent_again(stores: Stores, wire: FaultyWire) -> None:
    store = stores(endpoint_url=wire.url)
    store.create("a", b"1")
    found = store.read_versioned("a")
    assert found is not None
    wire.cut_next_request(when=is_put)
    store.replace("a", b"2", found.version)
    assert stores().read("a") == b"2"


def test_racing_creates_on_a_wire_that_keeps_losing_replies_have_one_winner(
    stores: Stores, wire: FaultyWire
) -> None:
    for _ in range(12):
        wire.swallow_next_reply(when=is_put, quiet=0.02)
        wire.cut_next_request(when=is_put)
    racers = [stores(endpoint_url=wire.url, max_attempts=8) for _ in range(6)]
    start = threading.Barrier(len(racers))

    def race(number: int) -> bytes | None:
        data = f"writer {number}".encode()
        start.wait()
        try:
            racers[number].create("a", data)
        except ObjectExists:
            return None
        return data

    with ThreadPoolExecutor(len(racers)) as pool:
        winners = [data for data in pool.map(race, range(len(racers))) if data is not None]
    assert wire.swallowed > 0
    assert winners == [stores().read("a")]


def test_a_server_that_is_away_is_reported(stores: Stores, wire: FaultyWire) -> None:
    store = stores(endpoint_url=wire.url)
    wire.refuse()
    for call in (
        # Refused connections leave no doubt: nothing was written.
        lambda: store.create("a", b"1"),
        lambda: store.replace("a", b"1", '"version"'),
        lambda: store.put("a", b"1"),
        lambda: store.read("a"),
        lambda: store.read_range("a", 0, 1),
        lambda: [*store.list("")],
        lambda: [*store.list_folders("")],
        lambda: store.delete(["a"]),
        lambda: store.sweep(datetime.now(UTC)),
        lambda: store.probe(),
    ):
        with pytest.raises(StoreUnavailable):
            call()
    wire.restore()
    store.create("a", b"1")
    assert store.read("a") == b"1"


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_server_that_never_answers_times_out(stores: Stores, silent_server: str) -> None:
    store = stores(endpoint_url=silent_server, read_timeout=0.2, max_attempts=2)
    with pytest.raises(StoreUnavailable):
        store.read("a")
    with pytest.raises(WriteOutcomeUnknown):
        store.create("a", b"1")


def test_a_read_that_breaks_in_the_middle_is_read_again(stores: Stores, wire: FaultyWire) -> None:
    data = random.Random(3).randbytes(3 * MEBIBYTE)
    stores().put("a", data)
    wire.swallow_next_reply(when=is_get)
    assert (stores(endpoint_url=wire.url).read("a") == data) is True
    assert wire.swallowed == 1


@pytest.mark.parametrize("fault", ["swallow", "cut"])
def test_an_upload_in_parts_survives_the_loss_of_its_last_reply(
    stores: Stores, wire: FaultyWire, fault: str
) -> None:
    data = random.Random(4).randbytes(11 * MEBIBYTE)

    def completes(request: bytes) -> bool:
        return is_post(request) and b"uploadId=" in request.split(b"\r\n")[0]

    if fault == "swallow":
        wire.swallow_next_reply(when=completes)
    else:
        wire.cut_next_request(when=completes)
    stores(endpoint_url=wire.url, part_size=5 * MEBIBYTE).put("a", data)
    assert wire.cuts == 1
    assert (stores().read("a") == data) is True


# --- requests -------------------------------------------------------------------------------------


class Requests:
    """The requests a store sends, and how many are under way at once."""

    def __init__(self, store: S3Store) -> None:
        self.names: list[str] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        for client in (store._clients.retrying, store._clients.single):
            client.meta.events.register("before-send.s3", self._before)
            client.meta.events.register("response-received.s3", self._after)
        self.together: threading.Barrier | None = None

    def _before(self, event_name: str, **_: Any) -> None:
        with self._lock:
            self.names.append(event_name.rpartition(".")[2])
            self._now += 1
            self.most = max(self.most, self._now)
        if self.together is not None:
            self.together.wait()

    def _after(self, **_: Any) -> None:
        with self._lock:
            self._now -= 1


def test_a_listing_takes_one_request_for_a_thousand_names(stores: Stores) -> None:
    store = stores()
    with ThreadPoolExecutor(16) as pool:
        [*pool.map(lambda n: store.put(f"f/{n:04d}/x", b""), range(1001))]
    requests = Requests(store)
    assert len([*store.list("f/")]) == 1001
    assert requests.names == ["ListObjectsV2"] * 2
    requests.names.clear()
    assert len([*store.list("f/", start_after="f/0000/x")]) == 1000
    assert requests.names == ["ListObjectsV2"]
    requests.names.clear()
    assert len([*store.list_folders("f/")]) == 1001
    assert requests.names == ["ListObjectsV2"] * 2
    requests.names.clear()
    store.delete([f"f/{n:04d}/x" for n in range(1001)])
    assert requests.names == ["DeleteObjects"] * 2
    requests.names.clear()
    store.delete([])
    assert requests.names == []


def test_a_small_object_takes_one_request(stores: Stores) -> None:
    store = stores()
    requests = Requests(store)
    store.create("a", b"1")
    store.read("a")
    store.read_versioned("a")
    store.read_range("a", 0, 1)
    assert requests.names == ["PutObject", "GetObject", "GetObject", "GetObject"]


def test_many_objects_are_read_side_by_side_but_not_all_at_once(stores: Stores) -> None:
    store = stores()
    store.put("a", b"x")
    taken: list[str] = []

    def keys() -> Iterator[str]:
        for key in ["a"] * 100:
            taken.append(key)
            yield key

    requests = Requests(store)
    # Nobody passes before sixteen are under way; a reader that sends fewer would never end.
    requests.together = threading.Barrier(16, action=lambda: setattr(requests, "together", None))
    found = store.read_many(keys())
    assert next(found) == ("a", b"x")
    assert len(taken) == 16
    assert [*found] == [("a", b"x")] * 99
    assert requests.most == 16


def test_an_object_over_the_limit_is_not_fetched(stores: Stores, wire: FaultyWire) -> None:
    stores().put("a", bytes(30 * MEBIBYTE))
    store = stores(endpoint_url=wire.url)
    requests = Requests(store)
    with pytest.raises(MalformedDocument):
        store.read("a", limit=1000)
    assert requests.names == ["GetObject"]


def test_a_large_object_that_is_replaced_while_it_is_read_is_not_spliced(stores: Stores) -> None:
    old, new = b"o" * (3 * MEBIBYTE), b"n" * (3 * MEBIBYTE)
    store = stores(part_size=MEBIBYTE)
    store.put("a", old)
    ranges = 0

    def replace_in_the_middle(params: dict[str, Any], **_: Any) -> None:
        nonlocal ranges
        if "Range" in params["headers"]:
            ranges += 1
            if ranges == 1:
                stores().put("a", new)

    events = store._clients.retrying.meta.events
    events.register("before-call.s3.GetObject", replace_in_the_middle)
    data = store.read("a")
    assert ranges > 3
    assert (data == new) is True


# --- errors ---------------------------------------------------------------------------------------


def test_refused_credentials_are_reported_without_the_secret(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "a-very-secret-secret-0123456789"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    store = stores()
    calls = (
        lambda: store.create("a", b"1"),
        lambda: store.replace("a", b"1", '"version"'),
        lambda: store.put("a", b"1"),
        lambda: store.put("a", bytes(9 * MEBIBYTE)),
        lambda: store.read("a"),
        lambda: store.read_versioned("a"),
        lambda: [*store.list("")],
        lambda: [*store.list_folders("")],
        lambda: store.delete(["a"]),
        lambda: store.sweep(datetime.now(UTC)),
    )
    for call in calls:
        with pytest.raises(AuthFailed) as caught:
            call()
        texts = (
            str(caught.value),
            repr(caught.value),
            "".join(traceback.format_exception(caught.value)),
            repr(pickle.loads(pickle.dumps(caught.value))),
        )
        assert not any(secret in text for text in texts)
    assert secret not in repr(store) + store.url + repr(pickle.dumps(store)) + caplog.text


def test_missing_credentials_are_reported(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(AuthFailed, match="locate credentials"):
        stores().create("a", b"1")


def test_a_missing_bucket_is_named(stores: Stores) -> None:
    store = stores(bucket="no-such-bucket")
    for call in (
        lambda: store.create("a", b"1"),
        lambda: store.put("a", b"1"),
        lambda: store.read("a"),
        lambda: store.read_versioned("a"),
        lambda: [*store.list("")],
        lambda: store.delete(["a"]),
    ):
        with pytest.raises(InvalidConfig, match="no bucket no-such-bucket"):
            call()


def test_settings_that_cannot_be_right_are_refused(stores: Stores) -> None:
    for bucket in ("", "with/slash"):
        with pytest.raises(InvalidConfig):
            stores(bucket=bucket)
    with pytest.raises(InvalidConfig):
        stores(bucket="UPPER CASE").read("a")
    for endpoint in ("127.0.0.1:9000", "ftp://host", "http://", "http://[broken"):
        with pytest.raises(InvalidConfig):
            stores(endpoint_url=endpoint)
    with pytest.raises(InvalidConfig) as caught:
        stores(endpoint_url="http://user:hidden@host")
    assert "hidden" not in str(caught.value) + caught.value.advice()
    for prefix in ("a//b", "../a", "a\\b"):
        with pytest.raises(InvalidName):
            stores(prefix)


def test_a_key_that_is_too_long_with_its_prefix_is_refused(stores: Stores) -> None:
    key = "/".join(["k" * 200] * 5)
    with pytest.raises(InvalidName, match="longer"):
        stores("p" * 100).put(key, b"")


# --- the rest -------------------------------------------------------------------------------------


def test_slashes_around_the_prefix_make_no_difference(stores: Stores, s3_client: S3Client) -> None:
    for number, prefix in enumerate(("x/y", "/x/y", "x/y/", "//x/y//")):
        stores(prefix).put(f"k{number}", b"")
        assert stores(prefix).url == stores("x/y").url
    reply = s3_client.list_objects_v2(Bucket=stores.bucket)
    assert [entry["Key"] for entry in reply["Contents"]] == [f"x/y/k{n}" for n in range(4)]


def test_nothing_outside_the_prefix_is_seen_or_touched(stores: Stores, s3_client: S3Client) -> None:
    bucket = stores.bucket
    for key in ("base2/a", "bas/a", "a"):
        s3_client.put_object(Bucket=bucket, Key=key, Body=b"stranger")
    store = stores("base")
    store.put("a", b"mine")
    assert [info.key for info in store.list("")] == ["a"]
    store.delete(["a"])
    left = s3_client.list_objects_v2(Bucket=bucket)["Contents"]
    assert [entry["Key"] for entry in left] == ["a", "bas/a", "base2/a"]


def test_markers_for_folders_are_not_objects(stores: Stores, s3_client: S3Client) -> None:
    stores().put("f/a", b"")
    s3_client.put_object(Bucket=stores.bucket, Key="base/g/", Body=b"")
    assert [info.key for info in stores().list("")] == ["f/a"]


def test_stale_uploads_are_swept(stores: Stores, s3_client: S3Client) -> None:
    bucket = stores.bucket
    for key in ("base/mine", "base2/stranger"):
        s3_client.create_multipart_upload(Bucket=bucket, Key=key)
    store = stores("base")
    store.put("finished", b"1")
    assert [info.key for info in store.list("")] == ["finished"]
    assert store.sweep(datetime.now(UTC) - LATER) == 0
    assert store.sweep(datetime.now(UTC) + LATER) == 1
    assert store.sweep(datetime.now(UTC) + LATER) == 0
    left = s3_client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [upload["Key"] for upload in left] == ["base2/stranger"]
    assert store.read("finished") == b"1"


def test_a_killed_probe_is_swept(stores: Stores) -> None:
    store = stores()
    store.put("_probe/0123", b"")
    assert store.sweep(datetime.now(UTC) - LATER) == 0
    assert store.sweep(datetime.now(UTC) + LATER) == 1
    assert [*store.list("")] == []


def test_the_url_opens_the_same_store(stores: Stores) -> None:
    store = stores("a b/ü", region="us-east-1")
    store.put("k", b"1")
    again = open_store(store.url)
    assert isinstance(again, S3Store)
    assert again.url == store.url
    assert again.read("k") == b"1"
    again.close()


def test_a_forked_process_makes_its_own_connections(stores: Stores) -> None:
    store = stores()
    store.put("a", b"1")
    client = store._clients.retrying
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        verdict = b"failed"
        try:
            if store.read("a") == b"1" and store._clients.retrying is not client:
                verdict = b"ok"
        finally:
            os.write(writing, verdict)
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert pipe.read() == b"ok"
    os.waitpid(child, 0)
    assert store.read("a") == b"1"
    assert store._clients.retrying is client


def test_a_closed_store_opens_again(stores: Stores) -> None:
    store = stores()
    store.put("a", b"1")
    store.close()
    store.close()
    assert store.read("a") == b"1"


def test_what_is_missing_in_a_batch_is_an_error_in_its_place(stores: Stores) -> None:
    store = stores()
    store.put("a", b"1")
    found: list[tuple[str, bytes | LaminarError]] = [*store.read_many(["a", "b", "a"])]
    assert found[0] == found[2] == ("a", b"1")
    assert isinstance(found[1][1], ObjectMissing)
