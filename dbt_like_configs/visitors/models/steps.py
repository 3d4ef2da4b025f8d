"""Where people are on their way through the shop: one row for each click that is a step of it."""

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.models import TIMESTAMP, model

STEPS = pa.array(["cart", "checkout"])


@model(
    reads="clicks",
    columns={"user_id": pa.int64(), "step": pa.string(), "ts": TIMESTAMP},
    event_time="ts",
)
def steps(clicks: pa.Table) -> pa.Table:
    step = pc.utf8_ltrim(pc.utf8_lower(clicks["page"]), "/")
    rows = pa.table({"user_id": clicks["user_id"], "step": step, "ts": clicks["ts"]})
    is_human = pc.not_equal(clicks["agent"], "bot")
    return rows.filter(pc.and_(is_human, pc.is_in(step, value_set=STEPS)))
