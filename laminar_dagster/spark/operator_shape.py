"""The state of a Python operator: one state row for each key, and pending input rows.

Both kinds of row are in one file, sorted by the hash of their key. A pending row has a time; a
state row has none. The "end" of either is when it is due: when the watermark reaches a timer, the
time to live of a key, or the microsecond after the time of a pending row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.ids import OperatorId
from laminar_dagster.models.calls import NEVER
from laminar_dagster.models.columns import TIMESTAMP
from laminar_dagster.models.declarations import TIMER
from laminar_dagster.models.folding import BEFORE_ALL, KeyedState
from laminar_dagster.models.ordering import key_numbers
from laminar_dagster.spark.columns import END, HASH, LAST, TIME
from laminar_dagster.spark.growth import METADATA
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.row_order import sorted_by
from laminar_dagster.spark.state_shape import KeyColumn, cast_rows

TURN: Final = "_timer"
WAITING: Final = "waiting"

_KEPT: Final = "state."

Fields = tuple[tuple[str, pa.DataType], ...]


def taken_column(place: int) -> str:
    """The column that carries an input column: Spark reads a dot in a name as a struct field."""
    return f"_r{place}"


@dataclass(frozen=True, slots=True)
class OperatorShape(KeyedShape):
    """The row layout of a Python operator's state. Keys have the operator's names.

    Attributes:
        time: The column of event time.
        values: The columns of the state.
        taken: The columns of pending rows, beside keys and time.
    """

    time: str = ""
    values: Fields = ()
    taken: Fields = ()

    @property
    def schema(self) -> pa.Schema:
        """See ``KeyedShape.schema``."""
        fields = [(HASH, pa.int64()), (END, pa.int64())]
        fields += [(key.name, key.arrow_type) for key in self.keys]
        fields += [(name, pa.int64()) for name in (TIME, LAST, TURN)]
        fields += [(f"{_KEPT}{name}", kind) for name, kind in self.values]
        fields += [(taken_column(place), kind) for place, (_, kind) in enumerate(self.taken)]
        return pa.schema(fields, {METADATA: json.dumps(self.about(), ensure_ascii=False)})

    def about(self) -> dict[str, Any]:
        """See ``KeyedShape.about``."""
        return {
            "operator": self.operator,
            "kind": self.kind,
            "time": self.time,
            "keys": {key.name: key.sql for key in self.keys},
            "state": [name for name, _ in self.values],
            "row": [name for name, _ in self.taken],
        }

    @classmethod
    def of_file(cls, schema: pa.Schema) -> OperatorShape:
        """Read the shape that a file was written with from its schema."""
        about = json.loads(schema.metadata[METADATA])
        return cls(
            OperatorId(about["operator"]),
            tuple(
                KeyColumn(name, sql, schema.field(name).type) for name, sql in about["keys"].items()
            ),
            (),
            "operator",
            time=about["time"],
            values=tuple((name, schema.field(f"{_KEPT}{name}").type) for name in about["state"]),
            taken=tuple(
                (name, schema.field(taken_column(place)).type)
                for place, name in enumerate(about["row"])
            ),
        )

    def read(self, table: pa.Table) -> pa.Table:
        """See ``KeyedShape.read``; a column added to the state is null in rows of older files."""
        stored = OperatorShape.of_file(table.schema)
        given = {name: table.column(name) for name in table.column_names}
        places = {name: taken_column(place) for place, (name, _) in enumerate(stored.taken)}
        missing = [name for name, _ in self.taken if name not in places]
        if missing:
            raise ValueError(f"its rows that wait hold no {', '.join(missing)}")
        moved = {
            taken_column(place): given[places[name]] for place, (name, _) in enumerate(self.taken)
        }
        added = {
            f"{_KEPT}{name}": pa.nulls(table.num_rows, kind)
            for name, kind in self.values
            if f"{_KEPT}{name}" not in given
        }
        return cast_rows(pa.table({**given, **moved, **added}), self.schema)

    def bounds(self, rows: pa.Table) -> tuple[int, int] | None:
        """See ``KeyedShape.bounds``; None also if no row is ever due."""
        found = KeyedShape.bounds(self, rows)
        return None if found is None or found[0] == NEVER else found

    def sorted(self, rows: pa.Table) -> pa.Table:
        """See ``KeyedShape.sorted``."""
        names = [HASH, *(key.name for key in self.keys), TIME]
        names += [taken_column(place) for place in range(len(self.taken))]
        return sorted_by(rows, names)

    def alive(self, rows: pa.Table) -> pa.Table:
        """Rows without tombstones: rows that have no time, timer or state value."""
        names = [TIME, TURN, *(f"{_KEPT}{name}" for name, _ in self.values)]
        blank = reduce(pc.and_, (rows.column(name).is_null() for name in names))
        return rows.filter(pc.invert(blank))

    # --- between files and the fold ---------------------------------------------------------------

    def key_names(self) -> list[str]:
        """The columns of the key, in files."""
        return [key.name for key in self.keys]

    def keys_of(self, rows: pa.Table) -> pa.Table:
        """The keys of rows, as the operator names them."""
        return rows.select(self.key_names()).rename_columns([key.sql for key in self.keys])

    def state_of(self, rows: pa.Table) -> KeyedState:
        """State rows in the form that ``fold`` takes."""
        names = [f"{_KEPT}{name}" for name, _ in self.values]
        return KeyedState(
            self.keys_of(rows),
            pc.fill_null(rows.column(LAST), BEFORE_ALL).to_numpy(),
            pc.fill_null(rows.column(TURN), NEVER).to_numpy(),
            rows.select(names).rename_columns([name for name, _ in self.values]),
        )

    def waiting_of(self, rows: pa.Table) -> pa.Table:
        """Pending rows under the operator's column names."""
        found = self.keys_of(rows).append_column(self.time, rows.column(TIME).cast(TIMESTAMP))
        for place, (name, _) in enumerate(self.taken):
            found = found.append_column(name, rows.column(taken_column(place)))
        return found

    def state_rows(self, state: KeyedState, ends: Any, hashes: Any) -> pa.Table:
        """Convert state to rows of a file."""
        clock, timer = state.clock, state.timer
        given = {
            LAST: pa.array(clock, mask=clock == BEFORE_ALL),
            TURN: pa.array(timer, mask=timer == NEVER),
            **{f"{_KEPT}{name}": state.values.column(name) for name, _ in self.values},
        }
        return self._rows(state.keys, ends, hashes, given)

    def waiting_rows(self, rows: pa.Table, hashes: Any) -> pa.Table:
        """Convert pending rows to rows of a file."""
        times = rows.column(self.time).cast(pa.int64())
        given = {
            TIME: times,
            **{taken_column(at): rows.column(name) for at, (name, _) in enumerate(self.taken)},
        }
        keys = rows.select([key.sql for key in self.keys])
        # A row is due when the watermark has passed its time.
        return self._rows(keys, pc.add(times, 1), hashes, given)

    def _rows(self, keys: pa.Table, ends: Any, hashes: Any, given: dict[str, Any]) -> pa.Table:
        given = {HASH: hashes, END: ends, **given}
        given |= {key.name: keys.column(key.sql) for key in self.keys}
        count = keys.num_rows
        columns = [
            given[each.name] if each.name in given else pa.nulls(count, each.type)
            for each in self.schema
        ]
        return pa.table(columns, names=self.schema.names).cast(self.schema)

    def listed(self, rows: pa.Table) -> pa.Table:
        """The state and timer of each key, and the number of its pending rows."""
        is_state = rows.column(TIME).is_null()
        stored, waiting = rows.filter(is_state), rows.filter(pc.invert(is_state))
        every = pa.concat_tables([self.keys_of(stored), self.keys_of(waiting)])
        numbers = key_numbers(every)
        place = np.full(int(numbers.max(initial=-1)) + 1, -1, np.int64)
        place[numbers[: stored.num_rows]] = np.arange(stored.num_rows)
        taken = pa.array(place, mask=place < 0)
        found = every.take(pa.array(np.unique(numbers, return_index=True)[1]))
        for name, _ in self.values:
            found = found.append_column(name, stored.column(f"{_KEPT}{name}").take(taken))
        found = found.append_column(TIMER, stored.column(TURN).cast(TIMESTAMP).take(taken))
        counts = np.bincount(numbers[stored.num_rows :], minlength=len(place))
        return found.append_column(WAITING, pa.array(counts))
