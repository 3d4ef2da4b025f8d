"""One sink and its peers, in turns: how fast, how long a transaction takes, and how much memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from bench.figures import Figure
from bench.measure import Effort, Run, Sample, call, one_by_one, one_by_one_of, times_run
from bench.sinks.memory import bytes_per_row
from bench.sinks.place import Peer, Place
from bench.sinks.rows import ROWS, SINK, flat_rows, staged
from bench.sinks.writer import EpochWriter
from laminar_dagster.core.transactions import EpochTransactionRecord

_FEW: Final = 1_000
_MILLISECOND: Final = 1e-3
_RATE: Final = 100_000.0
# At least 0.8 times as many rows in the same time.
_SLOWER: Final = 1.25
_BARE_BEGIN: Final = 1 * _MILLISECOND
_ABORT: Final = 50 * _MILLISECOND
_OVERHEAD: Final = 200 * _MILLISECOND


class WrongRows(RuntimeError):
    """Somebody left rows out, or wrote some twice: there is no figure."""


def hold(place: Place, effort: Effort) -> Iterator[Figure]:
    """All figures of a place."""
    effort = replace(effort, rounds=effort.epochs)
    few = flat_rows(_FEW)
    many = flat_rows(effort.scaled(ROWS))
    writer = EpochWriter(place.sink())
    # Its table is there from now on.
    writer.commit(staged(few))
    peers = place.peers(many)
    place.prepare(*(peer.name for peer in peers))
    yield from _large_epochs(place, effort, writer, many, peers)
    yield from _small_epochs(place, effort, writer, few)
    yield _aborted(place, effort, writer, few, "abort", _ABORT)
    # Without a target: some servers take rows back one by one.
    yield _aborted(place, effort, writer, many, "abort/large", None)
    yield from _memory(place, effort, many)


def _large_epochs(
    place: Place, effort: Effort, writer: EpochWriter, rows: pa.Table, peers: tuple[Peer, ...]
) -> Iterator[Figure]:
    own = _Own(place, writer, rows)
    before = {peer.name: place.count(peer.name) for peer in peers}
    taken, *others = one_by_one(effort, own.run(), *(call(peer.write) for peer in peers))
    for peer in peers:
        require_rows(place, peer.name, before[peer.name], rows.num_rows, times_run(effort))
    plain, plain_taken = peers[0], others[0]
    what = f"{rows.num_rows:,} rows of {rows.num_columns} columns in one epoch: {place.title}"
    inside = Sample(tuple(rows.num_rows / _inside(each) for each in own.records))
    yield Figure(
        f"{place.name}/rate",
        what,
        rates(rows, taken),
        unit="records/s",
        limit=_RATE,
        peer=plain.title,
        peer_sample=rates(rows, plain_taken),
        note=f"the whole call of commit; inside the transaction {inside.median:,.0f}/s",
    )
    yield Figure(
        f"{place.name}/time",
        "its time, by that of the plain client",
        _over(taken, plain_taken),
        unit="times",
        limit=_SLOWER,
        note="below 1.25: at least 0.8 times its rows per second",
    )
    for peer, peer_taken in zip(peers[1:], others[1:], strict=True):
        yield Figure(
            f"{place.name}/rate/{peer.name}",
            "the same, beside another",
            rates(rows, taken),
            unit="records/s",
            peer=peer.title,
            peer_sample=rates(rows, peer_taken),
        )
    yield Figure(
        f"{place.name}/commit",
        f"from sending the commit of {rows.num_rows:,} rows to its confirmation",
        Sample(tuple(each.commit_seconds or 0.0 for each in own.records)),
        limit=place.commit_limit,
    )


def _small_epochs(
    place: Place, effort: Effort, writer: EpochWriter, rows: pa.Table
) -> Iterator[Figure]:
    own = _Own(place, writer, rows)
    plain = place.peers(rows)[0]
    taken, peer_taken = one_by_one(effort, own.run(), call(plain.write))
    differences = zip(taken.values, peer_taken.values, strict=True)
    yield Figure(
        f"{place.name}/overhead",
        f"an epoch of {rows.num_rows:,} rows, less the same rows by the plain client",
        Sample(tuple(ours - theirs for ours, theirs in differences)),
        limit=_OVERHEAD,
        note=f"{taken.median * 1e3:.0f} ms and {peer_taken.median * 1e3:.0f} ms",
    )
    yield Figure(
        f"{place.name}/begin",
        "from being asked until the transaction is open",
        Sample(tuple(each.begin_seconds or 0.0 for each in own.records)),
        note="connects, fences others out, and reads the ledger",
    )
    if bare := place.bare_begins(times_run(effort)):
        yield Figure(
            f"{place.name}/begin/bare",
            "to begin, and nothing else, with a plain client that is connected",
            Sample(bare[1:]),
            limit=_BARE_BEGIN,
        )


def _aborted(
    place: Place,
    effort: Effort,
    writer: EpochWriter,
    rows: pa.Table,
    name: str,
    limit: float | None,
) -> Figure:
    output = staged(rows)
    before = place.count(SINK)
    found = one_by_one_of(
        effort.rounds, 1, lambda: (writer.abort(output), place.plain_rollback(rows))
    )
    require_rows(place, SINK, before, 0, effort.rounds)
    seconds, plain = zip(*found, strict=True)
    return Figure(
        f"{place.name}/{name}",
        f"from a failure after {rows.num_rows:,} rows until all is rolled back",
        Sample(seconds),
        limit=limit,
        peer="" if None in plain else "a plain client's rollback of the same rows",
        peer_sample=None if None in plain else Sample(plain),
    )


def _memory(place: Place, effort: Effort, rows: pa.Table) -> Iterator[Figure]:
    found = [
        (bytes_per_row(place, rows.num_rows), bytes_per_row(place, rows.num_rows, plain=True))
        for _ in range(effort.jobs)
    ]
    ours, theirs = zip(*found, strict=True)
    yield Figure(
        f"{place.name}/memory",
        f"the most that an epoch of {rows.num_rows:,} rows adds to memory, for each row",
        Sample(ours),
        unit="bytes",
        peer=place.peers(rows.slice(0, 1))[0].title,
        peer_sample=Sample(theirs),
    )


@dataclass
class _Own:
    """The sink's turns, and what it told of its transactions."""

    place: Place
    writer: EpochWriter
    rows: pa.Table

    def __post_init__(self) -> None:
        self._records: list[EpochTransactionRecord] = []

    @property
    def records(self) -> list[EpochTransactionRecord]:
        """Of the rounds that count. Every row must be there.

        Raises:
            WrongRows: One is not.
        """
        require_rows(self.place, SINK, self._before, self.rows.num_rows, len(self._records))
        return self._records[1:]

    def run(self) -> Run:
        """A turn."""
        output = staged(self.rows)
        self._before = self.place.count(SINK)
        return call(lambda: self._records.append(self.writer.commit(output)))


def _inside(record: EpochTransactionRecord) -> float:
    """Seconds from the begin of a transaction to its end."""
    if record.opened_at is None or record.completed_at is None:
        raise RuntimeError(f"no transaction: {record}")
    return record.completed_at - record.opened_at


def require_rows(place: Place, name: str, before: int, rows: int, times: int) -> None:
    """Refuse figures of somebody who left rows out, or wrote some twice.

    Args:
        place: Where.
        name: Whose table.
        before: How many rows it held.
        rows: How many were written, each with a key of its own.
        times: How often.

    Raises:
        WrongRows: It holds another number of rows.
    """
    expected = max(before, rows) if place.replaces else before + rows * times
    found = place.count(name)
    if found != expected:
        raise WrongRows(f"{place.name}: {name} holds {found} rows instead of {expected}")


def rates(rows: pa.Table, taken: Sample) -> Sample:
    """Rows per second."""
    return Sample(tuple(rows.num_rows / seconds for seconds in taken.values))


def _over(taken: Sample, plain: Sample) -> Sample:
    pairs = zip(taken.values, plain.values, strict=True)
    return Sample(tuple(ours / theirs for ours, theirs in pairs))
