"""The state of one partition of a join: a chain of immutable files, to which rows are only added.

A lookup searches all files for a key's rows: its cost depends on how many it finds. A key with many
rows is not rewritten when one more row arrives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from laminar_dagster.spark.columns import END, HASH, SIDE
from laminar_dagster.spark.join_shape import JoinShape
from laminar_dagster.spark.keyed_chain import Hashes, KeyedChain, matching, open_rows
from laminar_dagster.spark.row_order import Booleans
from laminar_dagster.spark.state_chain import Closing

Slack = tuple[int, int]


@dataclass(frozen=True, slots=True)
class JoinChain(KeyedChain):
    """The files of one partition; each entry names the checkpoint that wrote it."""

    shape: JoinShape

    def rows_of(self, hashes: Hashes, closing: Closing) -> pa.Table:
        """The rows with the given key hashes that had not ended when the epoch began, sorted."""
        found = [matching(self.home.mapped(each, self.shape), hashes) for each in self.files]
        return open_rows(self.shape.merge(found), closing.previous)

    def due(self, closing: Closing, slack: Slack) -> Hashes:
        """The hashes of rows that fall due in this epoch.

        Args:
            closing: The watermark before and after this epoch.
            slack: How long before its end a row falls due, for the left and for the right side.
        """
        found = [np.empty(0, np.int64)]
        for entry in self.files:
            if not entry.event_time or closing.now is None:
                continue
            if entry.event_time[0] - max(slack) > closing.now:
                continue
            rows = self.home.mapped(entry, self.shape)
            found.append(
                rows.column(HASH).filter(pa.array(is_due(rows, closing, slack))).to_numpy()
            )
        return np.unique(np.concatenate(found))

    def closing_rows(self, closing: Closing) -> pa.Table:
        """The rows that end in this epoch, sorted."""
        found = []
        for entry in self.files:
            if entry.event_time and closing.has_closed(entry.event_time[0]):
                rows = self.home.mapped(entry, self.shape)
                found.append(rows.filter(pa.array(is_due(rows, closing, (0, 0)))))
        return self.shape.merge(found)


def is_due(rows: pa.Table, closing: Closing, slack: Slack) -> Booleans:
    """A mask of the rows that fall due in an epoch: ``slack`` before their end."""
    if closing.now is None or not rows.num_rows:
        return np.zeros(rows.num_rows, np.bool_)
    sides = rows.column(SIDE).to_numpy()
    due = rows.column(END).to_numpy() - np.where(sides == 0, slack[0], slack[1])
    found: Booleans = due <= closing.now
    return found if closing.previous is None else found & (due > closing.previous)
