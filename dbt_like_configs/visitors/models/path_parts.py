"""The parts of each path: `/product/12` is a row for `product` and one for `12`."""

import pandas as pd
import pyarrow as pa

from laminar_dagster.models import TIMESTAMP, model


@model(
    reads="clicks",
    columns={"user_id": pa.int64(), "level": pa.int64(), "name": pa.string(), "ts": TIMESTAMP},
    event_time="ts",
)
def path_parts(clicks: pd.DataFrame) -> pd.DataFrame:
    names = [page.strip("/").lower().split("/") for page in clicks["page"]]
    rows = clicks.assign(name=names, level=[range(1, len(each) + 1) for each in names])
    rows = rows.explode(["level", "name"])
    return rows.loc[rows["name"] != "", ["user_id", "level", "name", "ts"]]
