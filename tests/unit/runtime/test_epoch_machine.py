"""Two writers on one store, interleaved at every store operation, with every fault, at random.

Beside them runs a plain model: what the sink must hold follows from the log alone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from laminar_dagster.core import layout
from laminar_dagster.core.document import Document, decode
from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.prepared import LatestPointer, Prepared
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.survey import survey
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.faulty_store import Fault
from laminar_dagster.testing.interleaving import Worker
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World

DocumentT = TypeVar("DocumentT", bound=Document)
SLOTS = st.integers(0, 1)
NUMBERS = st.lists(st.integers(-5, 5), min_size=1, max_size=8)


class EpochMachine(RuleBasedStateMachine):
    """Rules move workers; invariants look at the store and the sink after every move."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.store = MemoryStore()
        self.dead: list[Worker] = []
        self.seen: dict[str, tuple[bytes, Document]] = {}
        self.workers: dict[int, Worker] = {}
        self.winners: dict[EpochNumber, CheckpointId] = {}
        self.committed: dict[EpochNumber, CheckpointId] = {}
        self.latest = 0

    # --- what may happen ------------------------------------------------------------------------

    @initialize(first=NUMBERS, second=NUMBERS)
    def there_are_records(self, first: list[int], second: list[int]) -> None:
        self.world.log.partitions = [first, second]

    @rule(partition=SLOTS, values=NUMBERS)
    def records_arrive(self, partition: int, values: list[int]) -> None:
        self.world.log.partitions[partition].extend(values)
        self.world.clock.moment += timedelta(minutes=1)

    @rule(slot=SLOTS, operations=st.integers(1, 40))
    def a_process_goes_on(self, slot: int, operations: int) -> None:
        self._advance(slot, operations)

    @rule(slot=SLOTS, operations=st.integers(1, 40))
    def it_goes_on_again(self, slot: int, operations: int) -> None:
        self._advance(slot, operations)

    @rule(turns=st.lists(st.tuples(SLOTS, st.integers(1, 4)), min_size=5, max_size=30))
    def both_go_on_by_turns(self, turns: list[tuple[int, int]]) -> None:
        for slot, operations in turns:
            self._advance(slot, operations)

    @rule(slot=SLOTS, operations=st.integers(0, 15), fault=st.sampled_from(Fault))
    def something_befalls_it(self, slot: int, operations: int, fault: Fault) -> None:
        self._advance(slot, operations, fault)

    @rule()
    def what_the_dead_had_sent_arrives(self) -> None:
        for worker in self.dead:
            worker.store.land()

    @rule(trouble=st.sampled_from(["away", "back", "back", "loses a reply", "breaks"]))
    def the_sink_has_trouble(self, trouble: str) -> None:
        table = self.world.table
        table.is_away = trouble == "away"
        table.lose_next_reply = trouble == "loses a reply"
        table.fail_next_commit = trouble == "breaks"

    def _advance(self, slot: int, operations: int, fault: Fault | None = None) -> None:
        worker = self.workers.get(slot)
        if worker is None:
            worker = self.workers[slot] = Worker(self.store)
            worker.start(self.world.runner(worker.store).run)
        for _ in range(operations):
            worker.advance()
        if fault:
            worker.advance(fault)
        if worker.is_done:
            self._expect_named(worker)
            self.dead.append(self.workers.pop(slot))

    # --- what must hold -------------------------------------------------------------------------

    @invariant()
    def look(self) -> None:
        self._one_winner_and_one_manifest_an_epoch()
        self._latest_never_moves_back()
        self._the_sink_holds_a_prefix_of_the_answer()
        self._nothing_that_is_needed_was_collected()

    def _one_winner_and_one_manifest_an_epoch(self) -> None:
        for info in self.store.list(layout.EPOCHS):
            parsed = layout.parse_epoch_key(info.key)
            assert parsed
            if not parsed.is_plan:
                prepared = self._read_once(info.key, Prepared)
                winner = self.winners.setdefault(parsed.epoch, prepared.checkpoint_id)
                assert winner == prepared.checkpoint_id
        for manifest in self._manifests():
            winner = self.committed.setdefault(manifest.epoch, manifest.checkpoint_id)
            assert winner == manifest.checkpoint_id == self.winners[manifest.epoch]

    def _latest_never_moves_back(self) -> None:
        current = self.store.read_versioned(layout.LATEST)
        epoch = decode(current.data, LatestPointer, layout.LATEST).epoch if current else 0
        assert epoch >= self.latest
        self.latest = epoch
        assert epoch <= (self.world.table.ledger or 0)

    def _the_sink_holds_a_prefix_of_the_answer(self) -> None:
        table = self.world.table
        assert table.epochs == [EpochNumber(n) for n in range(1, len(table.epochs) + 1)]
        expected = {row[:2]: row for row in self.world.log.expected()}
        seen: dict[int, int] = {}
        for row in table.rows:
            partition, offset = row[:2]
            assert row == expected[partition, offset]
            assert offset == seen.get(partition, 0), "a gap or a duplicate"
            seen[partition] = offset + 1

    def _nothing_that_is_needed_was_collected(self) -> None:
        manifests = sorted(self._manifests(), key=lambda each: each.epoch)
        assert not manifests or manifests[-1].epoch >= self.latest
        unfinished = [each for each in manifests if each.epoch > self.latest]
        finished = [each for each in manifests if each.epoch <= self.latest]
        for manifest in (*unfinished, *finished[-2:]):
            for key, size, _ in manifest.files():
                assert len(self.store.read(key)) == size
            for source in manifest.sources:
                assert self.store.read(layout.checkpoint_key(manifest.checkpoint_id, source.path))
        undecided = survey(CheckpointStore(self.store)).unfinished
        for epoch in undecided:
            prepared = CheckpointStore(self.store).prepared(epoch)
            for key, size, _ in prepared.manifest.files() if prepared else ():
                assert len(self.store.read(key)) == size

    def teardown(self) -> None:
        """Whatever happened: a fresh process brings everything to the right end."""
        for worker in self.workers.values():
            worker.finish(Fault.CRASH_BEFORE)
        table = self.world.table
        table.is_away = table.lose_next_reply = table.fail_next_commit = False
        runner = EpochRunner(self.world.pipeline(self.store, max_records=None))
        for _ in range(len(self.committed) + 3):
            runner.run()
            self.look()
        assert sorted(table.rows) == self.world.log.expected()
        assert self.latest == max(self.committed)

    # --- helpers --------------------------------------------------------------------------------

    def _read_once(self, key: str, kind: type[DocumentT]) -> DocumentT:
        """A document that never changes, and is therefore decoded once."""
        data = self.store.read(key)
        if key not in self.seen:
            self.seen[key] = (data, decode(data, kind, key))
        before, document = self.seen[key]
        assert before == data, f"{key} was written twice"
        assert isinstance(document, kind)
        return document

    def _manifests(self) -> list[CheckpointManifest]:
        return [
            self._read_once(info.key, CheckpointManifest)
            for info in self.store.list(layout.CHECKPOINTS)
            if info.key.endswith("/manifest.json")
        ]

    def _expect_named(self, worker: Worker) -> None:
        """A worker ends well, dies, or says by name why it stopped."""
        if isinstance(worker.outcome, BaseException):
            assert isinstance(worker.outcome, Crash | LaminarError), repr(worker.outcome)


TestEpochMachine = EpochMachine.TestCase
TestEpochMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
