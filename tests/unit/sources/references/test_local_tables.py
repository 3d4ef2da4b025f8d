"""Files and Delta tables on a disk as reference tables."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from laminar_dagster.core.errors import InvalidConfig, ReferenceUnavailable, ReferenceUnfit
from laminar_dagster.core.ports import Reference, ReferenceFreshness
from laminar_dagster.sources.references.delta import DeltaReference
from laminar_dagster.sources.references.file import FileReference
from laminar_dagster.testing.reference_contract import FIRST, ReferenceContract, Row
from tests.unit.sources.references.declared import declared


class CsvPlace:
    """One file, replaced by a rename."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "fruit.csv"

    def table(self, *, has_key: bool = True, column: str = "name") -> Reference:
        table = declared("file", has_key=has_key, column=column, path="fruit.csv", format="csv")
        return FileReference.from_table(table, self.folder)

    def write(self, rows: Sequence[Row]) -> None:
        # Without a newline at its end.
        lines = ["id,name", *(f"{id},{name or ''}" for id, name in rows)]
        new = self.folder / "new"
        new.write_text("\n".join(lines))
        os.replace(new, self.path)

    def remove(self) -> None:
        self.path.unlink()


class DeltaPlace:
    """A Delta table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def table(self, *, has_key: bool = True, column: str = "name") -> Reference:
        table = declared("delta", has_key=has_key, column=column, path="fruit")
        return DeltaReference.from_table(table, self.folder)

    def write(self, rows: Sequence[Row]) -> None:
        kinds = pa.schema([("id", pa.int64()), ("name", pa.string())])
        columns = [[row[number] for row in rows] for number in range(2)]
        write_deltalake(self.folder / "fruit", pa.table(columns, schema=kinds), mode="overwrite")

    def remove(self) -> None:
        shutil.rmtree(self.folder / "fruit")


class TestCsv(ReferenceContract):
    """A CSV file keeps the contract."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> CsvPlace:
        return CsvPlace(tmp_path)


class TestDelta(ReferenceContract):
    """A Delta table keeps the contract."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> DeltaPlace:
        return DeltaPlace(tmp_path)


def test_a_file_that_was_just_written_has_no_version_to_rely_on(tmp_path: Path) -> None:
    place = CsvPlace(tmp_path)
    place.write(FIRST)
    assert place.table().read().version != place.table().version()
    long_ago = 1_600_000_000
    os.utime(place.path, (long_ago, long_ago))
    # The time of the last change of the file itself cannot be set: it is young still.
    assert place.table().read().version.endswith(" unsettled")


def test_a_row_that_cannot_be_read_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "fruit.csv").write_text("id,name\n1,pear\nmany,plum\n")
    with pytest.raises(ReferenceUnfit, match=r"fruit\.csv, at 15: .*id"):
        CsvPlace(tmp_path).table().read()


def test_a_key_or_a_column_that_is_not_null_holds_no_null(tmp_path: Path) -> None:
    DeltaPlace(tmp_path).write([(1, "pear"), (None, "fig")])  # type: ignore[list-item]
    with pytest.raises(ReferenceUnfit, match="`id` must not be null, and is in 1 rows"):
        DeltaPlace(tmp_path).table().read()


def test_a_delta_table_of_another_type_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "fruit", pa.table({"id": ["1"], "name": ["pear"]}))
    with pytest.raises(ReferenceUnfit, match="`id` is string, declared as int32"):
        DeltaPlace(tmp_path).table().version()


def test_a_table_that_is_too_large_is_refused(tmp_path: Path) -> None:
    CsvPlace(tmp_path).write(FIRST)
    table = declared("file", path="fruit.csv", format="csv", max__bytes="10")
    with pytest.raises(ReferenceUnfit, match="more than 10 bytes"):
        FileReference.from_table(table, tmp_path).read()


def test_a_folder_without_files_is_away(tmp_path: Path) -> None:
    (tmp_path / "fruit").mkdir()
    table = declared("file", path="fruit", format="parquet")
    with pytest.raises(ReferenceUnavailable, match="there is no file"):
        FileReference.from_table(table, tmp_path).read()


def test_how_old_a_copy_may_be(tmp_path: Path) -> None:
    table = declared(
        "delta", path="fruit", refresh__interval="10m", on_unavailable="keep", max__bytes="2GiB"
    )
    fresh = DeltaReference.from_table(table, tmp_path).freshness
    assert fresh == ReferenceFreshness(timedelta(minutes=10), keeps_when_away=True)
    assert CsvPlace(tmp_path).table().freshness == ReferenceFreshness(timedelta(0))
    never = declared("delta", path="fruit", refresh__interval="never")
    assert DeltaReference.from_table(never, tmp_path).freshness.refresh_after is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"path": "x", "format": "csv", "on_gap": "fail"}, "`on_gap` is for sources"),
        ({"path": "x", "format": "csv", "refresh__interval": "soon"}, "must be a duration"),
        ({"path": "x", "format": "csv", "on_unavailable": "wait"}, "must be one of fail, keep"),
        ({"path": "x", "format": "csv", "on_retraction": "yes"}, "one of refuse, join_current"),
        ({"path": "x", "format": "csv", "patern": "*"}, "unknown option `patern`"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        FileReference.from_table(declared("file", has_key=True, column="name", **options), tmp_path)


def test_a_delta_path_holds_no_secret(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="must not carry credentials"):
        DeltaReference.from_table(declared("delta", path="s3://key:secret@bucket/t"), tmp_path)
