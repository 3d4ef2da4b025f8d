"""Carts that were looked at, and not brought to the checkout within two minutes."""

from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.models import TIMESTAMP, Step, keyed_operator

PATIENCE = pa.scalar(timedelta(minutes=2))


@keyed_operator(
    reads="steps",
    keys=["user_id"],
    event_time="ts",
    takes=["step"],
    state={"since": TIMESTAMP},
    columns={"since": TIMESTAMP},
    ttl=timedelta(hours=1),
)
class LeftCarts:
    def on_rows(self, rows: pa.Table, state: pa.Table) -> Step:
        # The first look at the cart counts; the checkout ends it.
        first = pc.coalesce(state["since"], rows["ts"])
        since = pc.if_else(pc.equal(rows["step"], "cart"), first, pa.scalar(None, TIMESTAMP))
        return Step(state={"since": since}, timer=pc.add(since, PATIENCE))

    def on_timers(self, timers: pa.Table, state: pa.Table) -> Step:
        nothing = pa.nulls(timers.num_rows, TIMESTAMP)
        return Step(state={"since": nothing}, rows={"since": state["since"]})
