"""A full disk ends in a named error at whatever write it comes, and costs nothing but time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from laminar_dagster.core.errors import LaminarError
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.stores.local import LocalStore
from tests.integration.proof.in_process import open_here, run_to_the_end
from tests.integration.proof.published import check_everything, check_whole_epochs
from tests.integration.proof.small_disk import SmallDisk, mounted
from tests.integration.proof.stream import SINKS, Layout, write_input, write_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.proof("full disk"), pytest.mark.timeout(900)]

_SINKS = SINKS.replace("'out.db'", "'disk/out.db'").replace("'lake'", "'disk/lake'")
_LEVERS: dict[str, Callable[[SmallDisk, int], None]] = {
    "files": lambda disk, turn: disk.leave_files(turn),
    "bytes": lambda disk, turn: disk.leave_bytes(turn * 8192),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk") as disk:
        yield disk


@pytest.mark.parametrize("lever", list(_LEVERS))
def test_at_every_write_in_turn(
    tmp_path: Path, disk: SmallDisk, spark: SparkSession, lever: str
) -> None:
    write_pipeline(tmp_path, Layout(store="disk/state", max_records=120, sinks=_SINKS))
    write_input(tmp_path, 240)
    EpochRunner(open_here(tmp_path, spark)).run()
    checkpoints = CheckpointStore(LocalStore(disk.folder / "state"))
    kinds: list[str] = []
    for turn in range(100):
        _LEVERS[lever](disk, turn)
        try:
            report = EpochRunner(open_here(tmp_path, spark)).run()
        except LaminarError as error:
            kinds.append(error.kind)
        else:
            assert report.epoch == 2
            break
        finally:
            # Also a reader of SQLite needs room.
            disk.make_room()
        check_whole_epochs(tmp_path, checkpoints, tmp_path / "cut", disk.folder)
    assert len(kinds) > 3, kinds
    run_to_the_end(tmp_path, spark)
    check_everything(tmp_path, checkpoints, disk.folder)
