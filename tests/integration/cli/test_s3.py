"""The commands on a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.s3 import S3Endpoint
from laminar_dagster.core import layout
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.stores.url import open_store
from tests.unit.cli.conditions import History, Laminar

pytestmark = pytest.mark.service("s3")


@pytest.fixture
def on_s3(
    s3_service: S3Endpoint, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Laminar, History]:
    """A history that was written on a disk and copied, object by object, into a bucket."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_service.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_service.secret_key)
    url = f"s3://{s3_bucket}/base?endpoint={s3_service.url}&region={s3_service.region}"
    history = History(tmp_path / "store").run(4)
    store = open_store(url)
    for info in LocalStore(history.root).list(""):
        store.put_file(info.key, history.root / info.key)
    return Laminar(url), history


def test_lists_shows_verifies_and_collects(on_s3: tuple[Laminar, History]) -> None:
    laminar, history = on_s3
    rows = laminar.json("checkpoints", "list")
    assert [row["checkpoint_id"] for row in rows] == [history.ids[epoch] for epoch in (4, 3, 2, 1)]
    assert laminar.json("checkpoints", "show", "latest")["epoch"] == 4
    assert laminar.json("checkpoints", "verify")["is_whole"] is True
    promised = laminar.json("checkpoints", "gc", "--retain", "1", "--dry-run")
    done = laminar.json("checkpoints", "gc", "--retain", "1")
    assert done["removed"]["objects"] == promised["removed"]["objects"] != []
    assert [row["epoch"] for row in laminar.json("checkpoints", "list")] == [4]
    assert laminar.json("checkpoints", "verify")["is_whole"] is True


def test_finds_damage(on_s3: tuple[Laminar, History]) -> None:
    laminar, history = on_s3
    assert laminar.store is not None
    key = layout.checkpoint_key(history.ids[4], "staged/table/rows.json")
    open_store(laminar.store).put(key, b"something else")
    found = laminar.json("checkpoints", "verify", exit_code=4)
    assert [problem["key"] for problem in found["problems"]] == [key]


def test_a_bucket_that_is_not_there_is_a_named_error(on_s3: tuple[Laminar, History]) -> None:
    laminar, _ = on_s3
    assert laminar.store is not None
    address, options = laminar.store.split("?")
    missing = Laminar(f"{address.replace('test-', 'gone-')}?{options}")
    result = missing("checkpoints", "list")
    assert result.exit_code not in (0, 1)
    assert result.stderr.startswith("error[")
    assert "Traceback" not in result.output


def test_refused_credentials_are_told_without_them(
    on_s3: tuple[Laminar, History], monkeypatch: pytest.MonkeyPatch
) -> None:
    laminar, _ = on_s3
    canary = "canary-4f9c2b7e1d"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", canary)
    monkeypatch.setenv("LAMINAR_DEBUG", "1")
    for extra in ((), ("--json",)):
        result = laminar("checkpoints", "list", *extra)
        assert result.exit_code == 2
        assert "auth_failed" in result.output
        assert canary not in result.output
