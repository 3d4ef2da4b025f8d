"""Writes the list of Spark's functions anew: ``python -m tests.unit.config.write_spark_functions``.

Needed when the version of pyspark changes. Prints what is new and what is gone.
"""

from __future__ import annotations

import re
import sys
from importlib.resources import files

from pyspark.sql import SparkSession

GENERATORS = (
    "collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer "
    "python_worker_logs range sql_keywords stack variant_explode variant_explode_outer"
)
WINDOW = "cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number"
# Aggregates whose class is in no package of aggregates, found by hand.
AGGREGATES = (
    "approx_top_k_accumulate approx_top_k_combine bitmap_and_agg bitmap_construct_agg "
    "bitmap_or_agg grouping grouping_id schema_of_variant_agg vector_avg vector_sum"
)


def main() -> None:
    """Ask Spark, and write the file."""
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = spark.getOrCreate()
    lines = []
    for (name,) in session.sql("SHOW SYSTEM FUNCTIONS").collect():
        if not re.fullmatch(r"[a-z_][a-z0-9_]*", name):
            continue
        about = [row[0] for row in session.sql(f"DESCRIBE FUNCTION `{name}`").collect()]
        owner = next((each for each in about if each.startswith("Class:")), "")
        lines.append(f"{name} {_kind(name, owner)}")
    target = files("laminar_dagster.config.sql") / "spark_functions.txt"
    before = set(target.read_text().splitlines()) if target.is_file() else set()
    header = f"# The functions of Spark {session.version}: name, kind.\n"
    with open(str(target), "w", encoding="utf-8") as file:
        file.write(header + "".join(f"{each}\n" for each in sorted(lines)))
    for sign, changed in (("+", set(lines) - before), ("-", before - set(lines))):
        for each in sorted(changed):
            if not each.startswith("#"):
                sys.stdout.write(f"{sign} {each}\n")


def _kind(name: str, owner: str) -> str:
    if ".aggregate." in owner or name in AGGREGATES.split():
        return "aggregate"
    if name in WINDOW.split():
        return "window"
    return "generator" if name in GENERATORS.split() else "scalar"


if __name__ == "__main__":
    main()
