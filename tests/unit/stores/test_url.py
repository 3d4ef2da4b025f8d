"""Stores by their address."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.stores.s3 import S3Store
from laminar_dagster.stores.url import open_store


def test_a_file_url_is_a_local_store(tmp_path: Path) -> None:
    for url in (f"file://{tmp_path}/a%20b", f"file://localhost{tmp_path}/a b"):
        store = open_store(url)
        assert isinstance(store, LocalStore)
        assert store.url == f"file://{tmp_path}/a%20b"
    assert (tmp_path / "a b").is_dir()


def test_a_plain_path_is_a_local_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_store(f"{tmp_path}/x").url == f"file://{tmp_path}/x"
    assert open_store("y/z").url == f"file://{tmp_path}/y/z"
    assert open_store("./with:colon").url == f"file://{tmp_path}/with%3Acolon"
    assert open_store("~/store").url == f"file://{tmp_path}/home/store"


def test_the_url_of_a_local_store_opens_it(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "ü #?%41")
    store.put("a", b"1")
    assert open_store(store.url).read("a") == b"1"


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket/a%20b", "s3://bucket/a%20b"),
        (
            "s3://bucket/p?endpoint=http://127.0.0.1:9000&region=eu-west-1",
            "s3://bucket/p?endpoint=http://127.0.0.1:9000&region=eu-west-1",
        ),
        ("s3://bucket?region=eu-west-1", "s3://bucket?region=eu-west-1"),
    ],
)
def test_an_s3_url_is_an_s3_store(url: str, canonical: str) -> None:
    store = open_store(url)
    assert isinstance(store, S3Store)
    assert store.url == canonical
    assert open_store(store.url).url == canonical


@pytest.mark.parametrize(
    ("url", "problem", "advice"),
    [
        ("", "is empty", "s3://"),
        ("s4://bucket", "no scheme 's4'", "use s3://"),
        ("fiel:///path", "no scheme 'fiel'", "use file://"),
        ("gs://bucket", "no scheme 'gs'", "s3://"),
        ("s3:/bucket", "followed by '//'", ""),
        ("s3:bucket", "followed by '//'", ""),
        ("s3://", "no bucket", "s3://bucket"),
        ("s3:///prefix", "no bucket", "s3://bucket"),
        ("s3://bucket?endpont=http://h", "no option 'endpont'", "use endpoint="),
        ("s3://bucket?Region=x", "no option 'Region'", "use region="),
        ("s3://bucket?region=a&region=b", "given twice", ""),
        ("s3://bucket?region=", "'region' is empty", ""),
        ("s3://bucket?endpoint=host:9000", "not an http(s) URL", "https://"),
        ("s3://bucket/a#b", "has a '#'", "%23"),
        ("file://host/path", "with a host", "file:///"),
        ("file:///path?x=1", "takes no options", "%3F"),
        ("file://", "has no path", "file:///path"),
        ("s3://[broken", "cannot be taken apart", ""),
    ],
)
def test_what_is_wrong_is_named(url: str, problem: str, advice: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        open_store(url)
    assert problem in str(caught.value)
    assert advice in caught.value.advice()


@pytest.mark.parametrize(
    "url",
    [
        "s3://id:hidden@bucket/prefix",
        "s3://hidden@bucket",
        "s3://bucket?secret_key=hidden",
        "s3://bucket?aws_secret_access_key=hidden",
        "s3://bucket?session_token=hidden",
        "s3://bucket?endpoint=http://id:hidden@host",
        "s3://id:hidden@[broken",
        "https://id:hidden@host/bucket",
    ],
)
def test_credentials_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        open_store(url)
    told = f"{caught.value} {caught.value!r} {caught.value.advice()}"
    assert "hidden" not in told
    assert caught.value.__cause__ is None


def test_a_local_store_does_not_load_the_s3_client(tmp_path: Path) -> None:
    program = (
        "import sys; from laminar_dagster.stores.url import open_store; "
        "open_store(sys.argv[1]).put('a', b''); print('boto3' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
