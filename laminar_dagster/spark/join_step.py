"""Advances one bucket of a join by an epoch: emits new pairs, and rows without a partner.

With state ``L`` and ``R`` before the epoch and new rows ``dL`` and ``dR``, the new pairs are those
of ``L + dL`` with ``dR``, and of ``dL`` with ``R``; the weight of a pair is the product of the
weights of its rows. State is read for the keys of new rows, and for rows that fall due: the
watermark says that no partner can arrive any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.spark.bucket_step import BucketStep, Files
from laminar_dagster.spark.columns import CONTROL, END, HASH, PART, SIDE, SIDES, TIME
from laminar_dagster.spark.join_chain import JoinChain, is_due
from laminar_dagster.spark.join_matching import Rule, Whole
from laminar_dagster.spark.join_shape import LEFT, RIGHT, JoinShape
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.row_order import differs_from_previous, sorted_by
from laminar_dagster.spark.state_chain import Closing

if TYPE_CHECKING:
    from laminar_dagster.config.relations import JoinKind

# The prefix of a state column's name tells which side it is of.
PREFIXES = ("left.", "right.")


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a join: which rows match, and when output is emitted.

    Attributes:
        waits: For the left and the right side: how long after the watermark has passed its time a
            row may still find a partner.
        keeps: For both sides: how long a row is kept. At least as long as it waits, and until all
            rows of the other side that it may match have been judged to have a partner or not.
    """

    kind: JoinKind
    emits: Literal["once", "changes", "close"]
    rule: Rule
    waits: tuple[int, int] = (0, 0)
    keeps: tuple[int, int] = (0, 0)

    @property
    def slack(self) -> tuple[int, int]:
        """How long before its end a row falls due, for both sides."""
        return self.keeps[0] - self.waits[0], self.keeps[1] - self.waits[1]

    @property
    def pairs(self) -> bool:
        """Whether pairs of rows of both sides are emitted."""
        return self.kind not in ("semi", "anti")

    def tells_alone(self, side: int) -> bool:
        """Whether rows of a side are emitted alone: for having no partner or, in SEMI, for one."""
        lonely = ("left", "full", "semi", "anti") if side == LEFT else ("right", "full")
        return self.kind in lonely

    def rule_of(self, side: int) -> Rule:
        """The matching rule with the given side as the left one."""
        return self.rule if side == LEFT else self.rule.turned

    def ends(self, rows: pa.Table, side: int) -> Any:
        """The ``_end`` of a side's rows, until which they are kept; null without time bounds."""
        if self.rule.bounds is None:
            return pa.nulls(rows.num_rows, pa.int64())
        return pc.add(rows.column(TIME), pa.scalar(self.keeps[side] + 1, pa.int64()))


def terms_of(
    kind: JoinKind,
    emits: Literal["once", "changes", "close"],
    rule: Rule,
    waits: tuple[int, int],
) -> Terms:
    """The terms of a join; computes how long its rows have to be kept."""
    terms = Terms(kind, emits, rule, waits, waits)
    if rule.bounds is None:
        return terms
    (left, right), (least, most) = waits, rule.bounds
    keeps = (
        max(left, right + most) if terms.tells_alone(RIGHT) else left,
        max(right, left - least) if terms.tells_alone(LEFT) else right,
    )
    return Terms(kind, emits, rule, waits, keeps)


@dataclass(frozen=True)
class _Rows:
    """Rows of one side: those in the state before the epoch, and new ones."""

    before: pa.Table
    new: pa.Table

    @cached_property
    def after(self) -> pa.Table:
        return pa.concat_tables([self.before, self.new])


@dataclass(frozen=True, kw_only=True)
class JoinStep(BucketStep):
    """The state of both sides, read for the keys that an epoch touches.

    Output: ``_part`` (the bucket), ``_control``, ``_weight``, ``_sides``, ``_end``, and the columns
    of both sides, sorted; retractions stand before insertions.

    Attributes:
        is_joining: False if state is only rewritten, in a rescale.
    """

    shape: JoinShape
    terms: Terms
    is_joining: bool = True

    @property
    def schema(self) -> pa.Schema:
        """See ``BucketStep.schema``."""
        own = [(PART, pa.int64()), (CONTROL, pa.string()), (WEIGHT, pa.int8())]
        own += [(SIDES, pa.int8()), (END, pa.int64())]
        return pa.schema([*own, *((each.name, each.arrow_type) for each in self.shape.columns)])

    @property
    def operator_type(self) -> str:
        """See ``BucketStep.operator_type``."""
        return "join"

    def chain_of(self, bucket: int) -> JoinChain:
        """See ``BucketStep.chain_of``."""
        home, files = self.files_of(bucket)
        return JoinChain(home, self.shape, files)

    def spreading(self) -> Self:
        """See ``BucketStep.spreading``."""
        return replace(super().spreading(), is_joining=False)

    def advance(self, bucket: int, new: pa.Table, closing: Closing) -> tuple[pa.Table, Files]:
        """See ``BucketStep.advance``."""
        added = self.shape.merge([new])
        chain = self.chain_of(bucket)
        left = chain.without_ended(closing)
        if not self.is_joining:
            return self._output([]), left.advance(added, closing)
        if self.terms.emits == "close":
            due = added.filter(pa.array(is_due(added, closing, (0, 0))))
            rows = self.shape.merge([chain.closing_rows(closing), due])
            return self._output([*self._closed(rows)]), left.advance(added, closing)
        can_match = _has_key(added, self.shape)
        alone, added = added.filter(pc.invert(can_match)), added.filter(can_match)
        hashes = np.unique(added.column(HASH).to_numpy())
        if self._waits_for_due:
            hashes = np.union1d(hashes, chain.due(closing, self.terms.slack))
        before = chain.rows_of(hashes, closing)
        sides = [_Rows(_of(before, side), _of(added, side)) for side in (LEFT, RIGHT)]
        found = [*self._pairs(sides), *self._alone(sides, closing), *self._without_key(alone)]
        return self._output(found), left.advance(added, closing)

    @property
    def _waits_for_due(self) -> bool:
        lonely = self.terms.tells_alone(LEFT) or self.terms.tells_alone(RIGHT)
        return self.terms.emits == "once" and lonely and self.terms.kind != "semi"

    # --- rows of both sides -----------------------------------------------------------------------

    def _pairs(self, sides: list[_Rows]) -> Iterator[pa.Table]:
        if not self.terms.pairs:
            return
        left, right = sides
        yield self._paired(left.after, right.new)
        yield self._paired(left.new, right.before)

    def _paired(self, left: pa.Table, right: pa.Table) -> pa.Table:
        one, other = self.terms.rule.pairs(left, right)
        weights = left.column(WEIGHT).to_numpy()[one] * right.column(WEIGHT).to_numpy()[other]
        columns = {}
        for each in self.shape.columns:
            is_left = each.name.startswith(PREFIXES[LEFT])
            values = left.column(each.name) if is_left else right.column(each.name)
            columns[each.name] = values.take(pa.array(one if is_left else other))
        return self._told(columns, left.column(END).take(pa.array(one)), weights, 3)

    # --- rows of one side -------------------------------------------------------------------------

    def _alone(self, sides: list[_Rows], closing: Closing) -> Iterator[pa.Table]:
        """Rows that are emitted for having no partner, or in a semi join for having one."""
        for side in (LEFT, RIGHT):
            if not self.terms.tells_alone(side):
                continue
            mine, others = sides[side], sides[1 - side]
            rule = self.terms.rule_of(side)
            if self.terms.emits == "once" and self.terms.kind != "semi":
                due = is_due(mine.after, closing, self.terms.slack)
                rows = mine.after.filter(pa.array(due))
                has_none = rule.partners(rows, others.after) <= 0
                yield self._single(rows, rows.column(WEIGHT).to_numpy() * has_none, side)
            else:
                yield self._single(mine.after, self._turned(mine, others, rule), side)

    def _turned(self, mine: _Rows, others: _Rows, rule: Rule) -> Whole:
        """The weight by which the output of each row changes in this epoch; 0 if it does not."""
        is_told = self._is_told(rule.partners(mine.after, others.after))
        was_told = self._is_told(rule.partners(mine.before, others.before))
        was_told = np.concatenate((was_told, np.zeros(mine.new.num_rows, np.bool_)))
        change = is_told.astype(np.int64) - was_told.astype(np.int64)
        told: Whole = mine.after.column(WEIGHT).to_numpy() * change
        return told

    def _is_told(self, partners: Whole) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = partners > 0
        return found if self.terms.kind == "semi" else ~found

    def _without_key(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Rows with a null in their key, which matches nothing: emitted at once, as unmatched."""
        for side in (LEFT, RIGHT):
            if self.terms.tells_alone(side) and self.terms.kind != "semi":
                found = _of(rows, side)
                yield self._single(found, found.column(WEIGHT).to_numpy(), side)

    def _closed(self, rows: pa.Table) -> Iterator[pa.Table]:
        """The output of windows that close, when the rows of both sides are complete."""
        sides = [_of(rows, side) for side in (LEFT, RIGHT)]
        if self.terms.pairs:
            yield self._paired(*sides)
        for side in (LEFT, RIGHT):
            if self.terms.tells_alone(side):
                mine = sides[side]
                partners = self.terms.rule_of(side).partners(mine, sides[1 - side])
                told = self._is_told(partners)
                yield self._single(mine, mine.column(WEIGHT).to_numpy() * told, side)

    def _single(self, rows: pa.Table, weights: Whole, side: int) -> pa.Table:
        kept = pa.array(weights != 0)
        rows, weights = rows.filter(kept), weights[weights != 0]
        columns = {each.name: rows.column(each.name) for each in self.shape.columns}
        return self._told(columns, rows.column(END), weights, 1 + side)

    # --- output -----------------------------------------------------------------------------------

    def _told(self, columns: dict[str, Any], ends: Any, weights: Whole, sides: int) -> pa.Table:
        """Output rows with a weight of 1 or -1, repeated by the amount of their weight."""
        signs = pa.array(np.sign(weights).astype(np.int8))
        own = {WEIGHT: signs, SIDES: pa.array(np.full(len(weights), sides, np.int8)), END: ends}
        rows = pa.table({**own, **columns})
        often = np.abs(weights)
        if (often == 1).all():
            return rows
        return rows.take(pa.array(np.repeat(np.arange(len(often)), often)))

    def _output(self, parts: list[pa.Table]) -> pa.Table:
        wanted = pa.schema([each for each in self.schema if each.name not in (PART, CONTROL)])
        found = [part.select(wanted.names).cast(wanted) for part in parts]
        rows = pa.concat_tables([wanted.empty_table(), *found])
        is_nested = {each.name: bool(pa.types.is_nested(each.type)) for each in wanted}
        names = sorted(wanted.names, key=is_nested.__getitem__)
        ordered = sorted_by(rows, names)
        return ordered if _all_come(ordered) else _netted(ordered, names)


def _all_come(rows: pa.Table) -> bool:
    """Whether there are no retractions: they would be sorted first."""
    return not rows.num_rows or rows.column(WEIGHT)[0].as_py() > 0


def _netted(rows: pa.Table, names: list[str]) -> pa.Table:
    """Rows without those that are inserted and retracted in the same epoch.

    A row may get a partner in the very epoch in which it is retracted: the pair never existed.
    """
    told = [name for name in names if name != WEIGHT]
    rows = sorted_by(rows, told)
    begins = differs_from_previous(rows, told)
    sums = np.add.reduceat(rows.column(WEIGHT).to_numpy().astype(np.int64), np.flatnonzero(begins))
    once = np.flatnonzero(begins)
    places = np.repeat(once, np.abs(sums))
    signs = np.repeat(np.sign(sums), np.abs(sums)).astype(np.int8)
    in_turn = np.argsort(signs, kind="stable")
    found = rows.take(pa.array(places[in_turn]))
    return found.set_column(found.column_names.index(WEIGHT), WEIGHT, pa.array(signs[in_turn]))


def _of(rows: pa.Table, side: int) -> pa.Table:
    return rows.filter(pc.equal(rows.column(SIDE), side))


def _has_key(rows: pa.Table, shape: JoinShape) -> Any:
    found = pa.array(np.ones(rows.num_rows, np.bool_))
    for key in shape.keys:
        found = pc.and_(found, pc.is_valid(rows.column(key.name)))
    return found
