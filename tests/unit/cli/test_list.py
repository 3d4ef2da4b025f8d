from __future__ import annotations

import msgspec
import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.document import encode
from laminar_dagster.core.errors import StoreUnavailable
from laminar_dagster.core.ids import CheckpointId
from laminar_dagster.stores.local import LocalStore
from tests.unit.cli.conditions import History, Laminar, flip_bit


def test_lists_the_newest_first_with_everything_a_program_needs(
    laminar: Laminar, history: History
) -> None:
    rows = laminar.json("checkpoints", "list")
    assert [(row["epoch"], row["checkpoint_id"]) for row in rows] == [
        (epoch, history.ids[epoch]) for epoch in (5, 4, 3, 2, 1)
    ]
    assert [row["is_latest"] for row in rows] == [True, False, False, False, False]
    manifest = history.manifest(5)
    age = rows[0].pop("age_seconds")
    assert age > 0
    assert rows[0] == {
        "checkpoint_id": history.ids[5],
        "is_latest": True,
        "status": "committed",
        "epoch": 5,
        "pipeline": "clicks",
        "committed_at": "2026-01-01T11:59:00Z",
        "state_bytes": manifest.total_size_bytes,
        "files": len(list(manifest.files())),
        "sources": ["numbers"],
        "sinks": ["table"],
    }


def test_prints_a_row_for_each_checkpoint_in_a_pipe(laminar: Laminar, history: History) -> None:
    result = laminar("checkpoints", "list")
    assert (result.exit_code, result.stderr) == (0, "")
    head, *rows = result.stdout.splitlines()
    assert head.split()[:2] == ["EPOCH", "CHECKPOINT"]
    assert [row.split()[:4] for row in rows] == [
        [str(epoch), history.ids[epoch], "2026-01-01", "11:59:00"] for epoch in (5, 4, 3, 2, 1)
    ]
    assert [row.split()[-1] for row in rows] == ["latest", "-", "-", "-", "-"]
    assert "\x1b" not in result.stdout


def test_epochs_decide_the_order_when_clocks_disagree(laminar: Laminar, history: History) -> None:
    # Epoch 5 was computed by a machine whose clock is behind.
    early = CheckpointId.from_parts(1, 1)
    moved = msgspec.structs.replace(history.manifest(5), checkpoint_id=early)
    target = history.root / layout.manifest_key(early)
    target.parent.mkdir()
    target.write_bytes(encode(moved))
    history.path(5, "manifest.json").unlink()
    assert [row["epoch"] for row in laminar.json("checkpoints", "list")] == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("limit", "epochs"),
    [("2", [5, 4]), ("5", [5, 4, 3, 2, 1]), ("0", [5, 4, 3, 2, 1]), ("all", [5, 4, 3, 2, 1])],
)
def test_limits_how_many_are_shown(laminar: Laminar, limit: str, epochs: list[int]) -> None:
    rows = laminar.json("checkpoints", "list", "--limit", limit)
    assert [row["epoch"] for row in rows] == epochs


def test_shows_twenty_unless_told_otherwise(history: History, laminar: Laminar) -> None:
    history.run(17)
    assert len(laminar.json("checkpoints", "list")) == 20
    assert len(laminar.json("checkpoints", "list", "--limit", "all")) == 22
    assert "--limit all" in laminar("checkpoints", "list").stdout


@pytest.mark.parametrize("limit", ["-1", "few", "1.5", "", "9" * 30])
def test_refuses_a_limit_that_is_none(laminar: Laminar, limit: str) -> None:
    error = laminar.error("checkpoints", "list", "--limit", limit, exit_code=2)
    assert error["kind"] == "usage"
    assert "--limit" in error["message"]


def test_marks_a_damaged_checkpoint_and_goes_on(laminar: Laminar, history: History) -> None:
    history.flip(3, "manifest.json")
    result = laminar("checkpoints", "list")
    assert result.exit_code == 0
    rows = result.stdout.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["5", "4", "-", "2", "1"]
    assert history.ids[3] in rows[2]
    assert "damaged: the manifest's bytes have changed" in rows[2]
    assert f"warning: checkpoint {history.ids[3]} is damaged" in result.stderr

    document = laminar.json("checkpoints", "list")[2]
    assert (document["checkpoint_id"], document["status"]) == (history.ids[3], "damaged")
    assert document["error"]["kind"] == "checksum_mismatch"


@pytest.mark.parametrize(
    ("content", "kind"), [(b"", "malformed_document"), (b"not JSON", "malformed_document")]
)
def test_tells_why_a_checkpoint_is_damaged(
    laminar: Laminar, history: History, content: bytes, kind: str
) -> None:
    history.path(5, "manifest.json").write_bytes(content)
    assert laminar.json("checkpoints", "list")[0]["error"]["kind"] == kind
    row = laminar("checkpoints", "list").stdout.splitlines()[1]
    assert "damaged, latest: it does not end with a checksum" in row


def test_counts_attempts_without_a_manifest_and_shows_them_on_request(
    laminar: Laminar, history: History
) -> None:
    attempts = [history.attempt(6), history.attempt(6)]
    assert len(laminar.json("checkpoints", "list")) == 5
    assert "2 attempts without a manifest" in laminar("checkpoints", "list").stdout

    rows = laminar.json("checkpoints", "list", "--all")
    assert [row["checkpoint_id"] for row in rows[:3]] == [*sorted(attempts)[::-1], history.ids[5]]
    assert [row["status"] for row in rows[:3]] == ["incomplete", "incomplete", "committed"]
    assert "incomplete" in laminar("checkpoints", "list", "--all").stdout.splitlines()[1]
    assert len(laminar.json("checkpoints", "list", "--all", "--limit", "3")) == 3


def test_counts_no_attempt_that_is_older_than_the_last_row(
    laminar: Laminar, history: History
) -> None:
    history.path(1, "manifest.json").unlink()
    assert "attempt" not in laminar("checkpoints", "list", "--limit", "2").stdout
    assert "1 attempt " in laminar("checkpoints", "list").stdout


def test_an_empty_store_is_no_error(empty: Laminar) -> None:
    assert empty.json("checkpoints", "list") == []
    result = empty("checkpoints", "list")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("No checkpoints in file://")


def test_a_damaged_pointer_is_a_warning(laminar: Laminar, history: History) -> None:
    flip_bit(history.root / layout.LATEST)
    result = laminar("checkpoints", "list")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: checkpoints/_latest ")
    assert not any(row["is_latest"] for row in laminar.json("checkpoints", "list"))


def test_a_store_that_is_away_is_not_taken_for_damage(
    laminar: Laminar, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = LocalStore.read

    def away(self: LocalStore, key: str, *, limit: int | None = None) -> bytes:
        if key == layout.manifest_key(history.ids[3]):
            raise StoreUnavailable(self.url, "it does not answer")
        return read(self, key, limit=limit)

    monkeypatch.setattr(LocalStore, "read", away)
    error = laminar.error("checkpoints", "list", exit_code=75)
    assert error["kind"] == "store_unavailable"
