"""The published contract, for every format."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from laminar_dagster.testing.source_contract import SourceContract
from tests.unit.sources.file.files import FileStream


class TestNdjson(SourceContract):
    @pytest.fixture
    def stream(self, tmp_path: Path) -> FileStream:
        return FileStream(tmp_path, format="ndjson")


class TestNdjsonInSplits(SourceContract):
    @pytest.fixture
    def stream(self, tmp_path: Path) -> FileStream:
        return FileStream(tmp_path, format="ndjson", split_bytes=64)


class TestCsv(SourceContract):
    @pytest.fixture
    def stream(self, tmp_path: Path) -> FileStream:
        return FileStream(tmp_path, format="csv", csv_header=False, split_bytes=20)


class TestCsvWithLinesOnly(SourceContract):
    @pytest.fixture
    def stream(self, tmp_path: Path) -> FileStream:
        return FileStream(tmp_path, format="csv", csv_header=False, csv_multiline=False)


class TestParquet(SourceContract):
    # Files are taken whole.
    unit: ClassVar[int] = 4

    @pytest.fixture
    def stream(self, tmp_path: Path) -> FileStream:
        return FileStream(tmp_path, format="parquet", split_bytes=1)
