"""Which PySpark a worker imports: Spark's zip of it, or the installed one."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
import pytest

from laminar_dagster.spark.worker_daemon import without_bundled_zips

SITE = str(Path(pyspark.__file__).parents[1])
BUNDLED = [
    str(Path(pyspark.__file__).parent / "python" / "lib" / name)
    for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")
]


def test_the_zips_of_the_installed_pyspark_are_left_out() -> None:
    rest = ["/somewhere", "/home/me/pyspark_models.zip", SITE]
    # A zip of the user's own is none of Spark's, whatever its name begins with.
    assert without_bundled_zips([*BUNDLED, "/somewhere", SITE]) == ["/somewhere", SITE]
    assert without_bundled_zips(rest) == rest


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(["/opt/spark/python/lib/pyspark.zip", SITE], id="of another Spark"),
        pytest.param([*BUNDLED, "/somewhere"], id="and PySpark is installed nowhere else"),
        pytest.param([], id="nothing"),
    ],
)
def test_other_zips_stay(path: list[str]) -> None:
    assert without_bundled_zips(path) == path


def test_the_search_path_of_this_process_stays_as_it_is() -> None:
    assert without_bundled_zips(sys.path) == sys.path
