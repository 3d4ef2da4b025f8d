from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.document import encode
from laminar_dagster.stores.local import LocalStore
from tests.unit.cli.conditions import History, Laminar, flip_bit


def test_a_sound_store_is_whole(laminar: Laminar, history: History) -> None:
    files = {file for epoch in history.ids for file in history.manifest(epoch).files()}
    assert laminar.json("checkpoints", "verify") == {
        "is_whole": True,
        "checkpoints": 5,
        # Shared files count once; every checkpoint has a file of offsets.
        "files": len(files) + 5,
        "bytes": sum(size for _, size, _ in files),
        "problems": [],
    }
    result = laminar("checkpoints", "verify")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("5 checkpoints, ")


def test_verifies_one_checkpoint(laminar: Laminar, history: History) -> None:
    history.flip(1, "staged/table/rows.json")
    for wanted in ("latest", history.ids[5]):
        assert laminar.json("checkpoints", "verify", wanted)["checkpoints"] == 1
    found = laminar.json("checkpoints", "verify", history.ids[1], exit_code=4)
    assert [problem["epoch"] for problem in found["problems"]] == [1]


def test_finds_a_flipped_bit(laminar: Laminar, history: History) -> None:
    history.flip(5, "staged/table/rows.json")
    found = laminar.json("checkpoints", "verify", exit_code=4)
    assert found["is_whole"] is False
    (problem,) = found["problems"]
    assert problem.pop("message").startswith(problem["key"])
    assert problem.pop("hint").startswith("`laminar recover` mends")
    assert problem == {
        "checkpoint_id": history.ids[5],
        "epoch": 5,
        "key": layout.checkpoint_key(history.ids[5], "staged/table/rows.json"),
        "kind": "checksum_mismatch",
    }
    result = laminar("checkpoints", "verify")
    assert result.exit_code == 4
    assert "staged/table/rows.json is damaged" in result.stdout
    assert "1 problem: 1 of 5 checkpoints damaged." in result.stdout


@pytest.mark.parametrize("change", [b"more", b""])
def test_finds_a_file_of_another_size(laminar: Laminar, history: History, change: bytes) -> None:
    path = history.path(5, "staged/table/rows.json")
    path.write_bytes(path.read_bytes() + change if change else b"")
    found = laminar.json("checkpoints", "verify", "latest", exit_code=4)
    assert [problem["kind"] for problem in found["problems"]] == ["checksum_mismatch"]


def test_finds_a_missing_file_in_every_checkpoint_that_needs_it(
    laminar: Laminar, history: History
) -> None:
    shared = Counter(key for epoch in history.ids for key, _, _ in history.manifest(epoch).files())
    key, users = shared.most_common(1)[0]
    assert users > 1
    (history.root / key).unlink()
    found = laminar.json("checkpoints", "verify", exit_code=4)
    assert {problem["kind"] for problem in found["problems"]} == {"object_missing"}
    assert [problem["key"] for problem in found["problems"]] == [key] * users
    assert len({problem["checkpoint_id"] for problem in found["problems"]}) == users


def test_finds_swapped_offsets(laminar: Laminar, history: History) -> None:
    name = layout.offsets_path(history.manifest(4).sources[0].source_id)
    ours, theirs = history.path(4, name), history.path(5, name)
    first, second = ours.read_bytes(), theirs.read_bytes()
    ours.write_bytes(second)
    theirs.write_bytes(first)
    found = laminar.json("checkpoints", "verify", exit_code=4)
    assert [(problem["epoch"], problem["key"]) for problem in found["problems"]] == [
        (epoch, layout.checkpoint_key(history.ids[epoch], name)) for epoch in (5, 4)
    ]


def test_a_damaged_manifest_is_a_problem(laminar: Laminar, history: History) -> None:
    history.flip(3, "manifest.json")
    for args in ((), (history.ids[3],)):
        found = laminar.json("checkpoints", "verify", *args, exit_code=4)
        (problem,) = found["problems"]
        assert problem["checkpoint_id"] == history.ids[3]
        assert problem["key"] == layout.manifest_key(history.ids[3])
        assert problem["epoch"] is None
    assert "1 of 5 checkpoints damaged" in laminar("checkpoints", "verify").stdout


def test_a_damaged_pointer_is_a_problem(laminar: Laminar, history: History) -> None:
    flip_bit(history.root / layout.LATEST)
    found = laminar.json("checkpoints", "verify", exit_code=4)
    assert [problem["key"] for problem in found["problems"]] == [layout.LATEST]
    assert laminar.json("checkpoints", "verify", history.ids[5])["is_whole"] is True


@pytest.mark.parametrize("wanted", [(), ("latest",)])
def test_a_pointer_that_leads_elsewhere_is_a_problem(
    laminar: Laminar, history: History, wanted: tuple[str, ...]
) -> None:
    forged = msgspec.structs.replace(history.manifest(5), fingerprint="forged")
    history.path(5, "manifest.json").write_bytes(encode(forged))
    found = laminar.json("checkpoints", "verify", *wanted, exit_code=4)
    # Where the winner's record is looked at too, it is clear which of the two is wrong.
    wrong = layout.LATEST if wanted else layout.manifest_key(history.ids[5])
    assert [problem["key"] for problem in found["problems"]] == [wrong]
    history.path(5, "manifest.json").unlink()
    found = laminar.json("checkpoints", "verify", *wanted, exit_code=4)
    assert [problem["kind"] for problem in found["problems"]] == ["object_missing"]


def test_a_damaged_latest_is_told_once(laminar: Laminar, history: History) -> None:
    history.flip(5, "manifest.json")
    assert len(laminar.json("checkpoints", "verify", exit_code=4)["problems"]) == 1


def test_a_shared_file_is_read_once(
    laminar: Laminar, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: Counter[str] = Counter()
    read_range = LocalStore.read_range

    def counted(self: LocalStore, key: str, start: int, length: int) -> bytes:
        if start == 0:
            reads[key] += 1
        return read_range(self, key, start, length)

    monkeypatch.setattr(LocalStore, "read_range", counted)
    laminar.json("checkpoints", "verify")
    named = {key for epoch in history.ids for key, _, _ in history.manifest(epoch).files()}
    assert reads == Counter(named)


def test_a_checkpoint_that_is_collected_meanwhile_is_no_problem(
    laminar: Laminar, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_range = LocalStore.read_range
    doomed = layout.checkpoint_key(history.ids[1], "staged/table/rows.json")

    def racing(self: LocalStore, key: str, start: int, length: int) -> bytes:
        if key == doomed:
            history.path(1, "manifest.json").unlink(missing_ok=True)
            (history.root / doomed).unlink(missing_ok=True)
        return read_range(self, key, start, length)

    monkeypatch.setattr(LocalStore, "read_range", racing)
    result = laminar("checkpoints", "verify", "--json")
    assert result.exit_code == 0
    assert f"checkpoint {history.ids[1]} was collected meanwhile" in result.stderr


def test_an_empty_store_has_nothing_wrong(empty: Laminar) -> None:
    assert empty.json("checkpoints", "verify")["checkpoints"] == 0
    assert empty("checkpoints", "verify").stdout.startswith("No checkpoints in ")


def test_ctrl_c_ends_readers_in_the_middle_of_a_file(
    laminar: Laminar, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_range = LocalStore.read_range
    large = layout.checkpoint_key(history.ids[5], "staged/table/rows.json")
    pieces = 0

    def trickle(self: LocalStore, key: str, start: int, length: int) -> bytes:
        nonlocal pieces
        if key != large:
            return read_range(self, key, start, length)
        pieces += 1
        if pieces == 3:
            os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(0.02)
        return b"x" if pieces < 200 else b""

    manifest = history.manifest(5)
    sink = manifest.sinks[0]
    file = msgspec.structs.replace(sink.files[0], size_bytes=2**40)
    claims = msgspec.structs.replace(
        manifest, sinks=(msgspec.structs.replace(sink, files=(file,)),)
    )
    history.path(5, "manifest.json").write_bytes(encode(claims))
    monkeypatch.setattr(LocalStore, "read_range", trickle)
    before = signal.getsignal(signal.SIGINT)
    result = laminar("checkpoints", "verify", history.ids[5])
    assert result.exit_code == 130
    assert "error[interrupted]: interrupted" in result.stderr
    assert pieces < 100
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("command", ["list", "show", "verify"])
def test_reading_never_writes(
    laminar: Laminar, history: History, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise AssertionError("a write")

    for name in ("create", "replace", "put", "put_file", "delete", "sweep", "probe"):
        monkeypatch.setattr(LocalStore, name, refuse)
    before = history.files()
    args = ["latest"] if command == "show" else []
    assert laminar("checkpoints", command, *args).exit_code == 0
    assert history.files() == before


def test_needs_no_main_thread(laminar: Laminar, tmp_path: Path) -> None:
    from laminar_dagster.cli.checkpoints.inspection import inspect_checkpoints
    from laminar_dagster.runtime.checkpoints import CheckpointStore

    assert laminar.store is not None
    checkpoints = CheckpointStore(LocalStore(Path(laminar.store)))
    found: list[int] = []

    def work() -> None:
        candidates = list(checkpoints.candidates())
        result = inspect_checkpoints(checkpoints, candidates, with_latest=True)
        found.append(result.checkpoints)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [5]
